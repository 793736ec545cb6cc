package plans_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/policy/plan"
)

// flip returns the group of a user, a verb and a stage.
func flip(t *testing.T, p *plan.Plan, user, verb, stage string) plan.Flip {
	t.Helper()
	if p.Replay == nil {
		t.Fatal("no replay")
	}
	for _, f := range p.Replay.Flips {
		if f.User == user && f.Verb == verb && f.Stage == stage {
			return f
		}
	}
	t.Fatalf("no %s by %s refused in %s:\n%s", verb, user, stage, show(p))
	return plan.Flip{}
}

var week = map[string]any{"replay": "7d"}

// TestRecordedWritesAreDecidedAgain makes change sets 1, 4, 5, 6 and 7 of writes that were allowed.
func TestRecordedWritesAreDecidedAgain(t *testing.T) {
	s := stocked(t)
	shared := strings.Replace(databases, "/shop/", "/shared/", 1)
	s.must(t, "dev", "POST", shared, database("play", ""))
	s.must(t, "dev", "POST", shared, database("said", `,"tier":"dev"`))
	s.must(t, "della", "DELETE", pipelines+"/pipe-0", "")
	s.must(t, "dana", "PATCH", databases+"/db-08/status", `{"status":{"phase":"ok"}}`)

	p := s.plan(t, "admin", changed(t, "<=8192", "<=200"), week)
	if f := flip(t, p, "dana", "create", "schema"); f.Count != 6 || f.Path != "spec.storageGiB" || !f.Refused || len(f.AuditIDs) != 3 || f.Resource != databaseKind || f.Finding == "" || f.First >= f.Last {
		t.Errorf("%s", show(p))
	}
	if len(p.Replay.Flips) != 1 || p.Replay.Undecided != 0 || p.Checked.Replayed != p.Replay.Writes || p.Replay.Writes != 19 {
		t.Errorf("%s", show(p))
	}

	p = s.plan(t, "admin", changed(t, "maxGiB: 500", "maxGiB: 300"), week)
	if f := flip(t, p, "dana", "create", "validation"); f.Count != 4 || f.Rule != "data/validate/limit/max" || f.Source == "" || f.Finding == "" || len(p.Replay.Flips) != 1 {
		t.Errorf("%s", show(p))
	}

	// Who left the tier out would get another one, and has no grant for it.
	p = s.plan(t, "admin", changed(t, `*"dev" | "standard"`, `"dev" | *"standard"`), week)
	if f := flip(t, p, "dev", "create", "conditions"); f.Count != 1 || len(p.Replay.Flips) != 1 {
		t.Errorf("%s", show(p))
	}

	deny := `rbac: denies: stay: {subjects: [{group: "system:authenticated"}], rules: r: {apiGroups: ["data.corp.example"], resources: ["pipelines"], verbs: ["delete"]}, reason: "they stay"}
		rbac: {`
	p = s.plan(t, "admin", changed(t, "rbac: {", deny), week)
	if f := flip(t, p, "della", "delete", "authorization"); f.Count != 1 || f.Rule != "data/denies/stay" {
		t.Errorf("%s", show(p))
	}

	p = s.plan(t, "admin", changed(t, `subjects: [{user: "della"}]`, `subjects: [{user: "nobody"}]`), week)
	lost := slices.IndexFunc(p.Findings, func(x plan.Finding) bool { return x.Rule == "GRANT_REMOVED" && x.Subject == "user:della" })
	if f := flip(t, p, "della", "create", "authorization"); f.Count != 3 || lost < 0 || f.Finding != p.Findings[lost].ID {
		t.Errorf("%s", show(p))
	}
	if p := s.plan(t, "admin", changed(t, "<=8192", "<=200"), nil); p.Replay != nil {
		t.Error("nobody asked for a replay")
	}
	// Writes of kinds with secrets are not decided for users who may not list them.
	if p := s.plan(t, "planner", changed(t, "maxGiB: 500", "maxGiB: 300"), week); len(p.Replay.Flips) != 0 || p.Replay.Undecided == 0 {
		t.Errorf("%s", show(p))
	}
}

// TestReplayUnderTheSamePolicyGivesNoFlips writes at random under two policies, and compares each with itself while it is
// in force: a write that a replay refuses, although the policy allowed it, would be counted as undecided.
func TestReplayUnderTheSamePolicyGivesNoFlips(t *testing.T) {
	second := changed(t, "<=8192", "<=9000", "*7", "*9")
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := stocked(t)
			random := rand.New(rand.NewPCG(seed, 1))
			for _, text := range []string{bundle, second} {
				if text == second {
					s.Activate(t, second)
				}
				for i := range 80 {
					s.random(t, random, i)
				}
				p := s.plan(t, "admin", text, week)
				if p.From.Digest != p.To.Digest || len(p.Replay.Flips) != 0 || p.Replay.Writes < 40 || slices.ContainsFunc(p.Replay.Why, func(why string) bool { return !strings.Contains(why, "it is a patch") }) {
					t.Errorf("%s", show(p))
				}
			}
		})
	}
}

// random sends a write, which may be refused.
func (s server) random(t *testing.T, random *rand.Rand, i int) {
	t.Helper()
	name := fmt.Sprintf("db-%02d", 1+random.IntN(14))
	at := databases + "/" + name
	size := 20 + random.IntN(600)
	user := []string{"admin", "dana"}[random.IntN(2)]
	switch random.IntN(9) {
	case 0:
		s.send(t, user, "POST", databases, database(name, fmt.Sprintf(`,"storageGiB":%d`, size)))
	case 1:
		s.send(t, user, "PATCH", at, fmt.Sprintf(`{"spec":{"storageGiB":%d}}`, size))
	case 2:
		s.send(t, user, "PATCH", at, fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, i))
	case 3:
		s.send(t, user, "PATCH", at+"/status", fmt.Sprintf(`{"status":{"phase":"p%d"}}`, i))
	case 4:
		s.send(t, user, "DELETE", at, "")
	case 5:
		s.send(t, user, "APPLY", at, database(name, fmt.Sprintf(`,"storageGiB":%d,"tier":"standard"`, size)))
	case 6:
		s.send(t, user, "PUT", at, strings.Replace(database(name, fmt.Sprintf(`,"storageGiB":%d`, size)), `"metadata":{`, `"metadata":{"finalizers":["example.com/wait"],`, 1))
	case 7:
		s.send(t, user, "PATCH", at, `{"metadata":{"finalizers":null}}`)
	case 8:
		s.send(t, "dev", "POST", strings.Replace(databases, "/shop/", "/shared/", 1), database(fmt.Sprintf("dev-%d", i), ""))
	}
}

// Two groups of findings take the same right from one group, in two namespaces: requests in one of them lost that grant.
func TestAReplayNamesTheGrantOfTheNamespaceAndTheGroups(t *testing.T) {
	s := start(t)
	const self = `bindings: self: {clusterRole: "databases-self", subjects: [{group: "developers"}], namespaces: ["shared"], when: "object.spec.tier == 'dev'"}`
	bind := func(group, shared string) string {
		return changed(t, self, `bindings: "in-shared": {clusterRole: "databases-self", subjects: [{group: "`+shared+`"}], namespaces: ["shared"]}
			bindings: "in-shop": {clusterRole: "databases-self", subjects: [{group: "`+group+`"}], namespaces: ["shop"]}
			bindings: testers: {clusterRole: "databases-self", subjects: [{group: "`+strings.Replace(group, "developers", "testers", 1)+`"}], namespaces: ["shared"]}`)
	}
	s.Activate(t, bind("developers", "developers"))
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shared"}}`)
	s.must(t, "dev", "POST", strings.Replace(databases, "/shop/", "/shared/", 1), database("play", ""))

	p := s.plan(t, "admin", bind("nobody", "nobody"), week)
	lost := slices.IndexFunc(p.Findings, func(x plan.Finding) bool { return x.Rule == "GRANT_REMOVED" && x.Path == "data/bindings/in-shared" })
	if f := flip(t, p, "dev", "create", "authorization"); lost < 0 || f.Finding != p.Findings[lost].ID {
		t.Errorf("%s", show(p))
	}

	p = s.plan(t, "admin", changed(t, self, ""), week)
	named := flip(t, p, "dev", "create", "authorization").Finding
	if i := slices.IndexFunc(p.Findings, func(x plan.Finding) bool { return x.ID == named }); i < 0 || p.Findings[i].Subject != "group:developers" {
		t.Errorf("%s", show(p))
	}
}
