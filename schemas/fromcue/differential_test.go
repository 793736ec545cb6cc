package fromcue_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue"
	"stele.dev/stele/schemas/fromcue/verify"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
)

const (
	// tried is the number of seeds that are known to terminate. CUE does not return for some others;
	// `make fuzz` tries those.
	tried   = 4000
	objects = 12 // per schema
)

// TestMain collects garbage less often: CUE allocates much and keeps little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}

// FuzzClosuresAgreeWithCUE compares programs with CUE on random schemas and objects: both must give the
// same verdict, and the same result for accepted objects.
func FuzzClosuresAgreeWithCUE(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		differential(t, seed%tried, objects, seed/tried%2 == 1)
	})
}

var (
	from   = flag.Uint64("differential.from", 0, "seed of the first schema that TestClosuresAgreeWithCUE generates")
	rounds = flag.Uint64("differential.rounds", 300, "how many schemas it generates")
)

// TestClosuresAgreeWithCUE is the quick form of the fuzz test.
func TestClosuresAgreeWithCUE(t *testing.T) {
	outcomes := make(map[string]int)
	total, rounds := 0, *rounds
	if testing.Short() {
		rounds /= 10
	}
	for seed := *from; seed < *from+rounds; seed++ {
		for _, idioms := range []bool{false, true} {
			outcome := differential(t, seed, objects, idioms)
			if outcome == "" {
				continue
			}
			outcomes[outcome]++
			total++
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d schemas: %v %v", total, outcomes, verdicts)
	if compiled := outcomes[compiledOutcome]; compiled*100 < total*60 {
		t.Errorf("only %d of %d schemas compiled", compiled, total)
	}
}

var verdicts [2]int

const compiledOutcome = "compiled"

// expectedRefusals are the messages with which the compiler may reject a schema of the grammar.
var expectedRefusals = []string{
	"a union of structs",
	"a union of lists",
	"a list that can have no items",
	"an alternative that CUE takes for equal",
	"list.MinItems in one of several alternatives",
	"an alternative of type",
	"several patterns whose values are lists or structs",
	"a pattern in a closed struct that is made of several parts",
	"no counterexample was found",
	"a field that can never be set",
	"a default that is not plain data",
	"the default", // the default violates its own field
	"braces around",
	"which may be of many kinds",

	// The grammar lets fields depend on each other.
	"a reference to ",
	"a reference that cannot be followed",
	"a bound that is not a constant",
	"a comprehension",
	"a computed field name",
	"over values that are not constants",
	"the builtin len",

	// CUE's own errors: the grammar contradicts itself, sometimes in an optional field that only the
	// compiler checks.
	"conflicting values",
	"errors in empty disjunction",
	"incompatible",
	"out of bound",
	"unresolved disjunction",
	"undefined field",
	"required field missing",
	"invalid ",
	"cannot ",
}

// differential compares one schema with CUE on the given number of objects. It returns the result for
// the schema, or "" if CUE itself rejects it.
func differential(t *testing.T, seed uint64, objects int, idioms bool) string {
	g := &grammar{Maker: samples.Maker{Rand: rand.New(rand.NewPCG(seed, 0)), Unknown: 3, Keys: nil, Full: 0}, idioms: idioms}
	generated := g.schema()
	text := generated.text
	ctx := cuecontext.New()
	v := ctx.CompileString(text, cue.Filename("schema.cue"))
	schema := v.LookupPath(cue.ParsePath(generated.path))
	if v.Validate() != nil || schema.Validate() != nil {
		return ""
	}
	node, diags := fromcue.Schema(schema, generated.locate)
	if diags != nil {
		for _, expected := range expectedRefusals {
			if strings.Contains(diags.Error(), expected) {
				return expected
			}
		}
		t.Errorf("seed %d: refused: %v\n%s", seed, diags, text)
		return "unexpected"
	}
	program := reloaded(t, node)
	for range objects {
		object, _ := generated.sample().(map[string]any)
		if g.Chance(50) {
			object, _ = g.Witness(node).(map[string]any)
		}
		for range max(0, g.IntN(4)-1) {
			object, _ = g.Mutate(object).(map[string]any)
		}
		if object == nil {
			continue
		}
		if problem := compare(program, ctx, schema, object); problem != "" {
			t.Errorf("seed %d: %s\nobject: %s\nschema:\n%s", seed, problem, asJSON(object), text)
			return "mismatch"
		}
	}
	return compiledOutcome
}

// reloaded returns the program of the form after it was encoded as JSON and decoded.
func reloaded(t *testing.T, n *schemas.Node) *program.Program {
	t.Helper()
	text, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	var again schemas.Node
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	text2, err := json.Marshal(&again)
	if err != nil || string(text2) != string(text) {
		t.Fatalf("the form changes on its way through JSON:\n%s\n%s", text, text2)
	}
	p, err := program.New(&again)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// compare returns the difference between the program and CUE for the object, or "".
func compare(p *program.Program, ctx *cue.Context, schema cue.Value, object map[string]any) string {
	raw := jsonvalue.Clone(object).(map[string]any)
	accepted, result, cueErr := evaluate(ctx, schema, raw)
	errs := p.Validate(raw)
	if accepted && verify.PassedForStruct(errs) {
		return ""
	}
	if accepted != (len(errs) == 0) {
		return fmt.Sprintf("program says %v, CUE says %v", errs.ToAggregate(), cueErr)
	}
	prepared := jsonvalue.Clone(object).(map[string]any)
	unknown, changed := p.Prepare(prepared)
	if changed != !reflect.DeepEqual(prepared, raw) {
		return fmt.Sprintf("changed = %t, prepared: %s", changed, asJSON(prepared))
	}
	if again, changed := p.Prepare(jsonvalue.Clone(prepared).(map[string]any)); changed || again != nil {
		return fmt.Sprintf("preparing twice changes %v in %s", again, asJSON(prepared))
	}
	if accepted {
		verdicts[1]++
	} else {
		verdicts[0]++
	}
	if accepted {
		if unknown != nil {
			return fmt.Sprintf("unknown fields %v in an object that CUE accepts", unknown)
		}
		if errs := p.Validate(prepared); len(errs) > 0 {
			return fmt.Sprintf("CUE accepts it, and of the prepared %s the program says %v", asJSON(prepared), errs.ToAggregate())
		}
		if again, _, _ := evaluate(ctx, schema, result); !again && jsonvalue.PartOf(prepared, result) {
			result = prepared // CUE rejects its own result: a default contradicts the object
		}
		if !reflect.DeepEqual(prepared, result) {
			return fmt.Sprintf("prepared: %s, CUE: %s", asJSON(prepared), asJSON(result))
		}
	}
	accepted, result, cueErr = evaluate(ctx, schema, prepared)
	errs = p.Validate(prepared)
	if accepted && verify.PassedForStruct(errs) {
		return ""
	}
	if accepted != (len(errs) == 0) {
		return fmt.Sprintf("of the prepared %s the program says %v, CUE says %v", asJSON(prepared), errs.ToAggregate(), cueErr)
	}
	if again, _, _ := evaluate(ctx, schema, result); accepted && again && !reflect.DeepEqual(prepared, result) {
		return fmt.Sprintf("CUE completes the prepared %s to %s", asJSON(prepared), asJSON(result))
	}
	return ""
}

// evaluate validates and completes an object with CUE.
func evaluate(ctx *cue.Context, schema cue.Value, object map[string]any) (accepted bool, result map[string]any, err error) {
	data := ctx.CompileBytes([]byte(asJSON(object)))
	unified := schema.Unify(data)
	if err := unified.Validate(cue.Concrete(true), cue.Final()); err != nil {
		return false, nil, err
	}
	text, err := unified.MarshalJSON()
	if err != nil {
		return false, nil, err
	}
	v, err := jsonvalue.Decode(text)
	if err != nil {
		return false, nil, err
	}
	return true, jsonvalue.PlainNumbers(v).(map[string]any), nil
}

func asJSON(x any) string {
	text, err := json.Marshal(x)
	if err != nil {
		panic(err)
	}
	return string(text)
}
