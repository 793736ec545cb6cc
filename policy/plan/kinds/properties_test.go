package kinds_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/kinds"
	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
)

var cuePath = cue.ParsePath("out")

// accepts reports whether a program accepts an object as a new one, if unknown fields are refused.
func accepts(t *testing.T, p *program.Program, object any) bool {
	t.Helper()
	m, ok := jsonvalue.Clone(object).(map[string]any)
	if !ok {
		return false
	}
	unknown, _ := p.Prepare(m)
	return len(unknown) == 0 && len(p.Validate(m)) == 0
}

// cueAccepts asks CUE itself.
func cueAccepts(t *testing.T, spec string, object []byte) bool {
	t.Helper()
	text := "import (\n\"strings\"\n\"list\"\n\"net\"\n\"time\"\n)\n_use: [strings.MinRunes(0), list.MinItems(0), net.IP, time.Time]\n#S: {spec: {\n" + spec + "\n}, status?: {...}}\nout: #S"
	v := cuecontext.New().CompileString(text)
	if v.Err() != nil {
		t.Fatal(text, v.Err())
	}
	return interpreter.Ask(v.LookupPath(cuePath), object).Valid()
}

// Each counterexample is accepted by one side and refused by the other: by the programs, and by CUE.
func TestCounterexamples(t *testing.T) {
	from, to := ofRows(t)
	seen := 0
	for _, f := range compare(t, from, to) {
		if f.Counterexample == nil {
			if f.Evidence == plan.Shown {
				t.Errorf("%s: shown by nothing", inLine(&f))
			}
			continue
		}
		if f.Counterexample.Object == nil || strings.HasPrefix(f.Rule, "VALIDATION_") {
			continue
		}
		seen++
		object, err := jsonvalue.Decode(f.Counterexample.Object)
		if err != nil {
			t.Fatal(err)
		}
		var i int
		fmt.Sscanf(f.Kind, "r%03ds.example.com", &i)
		was, is := versionOf(from, f.Kind), versionOf(to, f.Kind)
		said := func(ok bool, text string) bool { return ok == (text == "accepted") }
		if !said(accepts(t, was.Program, object), f.Counterexample.Before) || !said(accepts(t, is.Program, object), f.Counterexample.After) || f.Counterexample.Before == f.Counterexample.After {
			t.Errorf("%s: the programs say something else of %s", inLine(&f), f.Counterexample.Object)
		}
		if !said(cueAccepts(t, rows[i].before, f.Counterexample.Object), f.Counterexample.Before) || !said(cueAccepts(t, rows[i].after, f.Counterexample.Object), f.Counterexample.After) {
			t.Errorf("%s: CUE says something else of %s", inLine(&f), f.Counterexample.Object)
		}
	}
	if seen < 10 {
		t.Errorf("only %d counterexamples", seen)
	}
}

func both(t testing.TB, rows []row) (from, to *policy.Policy) {
	t.Helper()
	var was, is strings.Builder
	for i, r := range rows {
		was.WriteString(kind(fmt.Sprintf("r%03ds", i), r.before, r.was))
		is.WriteString(kind(fmt.Sprintf("r%03ds", i), r.after, r.is))
	}
	return compiled(t, was.String(), nil), compiled(t, is.String(), nil)
}

var compiledRows [2]*policy.Policy

// ofRows returns the policies of the table, which are compiled once.
func ofRows(t testing.TB) (from, to *policy.Policy) {
	t.Helper()
	if compiledRows[0] == nil {
		compiledRows[0], compiledRows[1] = both(t, rows)
	}
	return compiledRows[0], compiledRows[1]
}

func versionOf(p *policy.Policy, resource string) *policy.Version {
	for _, k := range p.Kinds() {
		if k.Resource() == resource {
			return k.Storage()
		}
	}
	return nil
}

// A mutator generates two schemas that differ in some places.
type mutator struct{ *rand.Rand }

func (g mutator) of(options ...string) string { return options[g.IntN(len(options))] }

// scalar returns a type of its own class, so that mutations are often comparable.
func (g mutator) scalar(class int) string {
	switch class {
	case 0:
		return fmt.Sprintf("int & >=%d & <=%d", g.IntN(4), 4+g.IntN(4))
	case 1:
		return g.of("int", "int & >0", "int & >=1", "number & <=5", "int & !=3", "1 | 2 | 3", "1 | 3", "int & <5 | int & >7")
	case 2:
		return g.of(`"x" | "y" | "z"`, `"z" | "y" | "x"`, `"x" | "y"`, `=~"^[xyz]$"`, `=~"^[xy]$"`, `=~"^x"`, `=~"^[a-z]+$" & strings.MaxRunes(3)`, `string`, `string & !="x"`, `=~"^x" | =~"y$"`)
	case 3:
		return g.of("*1 | int", "*2 | int", "*1 | int & <9", "bool", "*true | bool", "string & net.IP", "string & net.IPv4", "null | int")
	}
	return g.of("bool", "int", "string")
}

func (g mutator) value(depth int) (a, b string) {
	if depth == 0 || g.IntN(3) == 0 {
		class := g.IntN(5)
		a = g.scalar(class)
		if b = a; g.IntN(6) == 0 {
			b = g.scalar(class)
		}
		return a, b
	}
	switch g.IntN(5) {
	case 0:
		a, b = g.value(0)
		more, most := "", ""
		if g.IntN(6) == 0 {
			more = " & list.MaxItems(3)"
		}
		if most = more; g.IntN(6) == 0 {
			most = " & list.MaxItems(2)"
		}
		return "[..." + a + "]" + more, "[..." + b + "]" + most
	case 1:
		a, b = g.value(depth - 1)
		key := g.of("string", `=~"^[a-z]+$"`)
		return "{[" + key + "]: " + a + "}", "{[" + key + "]: " + b + "}"
	case 2:
		x, y := g.value(depth - 1)
		u, v := g.value(depth - 1)
		a = fmt.Sprintf(`{type!: "p", n?: %s} | {type!: "q", m?: %s}`, x, u)
		b = fmt.Sprintf(`{type!: "p", n?: %s} | {type!: "q", m?: %s}`, y, v)
		if g.IntN(4) == 0 {
			b += ` | {type!: "r"}`
		}
		return a, b
	}
	return g.structure(depth)
}

func (g mutator) structure(depth int) (a, b string) {
	var was, is []string
	for _, name := range []string{"a", "b", "c"}[:1+g.IntN(3)] {
		x, y := g.value(depth - 1)
		mark := g.of("", "?", "?", "!")
		other := mark
		if g.IntN(24) == 0 {
			other = g.of("", "?", "!")
		}
		if g.IntN(40) != 0 {
			was = append(was, name+mark+": "+x)
		}
		if g.IntN(40) != 0 {
			is = append(is, name+other+": "+y)
		}
	}
	if g.IntN(8) == 0 {
		lo, hi := "m?: int, n?: int & >=m", "m?: int, n?: int & >=m"
		if g.IntN(2) == 0 {
			hi = "m?: int, n?: int & >m"
		}
		was, is = append(was, lo), append(is, hi)
	}
	if g.IntN(6) == 0 {
		limit := g.IntN(3)
		condition := func(n int) string { return fmt.Sprintf("k: int, if k > %d {z!: string}", n) }
		was, is = append(was, condition(limit)), append(is, condition(limit+g.IntN(2)))
	}
	if g.IntN(30) == 0 {
		was = append(was, "...")
	}
	if g.IntN(30) == 0 {
		is = append(is, "...")
	}
	return "{" + strings.Join(was, ", ") + "}", "{" + strings.Join(is, ", ") + "}"
}

var rounds = flag.Uint64("kinds.rounds", 1, "how many sets of random schemas TestFindingsHoldForObjects compares")

// What Compare says of random pairs of schemas holds for generated objects.
func TestFindingsHoldForObjects(t *testing.T) {
	for seed := range *rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { findingsHold(t, 31+seed) })
	}
}

func findingsHold(t *testing.T, seed uint64) {
	g := mutator{rand.New(rand.NewPCG(29, seed))}
	const n = 60
	var pairs []row
	for range n {
		a, b := g.structure(1 + g.IntN(3))
		pairs = append(pairs, row{before: "v?: " + a, after: "v?: " + b})
	}
	from, to := both(t, pairs)
	by := map[string][]plan.Finding{}
	for _, f := range compare(t, from, to) {
		by[f.Kind] = append(by[f.Kind], f)
	}
	outcomes := map[string]int{}
	for i, p := range pairs {
		resource := fmt.Sprintf("r%03ds.example.com", i)
		was, is := versionOf(from, resource), versionOf(to, resource)
		loses, gains, differs := false, false, false
		for _, f := range by[resource] {
			switch f.Class {
			case plan.Widens:
				gains = true
			case plan.Narrows:
				loses = true
			case plan.Changes, plan.Breaks: // a field that is gone need not be set
				loses, gains = true, true
			}
			differs = differs || f.Class != plan.Looks
		}
		outcomes[fmt.Sprintf("loses %t, gains %t", loses, gains)]++
		maker := samples.Maker{Rand: rand.New(rand.NewPCG(1, uint64(i))), Full: 60}
		reallyLoses, reallyGains := false, false
		for j := range 300 {
			text, err := json.Marshal(maker.Near([]*policy.Version{was, is}[j%2].Schema))
			if err != nil {
				continue
			}
			object, err := jsonvalue.Decode(text)
			if err != nil {
				t.Fatal(err)
			}
			a, b := accepts(t, was.Program, object), accepts(t, is.Program, object)
			if a && !b && !loses || b && !a && !gains {
				t.Errorf("%s was %t, is %t:\n%s\n%s\n%v", text, a, b, p.before, p.after, lines(by[resource]))
				break
			}
			reallyLoses, reallyGains = reallyLoses || a && !b, reallyGains || b && !a
		}
		if reallyLoses {
			outcomes["an object is refused"]++
		}
		if reallyGains {
			outcomes["an object is accepted"]++
		}
	}
	for _, outcome := range []string{"loses false, gains false", "loses true, gains false", "loses false, gains true", "an object is refused", "an object is accepted"} {
		if outcomes[outcome] < 4 && seed == 31 {
			t.Errorf("only %d of %d pairs: %s (%v)", outcomes[outcome], n, outcome, outcomes)
		}
	}
}

func lines(found []plan.Finding) (all []string) {
	for _, f := range found {
		all = append(all, inLine(&f))
	}
	return all
}

// A policy and itself do not differ, and neither do two compilations.
func TestThePlatformAgainstItself(t *testing.T) {
	for _, cluster := range []string{"clusters/dev", "clusters/prod-eu"} {
		source, err := bundles.ReadFS(os.DirFS("../../../examples/platform"), cluster)
		if err != nil {
			t.Fatal(err)
		}
		from, to := load(t, source), load(t, source)
		if found := compare(t, from, to); len(found) > 0 {
			t.Errorf("%s: %v", cluster, lines(found))
		}
		sides := plan.Sides{From: from, To: to}
		if try := kinds.KindsToTry(sides); len(try) > 0 {
			t.Errorf("%s: kinds to try: %v", cluster, try)
		}
		if affected := kinds.Affected(sides); len(affected) > 0 {
			t.Errorf("%s: affected: %v", cluster, affected)
		}
	}
}

func TestFindingsAreAlwaysTheSame(t *testing.T) {
	from, to := ofRows(t)
	want := compare(t, from, to)
	for range 100 {
		if got := compare(t, from, to); !reflect.DeepEqual(got, want) {
			t.Fatal("another comparison of the same policies finds something else")
		}
	}
}

// KindsToTry leaves out no kind of which a finding says that objects are decided or shown otherwise, and Affected names
// the fields whose defaults or values differ.
func TestKindsToTryAndAffectedFields(t *testing.T) {
	from, to := ofRows(t)
	sides := plan.Sides{From: from, To: to}
	try := map[string]bool{}
	for _, r := range kinds.KindsToTry(sides) {
		try[r.String()] = true
	}
	affected := map[string]kinds.ChangedField{}
	for r, fields := range kinds.Affected(sides) {
		for _, f := range fields {
			affected[r.String()+" "+f.Path] = f
		}
	}
	values := []string{"BOUND_TIGHTENED", "BOUND_LOOSENED", "PATTERN_CHANGED", "ENUM_VALUE_REMOVED", "ENUM_VALUE_ADDED", "DEFAULT_ADDED", "DEFAULT_CHANGED", "DEFAULT_REMOVED", "FIELD_REMOVED", "FIELD_TYPE_CHANGED"}
	for _, f := range compare(t, from, to) {
		if f.Class != plan.Looks && f.Class != plan.Changes && !strings.HasPrefix(f.Rule, "SUBRESOURCE") && !strings.HasPrefix(f.Rule, "SELECTABLE") && !try[f.Kind] {
			t.Errorf("%s: the kind is not tried", inLine(&f))
		}
		if _, ok := affected[f.Kind+" "+f.Path]; slices.Contains(values, f.Rule) && !ok && !strings.HasSuffix(f.Path, "[*]") && !strings.HasSuffix(f.Path, "]") {
			t.Errorf("%s: the field is not affected", inLine(&f))
		}
	}
	i := slices.IndexFunc(rows, func(r row) bool { return r.name == "default changed" })
	f := affected[fmt.Sprintf("r%03ds.example.com spec.a", i)]
	if string(f.OldDefault) != `"dev"` || string(f.NewDefault) != `"prod"` || !f.DefaultChanged() || f.ValuesChanged() {
		t.Errorf("%+v", f)
	}
	if in, ok := kinds.Admits(f.After, "dev"); !in || !ok {
		t.Error("dev is admitted")
	}
	if in, ok := kinds.Admits(f.After, "test"); in || !ok {
		t.Error("test is not admitted")
	}
}

func TestNoPolicyInForce(t *testing.T) {
	to := compiled(t, kind("gauges", "a: int", ""), nil)
	if found := compare(t, nil, to); len(found) > 0 {
		t.Errorf("%v", lines(found))
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := kinds.Compare(canceled, plan.Sides{From: to, To: to}); err == nil {
		t.Error("no error when canceled")
	}
}

// Comparing 200 kinds of which each differs takes far less than compiling them.
func BenchmarkCompare200Kinds(b *testing.B) {
	var was, is strings.Builder
	for i := range 200 {
		r := rows[i%len(rows)]
		was.WriteString(kind(fmt.Sprintf("r%03ds", i), r.before, r.was))
		is.WriteString(kind(fmt.Sprintf("r%03ds", i), r.after, r.is))
	}
	from, to := compiled(b, was.String(), nil), compiled(b, is.String(), nil)
	for b.Loop() {
		compare(b, from, to)
	}
}
