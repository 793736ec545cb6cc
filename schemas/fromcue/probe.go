package fromcue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/join"
	"stele.dev/stele/schemas/fromcue/verify"
	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/samples"
)

// A claim is what the compiler concluded about a struct. It is compared with CUE.
type claim struct {
	value cue.Value
	parts int // number of struct literals that contribute
	at    *place
	order int // index of the struct in the order of compilation

	written bool // of a union: its arms are those of the syntax, without what closes them
}

// inOrder returns the structs of claims in the order of compilation.
func inOrder(claims map[*schemas.Struct]claim) []*schemas.Struct {
	return slices.SortedFunc(maps.Keys(claims), func(a, b *schemas.Struct) int { return cmp.Compare(claims[a].order, claims[b].order) })
}

// probe unifies the schema with examples to learn which fields its structs admit. The merged fields are
// no proof: if one conjunct declares a field and another is closed without it, the field exists but can
// never be set. Under some conjuncts CUE also forgets that a struct is closed.
//
// An example with every declared field must be accepted. An example with an unknown field in each struct
// shows by its errors which structs are closed. But one error can hide others: CUE does not report
// unknown fields of a struct that is invalid inside, and does not always say why an alternative fails.
// So probe asks again with only the structs that seem open, until CUE rejects nothing, and finally asks
// one struct at a time.
func (c *Compiler) probe(v cue.Value, n *schemas.Node, at *place) {
	before := len(c.forced)
	if n.Fallback != nil {
		return // the root is a fallback
	}
	reachable := make(map[*schemas.Struct]bool)
	eachStruct(n, func(s *schemas.Struct) { reachable[s] = true })
	for _, s := range inOrder(c.claims) {
		claim := c.claims[s]
		if !reachable[s] {
			continue // a fallback
		}
		// Examples cannot show where the patterns of several conjuncts overlap.
		if key, ok := samples.UnknownKey(s); ok && claim.parts > 1 && len(s.Patterns) > 0 && !samples.AdmitsEveryKey(s) && !claim.value.Allows(cue.Str(key)) {
			c.refusePatterns(claim.at)
		}
	}
	if len(c.diags) > 0 || len(c.forced) > before {
		return
	}
	if n.Union != nil {
		c.probeArms(n)
		return
	}
	if c.probeKnown(v, n, at); len(c.diags) > 0 || len(c.forced) > before {
		return
	}
	c.probeArms(n)
	defer c.probeRelated()
	claims := make(map[*schemas.Struct]claim)
	eachStruct(n, func(s *schemas.Struct) { claims[s] = c.claims[s] })
	open, skipped := c.probeUnknown(v, n)
	for _, s := range inOrder(claims) {
		claim := claims[s]
		if open, ok := c.settled[s]; ok {
			s.Open = open
			continue
		}
		if samples.AdmitsEveryKey(s) {
			continue // every key is known
		}
		key, ok := samples.UnknownKey(s)
		if !ok {
			c.force(claim.at, "patterns of keys for which no counterexample was found")
			continue
		}
		s.Open = open[s]
		if skipped[s] {
			s.Open = claim.value.Allows(cue.Str(key))
		}
		if !s.Open && claim.parts > 1 && len(s.Patterns) > 0 {
			c.refusePatterns(claim.at)
		}
	}
	for _, s := range inOrder(claims) {
		if !s.Open && admitsNoField(s) {
			c.refuse(&place{path: claims[s].at.field(s.Fields[0].Name, schemas.Optional).path, source: s.Fields[0].Schema.Source}, nil, neverSet, neverSetHint)
		}
	}
}

// admitsNoField reports whether another part of a struct is closed to all fields that it declares, which is a mistake.
func admitsNoField(s *schemas.Struct) bool {
	return len(s.Fields) > 0 && len(s.Patterns) == 0 && !slices.ContainsFunc(s.Fields, func(f schemas.Field) bool {
		return f.Schema.Message != schemas.NeverSet || !f.Schema.Forbidden()
	})
}

// probeArms checks the unions in n. An arm taken out of its union forgets what closes it. So the result
// for the arm is compared with the result inside the union.
func (c *Compiler) probeArms(n *schemas.Node) {
	visitOuter(n, func(u *schemas.Node) {
		claim, ok := c.unions[u]
		if !ok {
			return
		}
		settle := func(s *schemas.Struct) {
			if key, ok := samples.UnknownKey(s); ok && !samples.AdmitsEveryKey(s) && c.claims[s].value.Exists() {
				s.Open = c.claims[s].value.Allows(cue.Str(key))
			}
		}
		if u.Union != nil {
			for i := range u.Union.Arms {
				visitStructs(u.Union.Arms[i].Struct, settle)
				if claim.written {
					c.probeArm(claim.value, u.Union.Arms[i].Struct)
				}
			}
			u.Struct = join.Arms(u.Union)
		} else {
			eachStruct(u, settle)
		}
		if value, how := verify.Disagreement(claim.value, u, 100, 30); how != "" {
			c.force(claim.at, "alternatives of which CUE makes something else than they say, as for "+value)
		}
	})
}

// probeArm asks CUE which structs in an arm are closed within the union.
func (c *Compiler) probeArm(union cue.Value, arm *schemas.Struct) {
	n := &schemas.Node{Kinds: schemas.StructKind, Struct: arm}
	known := exampler{c: c}
	if _, err := known.refused(union, n); err != nil {
		return
	}
	open, skipped := c.probeUnknown(union, n)
	eachStruct(n, func(s *schemas.Struct) {
		if _, ok := c.settled[s]; !ok && !skipped[s] && !samples.AdmitsEveryKey(s) {
			s.Open = open[s]
		}
	})
}

// visitOuter calls each for n and the nodes in it, except those inside fallbacks and unions.
func visitOuter(n *schemas.Node, each func(*schemas.Node)) {
	if n == nil || n.Fallback != nil {
		return
	}
	if each(n); n.Union != nil {
		return
	}
	if n.List != nil {
		for _, item := range n.List.Each() {
			visitOuter(item, each)
		}
	}
	if n.Struct != nil {
		for _, f := range n.Struct.Fields {
			visitOuter(f.Schema, each)
		}
		for _, p := range n.Struct.Patterns {
			visitOuter(p.Value, each)
		}
	}
}

// visitStructs calls each for s and all structs in it.
func visitStructs(s *schemas.Struct, each func(*schemas.Struct)) {
	each(s)
	s.Visit("", func(_ string, n *schemas.Node) {
		if n.Struct != nil {
			each(n.Struct)
		}
	})
}

// force marks the struct at a place to be left to CUE in the next round.
func (c *Compiler) force(at *place, message string) {
	for at.passing {
		at = at.parent
	}
	if _, ok := c.forced[at.path]; !ok {
		c.forced[at.path] = reason{message, at.source}
	}
}

// probeUnknown returns the structs that accept an unknown field, and the structs that no example can
// contain.
func (c *Compiler) probeUnknown(v cue.Value, n *schemas.Node) (open, skipped map[*schemas.Struct]bool) {
	open = make(map[*schemas.Struct]bool)
	eachStruct(n, func(s *schemas.Struct) { open[s] = true })
	for {
		e := exampler{c: c, ask: open}
		refused, err := e.refused(v, n)
		if err == nil {
			return open, e.skipped
		}
		if len(refused) == 0 {
			for s := range open {
				one := exampler{c: c, ask: map[*schemas.Struct]bool{s: true}}
				// Without the unknown field the example is accepted, as checked before.
				if _, err := one.refused(v, n); err != nil {
					refused = append(refused, s)
				}
			}
			for _, s := range refused {
				delete(open, s)
			}
			return open, e.skipped
		}
		for _, s := range refused {
			delete(open, s)
		}
	}
}

// eachStruct calls visit for every struct in n, except those inside fallbacks and unions.
func eachStruct(n *schemas.Node, visit func(*schemas.Struct)) {
	visitOuter(n, func(n *schemas.Node) {
		if n.Struct != nil && n.Union == nil {
			visit(n.Struct)
		}
	})
}

func (c *Compiler) refusePatterns(at *place) {
	c.force(at, "a pattern in a closed struct that is made of several parts")
}

// probeKnown forbids optional fields that are declared but never admitted, and rejects others that are not admitted.
func (c *Compiler) probeKnown(v cue.Value, n *schemas.Node, at *place) {
	before := len(c.diags)
	for c.probeFields(v, n, at) {
		c.diags = c.diags[:before] // without these fields, others may be admitted
	}
}

// probeFields asks CUE about an example with all fields. It reports whether it has forbidden some of them.
func (c *Compiler) probeFields(v cue.Value, n *schemas.Node, at *place) (more bool) {
	e := exampler{c: c, fields: make(map[string]*schemas.Field)}
	unified := v.Unify(c.scratch.BuildExpr(e.node(n)))
	for _, err := range errors.Errors(unified.Validate()) {
		where := &place{path: strings.Join(relative(err.Path(), v), "."), source: at.source}
		for _, p := range err.InputPositions() {
			if pos, ok := c.locate(p); ok {
				where.source = pos
				break
			}
		}
		format, args := err.Msg()
		if format == interpreter.FieldNotAllowed {
			if f := e.fields[joined(relative(err.Path(), v))]; f != nil && f.Presence == schemas.Optional {
				forbid(f.Schema, schemas.NeverSet, f.Schema.Doc)
				more = true
				continue
			}
			if c.widen() {
				return false
			}
			c.refuse(where, nil, neverSet, neverSetHint)
			continue
		}
		if c.widen() {
			return false
		}
		c.refuse(where, nil, "CUE refuses an example made from the schema: "+fmt.Sprintf(format, args...), "")
	}
	return more
}

// widen leaves the unions to CUE that other parts narrow, and reports whether there are any: CUE may make something else of them.
func (c *Compiler) widen() bool {
	for _, at := range c.narrowed {
		c.force(at, "a union of structs that CUE takes for equal, or with a default")
	}
	return len(c.narrowed) > 0
}

// relative returns the path of an error relative to v.
func relative(path []string, v cue.Value) []string {
	if n := len(v.Path().Selectors()); n <= len(path) {
		path = path[n:]
	}
	plain := make([]string, len(path))
	for i, label := range path {
		plain[i] = label
		if s, err := strconv.Unquote(label); err == nil {
			plain[i] = s
		}
	}
	return plain
}

// joined returns a path as a map key.
func joined(path []string) string { return strings.Join(path, "\x00") }

// An exampler builds examples of a schema as CUE syntax.
type exampler struct {
	c       *Compiler
	ask     map[*schemas.Struct]bool   // structs that get an unknown field
	path    []string                   // the path to the value being built
	unknown map[string]*schemas.Struct // structs by the path to their unknown field
	skipped map[*schemas.Struct]bool   // structs that no example can contain
	fields  map[string]*schemas.Field  // fields by their path, if it is not nil
}

// refused unifies an example with v. It returns the structs that reject their unknown field, and CUE's
// error.
func (e *exampler) refused(v cue.Value, n *schemas.Node) ([]*schemas.Struct, error) {
	err := v.Unify(e.c.scratch.BuildExpr(e.node(n))).Validate()
	var refused []*schemas.Struct
	for _, err := range errors.Errors(err) {
		if format, _ := err.Msg(); format != interpreter.FieldNotAllowed {
			continue
		}
		if s := e.unknown[joined(relative(err.Path(), v))]; s != nil {
			refused = append(refused, s)
		}
	}
	return refused, err
}

// top returns an example that admits anything.
func top() ast.Expr { return ast.NewIdent("_") }

// exampleOf returns an example of the value of a label.
func (e *exampler) exampleOf(label string, n *schemas.Node) ast.Expr {
	e.path = append(e.path, label)
	defer func() { e.path = e.path[:len(e.path)-1] }()
	return e.node(n)
}

// node returns an example of n, or nil if n has nothing to probe.
func (e *exampler) node(n *schemas.Node) ast.Expr {
	if e.unknown == nil {
		e.unknown = make(map[string]*schemas.Struct)
	}
	switch {
	case n.Fallback != nil, n.Union != nil:
		return nil // unions and fallbacks make no claim here; arms are probed one by one
	case n.Struct != nil:
		if n.List != nil { // an example has one kind
			for _, item := range n.List.Each() {
				e.skip(item)
			}
		}
		return e.structOf(n.Struct)
	case n.List != nil && len(n.List.Prefix) > 0:
		return e.tuple(n.List)
	case n.List != nil && n.List.Items != nil:
		return e.list(n.List)
	}
	return nil
}

func (e *exampler) list(l *schemas.List) ast.Expr {
	item := e.exampleOf("0", l.Items)
	if item == nil {
		return nil
	}
	count := 1
	if l.MinItems != nil {
		count = max(count, l.MinItems.Count)
	}
	if l.MaxItems != nil && l.MaxItems.Count < count {
		e.skip(l.Items)
		return nil
	}
	items := make([]ast.Expr, count)
	items[0] = item
	for i := range items[1:] {
		items[i+1] = top()
	}
	return ast.NewList(items...)
}

// tuple returns an example of a list whose items differ by index. It has all items of the prefix, and
// one more if the list has a rest.
func (e *exampler) tuple(l *schemas.List) ast.Expr {
	count := max(len(l.Prefix), l.MinItems.Count)
	if l.HasRest() {
		count = max(count, len(l.Prefix)+1)
	}
	items := make([]ast.Expr, count)
	for i := range items {
		items[i] = top()
		of := l.Rest
		if i < len(l.Prefix) {
			of = l.Prefix[i]
		}
		if of == nil || i > len(l.Prefix) {
			continue
		}
		if x := e.exampleOf(strconv.Itoa(i), of); x != nil {
			items[i] = x
		}
	}
	return ast.NewList(items...)
}

// skip marks the structs in n as out of reach of examples.
func (e *exampler) skip(n *schemas.Node) { eachStruct(n, e.skipOne) }

func (e *exampler) skipOne(s *schemas.Struct) {
	if e.skipped == nil {
		e.skipped = make(map[*schemas.Struct]bool)
	}
	e.skipped[s] = true
}

func (e *exampler) structOf(s *schemas.Struct) ast.Expr {
	example := &ast.StructLit{}
	add := func(name string, value ast.Expr) {
		if value == nil {
			value = top()
		}
		example.Elts = append(example.Elts, &ast.Field{Label: ast.NewString(name), Value: value})
	}
	for i := range s.Fields {
		f := &s.Fields[i]
		if f.Schema.Forbidden() {
			continue
		}
		if s.MaxFields != nil && f.Presence == schemas.Optional {
			e.skip(f.Schema) // an example with all fields may have too many
			continue
		}
		if e.fields != nil {
			e.fields[joined(append(e.path, f.Name))] = f
		}
		add(f.Name, e.exampleOf(f.Name, f.Schema))
	}
	for _, p := range s.Patterns {
		if p.Value.Forbidden() {
			continue
		}
		if s.MaxFields != nil {
			e.skip(p.Value)
			continue
		}
		key, ok := samples.Key(p.Key, s)
		if !ok {
			e.c.force(e.c.claims[s].at, "a pattern of keys for which no example was found")
			continue
		}
		add(key, e.exampleOf(key, p.Value))
	}
	if s.MaxFields != nil {
		e.skipOne(s)
	} else if _, ok := e.c.settled[s]; e.ask[s] && !ok {
		if key, ok := samples.UnknownKey(s); ok {
			e.unknown[joined(append(e.path, key))] = s
			add(key, top())
		}
	}
	return example
}

// structEscapes reports whether a reference in s leads outside the innermost known structs.
func structEscapes(s *schemas.Struct, known int) bool {
	return slices.ContainsFunc(s.Fields, func(f schemas.Field) bool { return nodeEscapes(f.Schema, known) }) ||
		slices.ContainsFunc(s.Patterns, func(p schemas.KeyPattern) bool { return nodeEscapes(p.Value, known) })
}

func nodeEscapes(n *schemas.Node, known int) bool {
	switch {
	case n == nil:
		return false
	case n.From != nil:
		return slices.ContainsFunc(n.From.Parts, func(p schemas.Part) bool { return p.Up > known })
	case n.List != nil && slices.ContainsFunc(n.List.Each(), func(item *schemas.Node) bool { return nodeEscapes(item, known) }):
		return true
	}
	return n.Struct != nil && structEscapes(n.Struct, known+1)
}
