package plan_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"stele.dev/stele/policy/plan"
)

func findings() *plan.Plan {
	p := &plan.Plan{Findings: []plan.Finding{
		{Rule: "FIELD_REMOVED", Class: plan.Breaks, Kind: "widgets.example.com", Path: "spec.size"},
		{Rule: "FIELD_REMOVED", Class: plan.Breaks, Kind: "widgets.example.com", Path: "spec.color"},
		{Rule: "GRANT_ADDED", Class: plan.Widens, Path: "t/bindings/b", Subject: "group:devs"},
	}}
	p.Finish()
	return p
}

func TestAnEntryAcceptsItsFinding(t *testing.T) {
	p := findings()
	unused := p.Accept(plan.Acceptances{Today: "2026-11-23", Entries: []plan.Accepted{
		{Rule: "FIELD_REMOVED", Kind: "widgets.example.com", Path: "spec.size", Until: "2026-11-23", Reason: "r"},
		{Rule: "FIELD_REMOVED", Kind: "widgets.example.com", Until: "2026-12-31", Reason: "no path"},
		{Rule: "GRANT_ADDED", Path: "t/bindings/b", Until: "2026-12-31", Reason: "no subject"},
	}})
	refused := p.Refused(plan.Breaks, plan.Widens)
	assert.Len(t, refused, 2)
	assert.Equal(t, "spec.color", refused[0].Path)
	assert.Equal(t, 1, p.Summary.Accepted)
	assert.Equal(t, 2, p.Summary.Breaks, "accepted findings count in their class")
	assert.Len(t, unused.Entries, 2)
	assert.Empty(t, unused.Expired)
}

func TestAnExpiredEntryDoesNotCount(t *testing.T) {
	p := findings()
	unused := p.Accept(plan.Acceptances{Today: "2026-11-24", Entries: []plan.Accepted{
		{Rule: "FIELD_REMOVED", Kind: "widgets.example.com", Path: "spec.size", Until: "2026-11-23", Reason: "r"},
	}})
	assert.Len(t, p.Refused(plan.Breaks), 2)
	assert.Len(t, unused.Expired, 1)
	assert.Empty(t, unused.Entries)
}

func TestIDsAndRulesAccept(t *testing.T) {
	p := findings()
	unused := p.Accept(plan.Acceptances{IDs: []string{p.Findings[2].ID, "k00000"}, Rules: []string{"FIELD_REMOVED"}, Today: "2026-11-24"})
	assert.Empty(t, p.Refused(plan.Classes...))
	assert.Equal(t, []string{"k00000"}, unused.IDs)
	assert.Equal(t, 3, p.Summary.Accepted)
}

// Where no stored object was looked at, it is not known whether a narrower schema breaks something.
func TestFindingsAreUntriedWithoutObjects(t *testing.T) {
	p := &plan.Plan{Findings: []plan.Finding{
		{Rule: "BOUND_TIGHTENED", Class: plan.Narrows, Kind: "widgets.example.com", Path: "spec.size"},
		{Rule: "BOUND_TIGHTENED", Class: plan.Narrows, Kind: "widgets.example.com", Path: "spec.tried", Objects: &plan.Objects{}},
		{Rule: "PATTERN_CHANGED", Class: plan.Widens, Kind: "widgets.example.com", Path: "spec.name"},
		{Rule: "GRANT_REMOVED", Class: plan.Narrows, Path: "t/bindings/b"},
	}}
	refused := p.Refused(plan.Breaks, plan.Untried)
	assert.Len(t, refused, 1)
	assert.Equal(t, "spec.size", refused[0].Path)
	assert.Empty(t, p.Refused(plan.Breaks))
}

func TestOnlySomeFindings(t *testing.T) {
	p := findings()
	assert.Equal(t, 2, p.Only(func(f *plan.Finding) bool { return f.Kind == "" }))
	assert.Equal(t, plan.Summary{Widens: 1}, p.Summary)
}
