package planning

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"stele.dev/stele/policy/plan"
)

// replayed returns a plan without findings, of which recorded requests are decided otherwise.
func replayed(r plan.Replay) Part {
	p := &plan.Plan{Cluster: "dev", From: plan.Side{Digest: oldDigest}, To: plan.Side{Digest: newDigest}, Replay: &r}
	p.Finish()
	return Part{Plan: p, Name: "dev"}
}

func TestWhatBecomesOfRecordedRequestsIsInTheSummary(t *testing.T) {
	for want, r := range map[string]plan.Replay{
		"🔴 2 recorded requests would be refused, which no change above explains":                    {Flips: []plan.Flip{{Refused: true, Count: 2}}},
		"🟠 1 recorded refusal would be allowed, which no change above explains":                     {Flips: []plan.Flip{{Count: 1}}},
		"🟡 3 values of recorded writes would be set in another way, which no change above explains": {Alterations: []plan.Alteration{{Count: 3, Objects: 1}}},
		"🟡 4 recorded requests could not be decided again":                                          {Undecided: 4},
	} {
		part := replayed(r)
		light, sentence, _ := strings.Cut(want, " ")
		comment := render(t, "markdown", []Part{part})
		assert.Contains(t, comment, "\n"+want+": see Replay\n")
		assert.Contains(t, comment, light+" no changes but of recorded requests\n")
		assert.NotContains(t, comment, "🟢")
		assert.NotContains(t, comment, "No changes but of form")
		text := strings.Join(strings.Fields(render(t, "text", []Part{part})), " ")
		assert.Contains(t, text, sentence+": see REPLAY")
		assert.NotContains(t, text, "No changes")
	}
}

func TestNoGrantOrDenyChangesOnlyIfAccessStaysAsItIs(t *testing.T) {
	const sentence = "No grant or deny changes"
	part := func(rule string) Part {
		p := &plan.Plan{Cluster: "dev", From: plan.Side{Digest: oldDigest}, To: plan.Side{Digest: newDigest}, Findings: []plan.Finding{{Rule: rule, Class: plan.Changes, Kind: "a.b", Path: "spec.x"}}}
		p.Finish()
		return Part{Plan: p, Name: "dev"}
	}
	assert.Contains(t, render(t, "text", []Part{part("BOUND_LOOSENED")}), sentence)
	for _, rule := range []string{"GRANT_ADDED", "WINDOW_WIDENED", "SENSITIVE_ADDED", "SENSITIVE_REMOVED", "DYNAMIC_CHANGED", "TEAM_ADDED", "TEAM_REMOVED", "TEAM_LIMITS_WIDENED", "VIEW_ADDED"} {
		assert.NotContains(t, render(t, "text", []Part{part(rule)}), sentence, rule)
	}
	flips := part("BOUND_LOOSENED")
	flips.Replay = &plan.Replay{Flips: []plan.Flip{{Count: 1}}}
	assert.NotContains(t, render(t, "text", []Part{flips}), sentence)
}
