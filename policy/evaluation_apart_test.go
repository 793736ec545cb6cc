package policy_test

import (
	"strings"
	"testing"

	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/program"
)

// evaluators that cannot be reached, and count who asks them.
type unreachable struct{ asked int }

func (u *unreachable) Evaluate(string, []byte) schemas.Verdict {
	u.asked++
	return schemas.Verdict{Failed: "it cannot be reached"}
}

func TestNobodyIsAskedForAPolicyThatGoDecides(t *testing.T) {
	encoded, _ := quickstart(t).Form.Encode()
	u := &unreachable{}
	if _, err := probes.Load(encoded, program.EvaluateWith(u)); err != nil {
		t.Fatal(err)
	}
	if u.asked != 0 {
		t.Errorf("CUE was asked %d times", u.asked)
	}
}

// A replica that starts while nothing can be evaluated must start all the same.
func TestAPolicyLoadsThoughNothingCanBeEvaluated(t *testing.T) {
	compiled, diags := compile.Bundle(twoTeams(t, strings.NewReplacer("RULES", "", "BODY", "").Replace(
		strings.Replace(inCEL, "size", "cpus: *1 | int & >0, memory: *(cpus*2) | int, size", 1))))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	encoded, _ := compiled.Form.Encode()
	u := &unreachable{}
	if _, err := probes.Load(encoded, program.EvaluateWith(u)); err != nil {
		t.Error(err)
	}
	if u.asked == 0 {
		t.Error("CUE is not needed")
	}
}
