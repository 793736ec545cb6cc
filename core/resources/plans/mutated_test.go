package plans_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/policy/plan"
)

// mutating returns the bundle with rules that change databases, and with replacements.
func mutating(t *testing.T, rules string, pairs ...string) string {
	t.Helper()
	const match = `match: {apiGroups: ["data.corp.example"], resources: ["databases"]}`
	rules = strings.ReplaceAll(rules, "MATCH", match)
	return changed(t, append([]string{"admission: validate: limit: {", "admission: mutate: {" + rules + "}\n\t\tadmission: validate: limit: {"}, pairs...)...)
}

// sets returns a rule that changes databases.
func sets(name string, order int, object string) string {
	return fmt.Sprintf("%s: {order: %d, MATCH, mutations: s: {patchType: \"ApplyConfiguration\", expression: \"Object{%s}\"}}\n", name, order, object)
}

func labels(value string) string {
	return "metadata: Object.metadata{labels: {'team': '" + value + "'}}"
}

// altered returns the alterations of a replay, a line each, without the lines of rules.
func altered(p *plan.Plan) string {
	text := ""
	for _, a := range p.Replay.Alterations {
		text += fmt.Sprintf("%d of %d: %s %s %s by %s", a.Count, a.Objects, a.Verb, a.Resource, a.Path, a.Rule)
		if a.Was {
			text += ", was"
		}
		if a.Finding == "" || a.Source == "" || a.First == 0 || a.Last < a.First {
			text += ", without a finding or revisions"
		}
		text += "\n"
	}
	return text
}

// TestRecordedWritesAreChangedAgain replays writes that rules changed, from what clients asked for.
func TestRecordedWritesAreChangedAgain(t *testing.T) {
	first := mutating(t, sets("label", 1, labels("data")))
	s := start(t)
	s.Activate(t, first)
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	for i := range 3 {
		s.must(t, "dana", "POST", databases, database(fmt.Sprintf("db-%d", i), fmt.Sprintf(`,"storageGiB":%d`, 100+i)))
	}
	s.must(t, "dana", "PATCH", databases+"/db-0", `{"spec":{"tier":"standard"}}`)                // the label stays as it is
	s.must(t, "dana", "PATCH", databases+"/db-1", `{"metadata":{"labels":{"team":"somebody"}}}`) // the rule sets it again
	s.must(t, "dana", "PATCH", databases+"/db-2/status", `{"status":{"phase":"ok"}}`)

	for _, c := range []struct {
		name, policy, want string
	}{
		{"the same", first, ""},
		{"other lines", mutating(t, "\n\n"+sets("label", 1, labels("data"))), ""},
		{"another value", mutating(t, sets("label", 1, labels("web"))), "3 of 3: create databases.data.corp.example metadata.labels.team by data/mutate/label/s\n" +
			"2 of 2: patch databases.data.corp.example metadata.labels.team by data/mutate/label/s\n"},
		{"no rule", bundle, "3 of 3: create databases.data.corp.example metadata.labels.team by data/mutate/label/s, was\n" +
			"1 of 1: patch databases.data.corp.example metadata.labels.team by data/mutate/label/s, was\n"},
		{"one more", mutating(t, sets("label", 1, labels("data"))+sets("days", 2, "spec: Object.spec{backup: Object.spec.backup{keepDays: 9}}")),
			"3 of 3: create databases.data.corp.example spec.backup.keepDays by data/mutate/days/s\n2 of 2: patch databases.data.corp.example spec.backup.keepDays by data/mutate/days/s\n"},
	} {
		p := s.plan(t, "admin", c.policy, week)
		if got := altered(p); got != c.want || len(p.Replay.Flips) != 0 {
			t.Errorf("%s: got\n%swant\n%s\n%s", c.name, got, c.want, show(p))
		}
		if p.Replay.Undecided != 0 {
			t.Errorf("%s: %s", c.name, show(p))
		}
	}
}

// TestRecordedPatchesAreAppliedAgain replays patches, applied configurations and writes of the status that rules changed: what the
// client asked for is found by its patch and the object that it met.
func TestRecordedPatchesAreAppliedAgain(t *testing.T) {
	const status = `phase: {order: 2, match: {apiGroups: ["data.corp.example"], resources: ["databases/status"]}, mutations: s: {patchType: "ApplyConfiguration", expression: "Object{status: Object.status{phase: 'set'}}"}}` + "\n"
	grown := sets("grow", 1, "spec: Object.spec{storageGiB: 400}")
	s := start(t)
	s.Activate(t, mutating(t, grown+status))
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	s.must(t, "dana", "POST", databases, database("a", `,"storageGiB":100`))
	s.must(t, "dana", "PATCH", databases+"/a", `{"spec":{"storageGiB":450}}`)
	s.must(t, "dana", "PATCH", databases+"/a", `{"spec":{"tier":"standard"}}`) // changes nothing of what the rule sets
	s.must(t, "dana", "APPLY", databases+"/b?fieldManager=test", database("b", `,"storageGiB":450`))
	s.must(t, "dana", "APPLY", databases+"/b?fieldManager=test", database("b", `,"storageGiB":470,"tier":"critical"`))
	if _, err := s.client(t, "dana").Patch(types.JSONPatchType).RequestURI(databases + "/b").Body([]byte(`[{"op":"replace","path":"/spec/storageGiB","value":480}]`)).Do(t.Context()).Raw(); err != nil {
		t.Fatal(err)
	}
	s.must(t, "dana", "PATCH", databases+"/a/status", `{"status":{"phase":"ok"}}`)
	now := strings.TrimSpace(string(s.must(t, "dana", "GET", databases+"/b", "")))
	s.must(t, "dana", "PUT", databases+"/b/status", strings.TrimSuffix(now, "}")+`,"status":{"phase":"ok"}}`)

	// Without the rule, what was asked for counts: 450, 450, 470 and 480.
	p := s.plan(t, "admin", mutating(t, status, "maxGiB: 500", "maxGiB: 460"), week)
	if f := flip(t, p, "dana", "patch", "validation"); f.Count != 2 || len(p.Replay.Flips) != 1 || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
	p = s.plan(t, "admin", mutating(t, grown), week)
	want := "1 of 1: patch databases.data.corp.example/status status.phase by data/mutate/phase/s, was\n1 of 1: update databases.data.corp.example/status status.phase by data/mutate/phase/s, was\n"
	if got := altered(p); got != want || len(p.Replay.Flips) != 0 || p.Replay.Undecided != 0 {
		t.Errorf("got\n%swant\n%s%s", got, want, show(p))
	}
}

// TestReplayedValidationsSeeWhatRulesMake decides recorded writes again with what rules make of them under the new policy.
func TestReplayedValidationsSeeWhatRulesMake(t *testing.T) {
	grown := sets("grow", 1, "spec: Object.spec{storageGiB: 400}")
	s := start(t)
	s.Activate(t, mutating(t, grown))
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	s.must(t, "dana", "POST", databases, database("a", `,"storageGiB":100`))
	s.must(t, "dana", "POST", databases, database("b", `,"storageGiB":450`))

	// The rule makes them 400, whatever was asked for.
	p := s.plan(t, "admin", mutating(t, grown, "maxGiB: 500", "maxGiB: 300"), week)
	if f := flip(t, p, "dana", "create", "validation"); f.Count != 2 || f.Rule != "data/validate/limit/max" || f.Finding == "" || len(p.Replay.Flips) != 1 {
		t.Errorf("%s", show(p))
	}
	// Without the rule only what was asked for counts.
	p = s.plan(t, "admin", changed(t, "maxGiB: 500", "maxGiB: 300"), week)
	if f := flip(t, p, "dana", "create", "validation"); f.Count != 1 || len(p.Replay.Flips) != 1 {
		t.Errorf("%s", show(p))
	}
	if got := altered(p); got != "1 of 1: create databases.data.corp.example spec.storageGiB by data/mutate/grow/s, was\n" {
		t.Errorf("got %s", got)
	}
	// A rule that makes them smaller lets them pass.
	p = s.plan(t, "admin", mutating(t, grown+sets("shrink", 2, "spec: Object.spec{storageGiB: 200}"), "maxGiB: 500", "maxGiB: 300"), week)
	if len(p.Replay.Flips) != 0 || altered(p) != "2 of 2: create databases.data.corp.example spec.storageGiB by data/mutate/shrink/s\n" {
		t.Errorf("%s%s", altered(p), show(p))
	}
	// A rule that cannot be applied refuses them.
	fails := `fails: {order: 2, MATCH, mutations: s: {patchType: "JSONPatch", expression: "[JSONPatch{op: 'remove', path: '/spec/password'}]"}}`
	p = s.plan(t, "admin", mutating(t, grown+fails), week)
	if f := flip(t, p, "dana", "create", "mutation"); f.Count != 2 || f.Rule != "data/mutate/fails/s" || f.Source == "" || f.Finding == "" {
		t.Errorf("%s", show(p))
	}
	// What the schema refuses is what the rule made.
	p = s.plan(t, "admin", mutating(t, sets("grow", 1, "spec: Object.spec{storageGiB: 9000}"), "maxGiB: 500", "maxGiB: 9999"), week)
	if f := flip(t, p, "dana", "create", "schema"); f.Count != 2 || f.Path != "spec.storageGiB" {
		t.Errorf("%s", show(p))
	}
}

// TestStoredObjectsAreTriedWithMutations tries stored objects with what rules would make of them when they are written.
func TestStoredObjectsAreTriedWithMutations(t *testing.T) {
	s := stocked(t)
	p := s.plan(t, "admin", mutating(t, sets("grow", 1, "spec: Object.spec{storageGiB: 501}")), nil)
	stuck := 0
	for _, f := range p.Findings {
		if f.Objects != nil && f.Objects.Stuck > 0 && f.Path == "data/validate/limit/max" {
			stuck = f.Objects.Stuck
		}
	}
	if stuck == 0 {
		t.Errorf("%s", show(p))
	}
	p = s.plan(t, "admin", mutating(t, sets("keep", 1, "spec: Object.spec{tier: 'dev'}")), nil)
	for _, f := range p.Findings {
		if f.Objects != nil && f.Objects.Stuck+f.Objects.Violating > 0 {
			t.Errorf("%s", show(p))
		}
	}
}
