package pushing

import (
	"strings"
	"testing"

	"stele.dev/stele/policy/plan"
)

// A push is refused if another policy came in force after it began: the plan is then about that one.
func TestAPlanOfOtherSidesIsRefused(t *testing.T) {
	of := func(digest string) *plan.Plan { return &plan.Plan{From: plan.Side{Digest: digest}} }
	for _, c := range []struct {
		inForce  string
		reviewed *plan.Plan
		want     string
	}{
		{"a", nil, ""},
		{"a", of("a"), ""},
		{"b", of("a"), "the plan is about replacing policy a; make a plan again"},
	} {
		err := new(planFlags).sameSides(of(c.inForce), c.reviewed)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
