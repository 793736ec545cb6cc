package suites

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"cuelang.org/go/cue"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// Read evaluates the package of tests of a source. It reports all mistakes at once, sorted by position; if there are any,
// the suite is nil. CUE may compute without end, so callers that do not trust the source run Read in a child process.
func Read(source *bundles.Source) (*Suite, schemas.Diagnostics) {
	r := &reader{Evaluation: evaluation.New(source), suite: &Suite{Package: source.Package}}
	instance, _, err := bundles.Load(source)
	if err != nil {
		r.Unloadable(err)
		return nil, r.Done()
	}
	left, _ := source.LeftOut(instance)
	r.AddAll(left)
	if v := r.Suite(instance); v.Exists() {
		r.read(v)
	}
	if len(r.Diags) > 0 {
		return nil, r.Done()
	}
	return r.suite, nil
}

type reader struct {
	*evaluation.Evaluation
	suite  *Suite
	people map[string]Person
}

// refuse reports a mistake at a value.
func (r *reader) refuse(pos schemas.Position, message, hint string) {
	r.Diags = append(r.Diags, schemas.Diagnostic{Pos: pos, Message: message, Hint: hint})
}

func (r *reader) read(v cue.Value) {
	s := r.suite
	if list, err := v.LookupPath(cue.ParsePath("clusters")).List(); err == nil {
		for list.Next() {
			text, _ := list.Value().String()
			s.Clusters = append(s.Clusters, Text{text, evaluation.Position(list.Value())})
		}
	}
	s.Given = r.objects(v)
	r.DecodeField(v, "authorizers", &s.Authorizers)
	r.DecodeField(v, "reviewers", &s.Reviewers)
	r.DecodeField(v, "people", &r.people)
	for name, t := range r.Fields(v, "tests") {
		r.test(name, t)
	}
	for name, i := range r.Fields(v, "invariants") {
		r.invariant(name, i)
	}
	slices.SortStableFunc(s.Tests, func(a, b Test) int { return compare(a.Source, b.Source) })
	slices.SortStableFunc(s.Invariants, func(a, b Invariant) int { return compare(a.Source, b.Source) })
}

func compare(a, b schemas.Position) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}

func (r *reader) objects(v cue.Value) (objects []Object) {
	list, err := v.LookupPath(cue.ParsePath("given")).List()
	if err != nil {
		return nil
	}
	for list.Next() {
		objects = append(objects, Object{r.json(list.Value()), evaluation.Position(list.Value())})
	}
	return objects
}

// json returns a value as JSON; nil if it does not exist.
func (r *reader) json(v cue.Value) json.RawMessage {
	if !v.Exists() {
		return nil
	}
	text, err := v.MarshalJSON()
	if err != nil {
		r.refuse(evaluation.Position(v), "it is not plain data: "+err.Error(), "")
	}
	return text
}

// test reads a test, or its cases.
func (r *reader) test(name string, v cue.Value) {
	var t Test
	t.Name, t.Of, t.Source = name, name, evaluation.Position(v)
	r.DecodeField(v, "skip", &t.Skip)
	t.Given = r.objects(v)
	r.DecodeField(v, "authorizers", &t.Authorizers)
	r.DecodeField(v, "reviewers", &t.Reviewers)
	cases := v.LookupPath(cue.ParsePath("cases"))
	if !cases.Exists() {
		r.readTest(t, v)
		return
	}
	n := 0
	for name, c := range r.Fields(cases, "") {
		n++
		of := t
		of.Name, of.Source = t.Name+"/"+name, evaluation.Position(c)
		r.DecodeField(c, "skip", &of.Skip)
		r.readTest(of, v, c)
	}
	if n == 0 {
		r.refuse(t.Source, "the test has no cases", "add one, or write request and expect beside `as`")
	}
}

// readTest reads a test from the values that are unified: the test, and the case if it is one.
func (r *reader) readTest(t Test, from ...cue.Value) {
	t.At = map[string]schemas.Position{}
	before := len(r.Diags)
	if as, ok := r.unified(&t, "as", from); ok {
		r.as(&t, as)
	} else {
		r.refuse(t.Source, "the test does not say as whom: `as` is missing", wording.DidYouMean("", slices.Sorted(maps.Keys(r.people)), "people are"))
	}
	if request, ok := r.unified(&t, "request", from); ok {
		r.decode(request, &t.Request)
		r.positions(&t, "request", request)
	} else {
		r.refuse(t.Source, "the test has no request", "write request: {verb: …}")
	}
	if expect, ok := r.unified(&t, "expect", from); ok {
		r.decode(expect, &t.Expect)
		r.positions(&t, "expect", expect)
	}
	if len(r.Diags) == before {
		r.check(&t)
		r.suite.Tests = append(r.suite.Tests, t)
	}
}

// decode decodes a value by way of its JSON, which keeps parts of it as they are.
func (r *reader) decode(v cue.Value, into any) {
	text := r.json(v)
	if text == nil {
		return
	}
	if err := json.Unmarshal(text, into); err != nil {
		r.refuse(evaluation.Position(v), err.Error(), "")
	}
}

// unified returns a field of values, unified. `as` of a case replaces that of the test.
func (r *reader) unified(t *Test, name string, from []cue.Value) (v cue.Value, found bool) {
	for _, x := range from {
		x = x.LookupPath(cue.ParsePath(name))
		switch {
		case !x.Exists():
			continue
		case !found || name == "as":
			v = x
		default:
			v = v.Unify(x)
		}
		found = true
		if p := evaluation.Position(x); !p.IsZero() {
			t.At[name] = p
		}
	}
	if found {
		if err := v.Validate(cue.Concrete(true)); err != nil {
			r.conflict(t, name, err)
			return cue.Value{}, true
		}
	}
	return v, found
}

// conflict reports why a case cannot be unified with its test.
func (r *reader) conflict(t *Test, name string, err error) {
	for _, e := range cueerrors.Errors(err) {
		pos := t.Position(name)
		for _, p := range append([]token.Pos{e.Position()}, e.InputPositions()...) {
			if at, ok := bundles.Locate(p); ok {
				pos = at
				break
			}
		}
		r.refuse(pos, fmt.Sprintf("%s: %s: %s", t.Name, name, evaluation.MessageOf(e)), "")
	}
}

// positions records where the fields of a part are written.
func (r *reader) positions(t *Test, part string, v cue.Value) {
	if !v.Exists() {
		return // it has errors
	}
	for label, x := range evaluation.FieldsOf(v) {
		if p := evaluation.Position(x); !p.IsZero() {
			t.At[part+"."+label.Unquoted()] = p
		}
	}
}

// as reads the person of a test.
func (r *reader) as(t *Test, v cue.Value) {
	name, err := v.String()
	if err != nil {
		r.Decode(v, &t.As)
		return
	}
	person, ok := r.people[name]
	if !ok {
		r.refuse(t.Position("as"), fmt.Sprintf("the suite has no person %q", name), wording.DidYouMean(name, slices.Sorted(maps.Keys(r.people)), "people are"))
		return
	}
	t.As = person
}

// check reports what a test cannot mean.
func (r *reader) check(t *Test) {
	pattern := func(path, text string) {
		if _, err := regexp.Compile(text); err != nil {
			r.refuse(t.Position(path), fmt.Sprintf("%q is not a regular expression: %v", text, err), `a \ before a special character takes it literally`)
		}
	}
	for _, m := range t.Expect.Message {
		pattern("expect.message", m)
	}
	for _, f := range slices.Sorted(maps.Keys(t.Expect.Fields)) {
		pattern("expect.fields", t.Expect.Fields[f])
	}
	if w := t.Expect.Warnings; w != nil {
		for _, text := range *w {
			pattern("expect.warnings", text)
		}
	}
}

func (r *reader) invariant(name string, v cue.Value) {
	i := Invariant{Name: name, Source: evaluation.Position(v)}
	r.decode(v, &i)
	kinds := 0
	for _, is := range []bool{i.Only != nil, i.Never != nil, i.Always != nil} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		r.refuse(i.Source, "an invariant says exactly one of only, never and always", "write an invariant for each")
		return
	}
	r.suite.Invariants = append(r.suite.Invariants, i)
}
