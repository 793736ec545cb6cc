package planning

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"stele.dev/stele/policy/plan"
)

func partOf(findings ...plan.Finding) Part {
	p := &plan.Plan{Cluster: "dev", From: plan.Side{Digest: oldDigest}, To: plan.Side{Digest: newDigest}, Findings: findings}
	p.Finish()
	return Part{Plan: p, Name: "dev"}
}

func TestAllPartsOfARuleThatDifferAreNamed(t *testing.T) {
	lines := summary(partOf(
		plan.Finding{Class: plan.Changes, Rule: "MUTATION_CHANGED", Path: "a/mutate/b", Details: []string{`params.x: 1 → 2`, `order: 1 → 2`, "A sentence that explains."}},
		plan.Finding{Class: plan.Narrows, Rule: "RULE_ADDED", Path: "a/validate/c", After: "Deny", Details: []string{"a", "b", "c", "d", "e"}},
	))
	assert.ElementsMatch(t, []string{"a/mutate/b: changes objects in another way: x: 1 → 2, order: 1 → 2", "a/validate/c: is new: a, b, c, 2 more"}, lines)
}

func TestEachPartOfASentenceNamesItsField(t *testing.T) {
	lines := summary(partOf(
		plan.Finding{Class: plan.Breaks, Rule: "FIELD_REMOVED", Kind: "a.b.example", Path: "spec.x", With: "spec.u"},
		plan.Finding{Class: plan.Breaks, Rule: "FIELD_TYPE_CHANGED", Kind: "a.b.example", Path: "spec.u"},
	))
	assert.Equal(t, []string{"a: spec.u has another type; spec.x is removed"}, lines)
}

func TestStuckObjectsAreCountedFirstAndTheOthersToo(t *testing.T) {
	part := partOf(plan.Finding{Class: plan.Breaks, Rule: "BOUND_TIGHTENED", Kind: "a.b", Path: "spec.x", Objects: &plan.Objects{Stuck: 3, Violating: 17, Of: 20}})
	assert.Equal(t, "3 of 20 objects cannot be updated, 17 would be refused if created today", part.changes()[0].meets())
}

func TestARemovedFieldWithValuesNamesTheFlagThatThePushNeeds(t *testing.T) {
	removed := plan.Finding{Class: plan.Breaks, Rule: "FIELD_REMOVED", Kind: "a.b.example", Path: "spec.old", With: "spec.new", Objects: &plan.Objects{Differ: 2, Of: 2}}
	added := plan.Finding{Class: plan.Changes, Rule: "FIELD_ADDED", Kind: "a.b.example", Path: "spec.new", With: "spec.old"}
	const needs = "; the push needs --drop-fields: the next writes lose the values of spec.old"
	assert.Equal(t, []string{"a: spec.old is removed, spec.new is new: it looks like a rename, which copies no values" + needs}, summary(partOf(removed, added)))
	alternative := plan.Finding{Class: plan.Narrows, Rule: "ALTERNATIVE_REMOVED", Kind: "a.b.example", Path: "spec.new", Before: `type: "x"`}
	assert.Equal(t, []string{`a: spec.new loses the alternative type: "x"` + needs}, summary(partOf(removed, alternative)))
	removed.Objects.Differ = 0
	assert.NotContains(t, strings.Join(summary(partOf(removed, added)), ""), "--drop-fields")
}

func TestTextsOfAuthorsBeginNoLines(t *testing.T) {
	const forged = "\n\n!! a00000  GRANT_ADDED  nothing to see"
	f := plan.Finding{Class: plan.Narrows, Rule: "RULE_ADDED", Path: "a/validate/b", Before: "x" + forged, After: "y" + forged, Message: "m" + forged, Details: []string{"d" + forged}, Fix: []string{"f" + forged},
		Accepted: &plan.Acceptance{Reason: "r" + forged}}
	part := partOf(f)
	part.Notes = []string{"n" + forged}
	for line := range strings.Lines(render(t, "verbose", []Part{part})) {
		assert.False(t, strings.HasPrefix(strings.TrimSpace(line), "!! a00000"), line)
	}
}

// What ends the work of the server's controllers, or gives all rights, comes before a bound that more objects meet.
func TestTheMostDangerousChangesComeFirst(t *testing.T) {
	part := partOf(
		plan.Finding{Class: plan.Breaks, Rule: "BOUND_TIGHTENED", Kind: "a.b.example", Path: "spec.x", Objects: &plan.Objects{Violating: 1, Of: 1}},
		plan.Finding{Class: plan.Breaks, Rule: "DENY_MEETS_CONTROLLERS", Path: "a/denies/b", Subject: "serviceaccount:kube-system/namespace-controller"},
		plan.Finding{Class: plan.Widens, Rule: "ESCALATION", Path: "a/bindings/c", Subject: "user:eve", After: "read secrets", Message: "User eve may now get rights that no binding gives them."},
	)
	var order []string
	for _, c := range part.changes() {
		order = append(order, c.about())
	}
	assert.ElementsMatch(t, []string{"a/denies/b", "a/bindings/c"}, order[:2])
	assert.Equal(t, "a", order[2])
	comment := render(t, "markdown", []Part{part})
	assert.Less(t, strings.Index(comment, "a/bindings/c"), strings.Index(comment, "spec.x"))
}
