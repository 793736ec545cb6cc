package fromcue_test

import (
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue"
	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/program"
)

// An asked is an evaluator with a fixed answer. It records the questions.
type asked struct {
	schemas.Evaluator
	answer    *schemas.Verdict // nil: CUE's answer
	questions []string
}

func (a *asked) Evaluate(expression string, value []byte) schemas.Verdict {
	a.questions = append(a.questions, string(value))
	if a.answer != nil {
		return *a.answer
	}
	return a.Evaluator.Evaluate(expression, value)
}

// asking returns a program with the evaluator a, for a schema in which only CUE can check spec.
func asking(t *testing.T, a *asked) *program.Program {
	t.Helper()
	v := cuecontext.New().CompileString(`#schema: {spec: {cpus: *1 | int & >0, memory: *(cpus * 2) | int, name: *"\(cpus)-fold" | string}, other?: int}`).LookupPath(cue.ParsePath("#schema"))
	node, diags := fromcue.Schema(v, func(p token.Pos) (schemas.Position, bool) {
		return schemas.Position{File: "schema.cue", Line: p.Line(), Column: p.Column()}, true
	})
	if diags != nil {
		t.Fatal(diags)
	}
	if len(node.Fallbacks()) == 0 {
		t.Fatal("CUE is not needed")
	}
	a.Evaluator = interpreter.New()
	p, err := program.New(node, program.EvaluateWith(a))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAProgramIsLoadedWithoutCUE(t *testing.T) {
	a := &asked{answer: &schemas.Verdict{Failed: "nobody is there"}}
	p := asking(t, a)
	if len(a.questions) != 0 {
		t.Errorf("asked was %q", a.questions)
	}
	object := map[string]any{}
	p.Prepare(object) // the form gives the value of a missing field
	if spec, _ := object["spec"].(map[string]any); spec["name"] != "1-fold" || spec["memory"] != int64(2) {
		t.Errorf("it is completed to %v", object)
	}
}

func TestAProgramAsksItsEvaluator(t *testing.T) {
	a := &asked{}
	p := asking(t, a)
	object := map[string]any{"spec": map[string]any{"cpus": int64(3)}, "other": int64(1)}
	if _, changed, err := p.TryPrepare(object); err != nil || !changed || object["spec"].(map[string]any)["memory"] != int64(6) {
		t.Errorf("it is completed to %v, %v", object, err)
	}
	if errs := p.Validate(object); len(errs) > 0 {
		t.Error(errs)
	}
	// The value as it came, the completed value, and the validated value.
	if len(a.questions) != 3 {
		t.Errorf("asked was %q", a.questions)
	}
}

func TestWhatNobodyCouldBeAskedAboutIsInvalid(t *testing.T) {
	for _, answer := range []schemas.Verdict{
		{Failed: "nobody is there"},
		{}, // an empty answer
	} {
		p := asking(t, &asked{answer: &answer})
		object := map[string]any{"spec": map[string]any{"cpus": int64(3)}}
		if _, changed, err := p.TryPrepare(object); err == nil || changed || !strings.Contains(err.Detail, "could not be checked") || err.Field != "spec" {
			t.Errorf("it is completed to %v, %v", object, err)
		}
		if errs := p.Validate(object); len(errs) != 1 || !strings.Contains(errs[0].Detail, "could not be checked") {
			t.Error(errs)
		}
	}
}

func TestAValueThatIsTooLargeIsNotAskedAbout(t *testing.T) {
	a := &asked{}
	p := asking(t, a)
	object := map[string]any{"spec": map[string]any{"name": strings.Repeat("x", 200_000)}}
	if errs := p.Validate(object); len(errs) != 1 || !strings.Contains(errs[0].Detail, "bytes long") || len(a.questions) > 0 {
		t.Error(errs)
	}
}
