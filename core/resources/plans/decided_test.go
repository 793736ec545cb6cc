package plans_test

import (
	"encoding/json"
	"strings"
	"testing"

	"stele.dev/stele/policy/plan"
)

// audited is the bundle with a rule that records reads, and a user who may read databases.
func audited(t *testing.T, pairs ...string) string {
	return changed(t, append([]string{
		`cluster: "test"`, `cluster: "test"
	audit: rules: reads: {order: 1, level: "Metadata", verbs: ["get", "list", "watch"], resources: ["databases"], apiGroups: ["data.corp.example"]}`,
		`bindings: lists:`, `clusterRoles: looks: rules: r: {apiGroups: ["data.corp.example"], resources: ["databases"], verbs: ["get", "list"]}
			bindings: olga: {clusterRole: "looks", subjects: [{user: "olga"}], namespaces: ["*"]}
			bindings: lists:`,
	}, pairs...)...)
}

// onlyFlip returns the only flip of a plan, which must be of requests that would be allowed (refused is false) or refused.
func onlyFlip(t *testing.T, p *plan.Plan, refused bool) plan.Flip {
	t.Helper()
	if p.Replay == nil || len(p.Replay.Flips) != 1 || p.Replay.Flips[0].Refused != refused {
		t.Fatalf("not one flip (refused: %v):\n%s", refused, show(p))
	}
	return p.Replay.Flips[0]
}

// Each change of the policy is planted, and the plan must name the refusals that it would allow, or the reads that it would
// refuse, and no others.
func TestRecordedRefusalsAndReadsAreDecidedAgain(t *testing.T) {
	s := stocked(t)
	s.Activate(t, audited(t))
	var stored struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(s.must(t, "admin", "GET", databases+"/db-01", ""), &stored); err != nil {
		t.Fatal(err)
	}
	larger := strings.Replace(database("db-01", `,"storageGiB":650`), `"metadata":{`, `"metadata":{"resourceVersion":"`+stored.Metadata.ResourceVersion+`",`, 1)
	for _, r := range []struct {
		code             int32
		user, verb, path string
		body             string
	}{
		{403, "dana", "POST", databases, database("large", `,"storageGiB":600`)},
		{422, "dana", "POST", databases, database("huge", `,"storageGiB":9000`)},
		{403, "dana", "PUT", databases + "/db-01", larger},
		{403, "della", "POST", databases, database("hers", "")},
		{403, "olga", "DELETE", databases + "/db-02", ""},
		{403, "olga", "PATCH", databases + "/db-02", `{"spec":{"storageGiB":30}}`},
		{403, "della", "GET", databases + "/db-01", ""},
	} {
		answer, err := s.send(t, r.user, r.verb, r.path, r.body)
		if err == nil || !strings.Contains(string(answer), `"status":"Failure"`) {
			t.Fatalf("%s %s by %s: not refused: %v %s", r.verb, r.path, r.user, err, answer)
		}
	}
	s.must(t, "olga", "GET", databases+"/db-01", "")
	s.must(t, "olga", "GET", databases, "")
	s.must(t, "dana", "GET", databases+"/db-01", "")

	p := s.plan(t, "admin", audited(t), week)
	if p.Replay.Refusals != 7 || p.Replay.Reads != 4 || len(p.Replay.Flips) != 0 || p.Replay.Undecided != 0 {
		t.Errorf("the same policy: %s", show(p))
	}

	p = s.plan(t, "admin", audited(t, "maxGiB: 500", "maxGiB: 620"), week)
	if f := onlyFlip(t, p, false); f.User != "dana" || f.Verb != "create" || f.Stage != "validation" || f.Rule != "data/validate/limit/max" || f.Count != 1 || f.Source == "" || len(f.AuditIDs) != 1 {
		t.Errorf("%+v", f)
	}
	p = s.plan(t, "admin", audited(t, "maxGiB: 500", "maxGiB: 700"), week)
	if len(p.Replay.Flips) != 2 { // the update, too
		t.Errorf("%s", show(p))
	}
	if p = s.plan(t, "admin", audited(t, "<=8192", "<=9500"), week); len(p.Replay.Flips) != 0 {
		t.Errorf("validation still refuses it: %s", show(p))
	}
	p = s.plan(t, "admin", audited(t, "<=8192", "<=9500", "maxGiB: 500", "maxGiB: 9500"), week)
	if f := flip(t, p, "dana", "create", "schema"); f.Refused || f.Path != "spec.storageGiB" || f.Count != 1 {
		t.Errorf("%s", show(p))
	}

	p = s.plan(t, "admin", audited(t, `clusterRole: "databases", subjects: [{user: "dana"}]`, `clusterRole: "databases", subjects: [{user: "dana"}, {user: "della"}]`), week)
	if create, get := flip(t, p, "della", "create", "authorization"), flip(t, p, "della", "get", "authorization"); create.Refused || get.Refused || create.Count != 1 || len(p.Replay.Flips) != 2 {
		t.Errorf("%s", show(p))
	}
	p = s.plan(t, "admin", audited(t, `resources: ["databases"], verbs: ["get", "list"]}`, `resources: ["databases"], verbs: ["get", "list", "patch", "delete"]}`), week)
	if f := onlyFlip(t, p, false); f.Verb != "delete" || p.Replay.Undecided != 0 { // the patch would make a volume smaller
		t.Errorf("%s", show(p))
	}
	p = s.plan(t, "admin", audited(t, `verbs: ["get", "list"]}`, `verbs: ["get"]}`), week)
	if f := onlyFlip(t, p, true); f.User != "olga" || f.Verb != "list" || f.Stage != "authorization" || f.Count != 1 {
		t.Errorf("%+v", f)
	}
	// What is in kinds with secrets is not decided for users who may not list them.
	if p := s.plan(t, "planner", audited(t, "maxGiB: 500", "maxGiB: 700"), week); len(p.Replay.Flips) != 0 || p.Replay.Undecided == 0 {
		t.Errorf("%s", show(p))
	}
}
