package rules_test

import (
	"testing"

	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/plantest"
)

func TestChangesOfAggregates(t *testing.T) {
	with := func(more string) string {
		return plantest.Edit(t, plantest.Databases, `cluster: "dev"`, `cluster: "dev"`+"\n\taggregate: {"+more+"}")
	}
	const a = `w: {group: "w.example.com", versions: ["v1"], url: "https://w.example.com"`
	for name, c := range map[string]struct {
		from, to, rule string
		class          plan.Class
	}{
		"a server more":       {"", a + "}", "AGGREGATE_ADDED", plan.Widens},
		"a server less":       {a + "}", "", "AGGREGATE_REMOVED", plan.Breaks},
		"the same":            {a + "}", a + "}", "", ""},
		"another address":     {a + "}", `w: {group: "w.example.com", versions: ["v1"], url: "https://x.example.com"}`, "AGGREGATE_CHANGED", plan.Widens},
		"private addresses":   {a + "}", a + ", private: true}", "AGGREGATE_CHANGED", plan.Widens},
		"public addresses":    {a + ", private: true}", a + "}", "AGGREGATE_CHANGED", plan.Narrows},
		"another name":        {a + "}", a + `, serverName: "x.example.com"}`, "AGGREGATE_CHANGED", plan.Widens},
		"other limits":        {a + "}", a + `, requests: 5, answerTimeout: "1s"}`, "AGGREGATE_CHANGED", plan.Changes},
		"a version less":      {`w: {group: "w.example.com", versions: ["v1", "v2"], url: "https://w.example.com"}`, a + "}", "AGGREGATE_CHANGED", plan.Breaks},
		"a version more":      {a + "}", `w: {group: "w.example.com", versions: ["v1", "v2"], url: "https://w.example.com"}`, "AGGREGATE_CHANGED", plan.Widens},
		"versions rearranged": {`w: {group: "w.example.com", versions: ["v2", "v1"], url: "https://w.example.com"}`, `w: {group: "w.example.com", versions: ["v1", "v2"], url: "https://w.example.com"}`, "", ""},
	} {
		found := compare(t, plantest.Sides(t, with(c.from), with(c.to)))
		if c.rule == "" {
			if len(found) > 0 {
				t.Errorf("%s: %v", name, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Rule != c.rule || found[0].Class != c.class || found[0].Path != "aggregate/w" || found[0].Source.Line+found[0].Was.Line == 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
}
