package shadow_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"stele.dev/stele/core/resources/shadow"
)

// a request of a list, and the code of its answer under the bundle.
type asked struct {
	as, verb, path, body string
	code                 int
}

// list is a list of requests that proposed decides differently here and there.
var list = []asked{
	{"dana", "POST", databases, database("a", `"storageGiB":20`), 201},
	{"dana", "POST", databases, database("b", `"storageGiB":80`), 201},  // admission
	{"dana", "POST", databases, database("c", `"storageGiB":200`), 201}, // the bound
	{"dana", "POST", databases, database("d", `"storageGiB":300`), 201},
	{"dana", "PATCH", databases + "/a", `{"spec":{"storageGiB":90}}`, 200},    // admission
	{"dev", "POST", databases, database("e", `"storageGiB":40`), 201},         // the condition
	{"dana", "POST", databases, database("s", `"password":"hunter2"`), 201},   // the field
	{"dana", "DELETE", databases + "/d", "", 200},                             // the deny
	{"dana", "DELETE", databases + "/b?dryRun=All", "", 200},                  // the deny
	{"dana", "GET", databases + "/a", "", 200},                                // both allow
	{"nora", "GET", databases, "", 403},                                       // the grant
	{"nora", "POST", databases, database("n", ""), 403},                       // the grant
	{"dev", "POST", databases, database("f", `"tier":"critical"`), 403},       // neither condition
	{"dana", "POST", databases, database("x", `"tier":"y"`), 422},             // both refuse
	{"dana", "POST", databases, database("a", ""), 409},                       // neither refuses
	{"dana", "GET", databases + "/none", "", 404},                             // neither refuses
	{"dana", "PATCH", databases + "/none", `{"spec":{"storageGiB":90}}`, 404}, // neither refuses
	{"mallory", "GET", databases, "", 403},                                    // both refuse
	{"mallory", "GET", "/apis/none.example/v1/things", "", 403},               // both refuse
	{"dana", "GET", "/version", "", 200},                                      // both allow
	{"dana", "DELETE", databases, "", 200},                                    // the deny
}

// proposed returns the bundle that is proposed for the list.
func proposed(t testing.TB) string {
	return changed(t,
		"<=8192", "<=100", "maxGiB: 500", "maxGiB: 50",
		`verbs: ["*"]}`, `verbs: ["get", "list", "watch", "create", "update", "patch", "delete"]}`,
		"password?: string", `password?: =~"^[0-9]+$"`,
		"object.spec.tier == 'dev'", "object.spec.tier == 'dev' && object.spec.storageGiB < 30",
		`bindings: lists:`, `denies: stay: {subjects: [{group: "system:authenticated"}], rules: r: {apiGroups: ["data.corp.example"], resources: ["databases"], verbs: ["delete", "watch"]}, reason: "databases stay"}
			bindings: nora: {clusterRole: "databases", subjects: [{user: "nora"}], namespaces: ["*"]}
			bindings: lists:`)
}

// run sends the list. It returns the codes of the answers, and by how much the log has grown.
func (s server) run(t testing.TB, all []asked) (codes []int, events uint64) {
	t.Helper()
	before := s.Committer.Tip().Revision()
	for _, x := range all {
		_, err := s.send(t, x.as, x.verb, x.path, x.body)
		code := x.code
		if status, is := err.(apierrors.APIStatus); is {
			code = int(status.Status().Code)
		} else if err != nil || x.code >= 300 {
			t.Errorf("%+v: %v", x, err)
		}
		codes = append(codes, code)
	}
	return codes, s.Committer.Tip().Revision() - before
}

// TestDifferences compares what the shadow says of a list of requests with what is known of them. Answers and the log are
// those of a server without a shadow.
func TestDifferences(t *testing.T) {
	s, other := start(t), start(t)
	x := s.begin(t, proposed(t))
	if x.Name != "proposed" || len(x.Spec.Files) != 0 || x.Spec.Commit != "0123abc" || x.Status.User != "sam" || len(x.Status.Digest) != 64 || x.CreationTimestamp.IsZero() {
		t.Errorf("%+v", x)
	}
	codes, events := s.run(t, list)
	without, eventsWithout := other.run(t, list)
	if fmt.Sprint(codes, events) != fmt.Sprint(without, eventsWithout) {
		t.Errorf("with a shadow %v and %d events, without %v and %d", codes, events, without, eventsWithout)
	}
	for i, code := range codes {
		if code != list[i].code {
			t.Errorf("%+v is answered with %d", list[i], code)
		}
	}
	x = s.show(t, "dana")
	want := `refuses 2x dana create databases.data.corp.example: schema spec.storageGiB
refuses 2x dana delete databases.data.corp.example: authorization data/denies/stay with a line
refuses 1x dana create databases.data.corp.example: schema spec.password
refuses 1x dana create databases.data.corp.example: validation data/validate/limit/max with a line
refuses 1x dana deletecollection databases.data.corp.example: authorization 
refuses 1x dana patch databases.data.corp.example: validation data/validate/limit/max with a line
refuses 1x dev create databases.data.corp.example: conditions 
allows 1x nora create databases.data.corp.example: authorization data/bindings/nora with a line
allows 1x nora list databases.data.corp.example: authorization data/bindings/nora with a line
`
	if got := lines(x.Status.Differences); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	if n := x.Status.Requests; n.Refused != 9 || n.Allowed != 2 || n.Undecided+n.Dropped != 0 || n.Same < uint64(len(list))-11 || x.Status.Waiting != 0 {
		t.Errorf("%+v", x.Status)
	}
	if f := x.Status.Differences[0]; !strings.Contains(f.Message, "200: must be at least 1 and at most 100 (bundle.cue:") || len(f.AuditIDs) != 2 || f.First >= f.Last {
		t.Errorf("%+v", f)
	}
	metrics := string(s.must(t, "admin", "GET", "/metrics", ""))
	for _, line := range []string{`stele_shadow_requests_total{outcome="refused"} 9`, `stele_shadow_requests_total{outcome="allowed"} 2`, `stele_shadow_requests_total{outcome="dropped"} 0`} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %s in the metrics", line)
		}
	}
	// Who may not list databases learns nothing of what is in them: a rule can ask for each letter, and numbers would answer.
	hidden := s.show(t, "wendy").Status
	if n := hidden.Requests; len(hidden.Differences) != 0 || n.Refused+n.Allowed != 0 || n.Undecided != hidden.Undecided[0].Count || !strings.Contains(hidden.Undecided[0].Why, "that you may list") {
		t.Errorf("%+v", hidden)
	}
	if all := x.Status.Requests; hidden.Requests.Undecided+hidden.Requests.Same < all.Same+all.Refused+all.Allowed || hidden.Requests.Same >= all.Same {
		t.Errorf("%+v of %+v", hidden.Requests, all)
	}

	// What the shadow says comes true. It ends when its policy is in force.
	s.Activate(t, proposed(t))
	s.refused(t, 404, "sam", "GET", shadowPath, "")
	s.refused(t, 422, "dana", "POST", databases, database("z", `"storageGiB":200`))
	s.refused(t, 422, "dana", "POST", databases, database("z", `"storageGiB":80`))
	s.refused(t, 403, "dana", "DELETE", databases+"/a", "")
	s.refused(t, 403, "dev", "POST", databases, database("z", `"storageGiB":40`))
	s.must(t, "nora", "GET", databases, "")
}

// TestAWatchIsSeenAtOnce: a watch is decided when it begins, not when it ends.
func TestAWatchIsSeenAtOnce(t *testing.T) {
	s := start(t)
	s.begin(t, proposed(t))
	s.must(t, "dana", "GET", databases, "") // makes the client
	stream, err := s.clients["dana"].Get().RequestURI(databases + "?watch=1").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if got := lines(s.show(t, "dana").Status.Differences); got != "refuses 1x dana watch databases.data.corp.example: authorization data/denies/stay with a line\n" {
		t.Errorf("%s", got)
	}
}

// TestThePolicyInForceAsAShadow: the policy in force decides as itself, whatever is asked.
func TestThePolicyInForceAsAShadow(t *testing.T) {
	s := start(t)
	s.begin(t, bundle)
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	const n = 400
	for range n {
		name := pick("a", "b", "c")
		spec := pick(`"storageGiB":20`, `"storageGiB":600`, `"storageGiB":9000`, `"tier":"critical"`, `"tier":"none"`, `"unknown":1`, "")
		as := pick("dana", "dana", "dev", "admin", "mallory", "wendy")
		query := pick("", "", "?dryRun=All", "?fieldValidation=Strict")
		at := databases + "/" + name
		switch r.IntN(9) {
		case 0, 1, 2:
			_, _ = s.send(t, as, "POST", databases+query, database(name, spec))
		case 3:
			_, _ = s.send(t, as, "PUT", at+query, database(name, spec))
		case 4:
			_, _ = s.send(t, as, "PATCH", at+query, "{\"metadata\":{\"labels\":{\"a\":\"b\"}},\"spec\":{"+spec+"}}")
		case 5:
			_, _ = s.send(t, as, "DELETE", at, "")
		case 6:
			_, _ = s.send(t, as, "GET", pick(at, databases, "/api/v1/namespaces", "/version", shadowsPath, "/apis/data.corp.example/v1/nothing"), "")
		case 7:
			_, _ = s.send(t, as, "POST", "/api/v1/namespaces/shop/"+pick("configmaps", "secrets", "things"), `{"metadata":{"generateName":"c-"},"data":{"a":"Yg=="}}`)
		case 8:
			_, _ = s.send(t, as, "DELETE", databases, "")
		}
	}
	x := s.show(t, "admin")
	if got := x.Status.Requests; len(x.Status.Differences) > 0 || got.Refused+got.Allowed+got.Undecided+got.Dropped > 0 || got.Same < n {
		t.Errorf("%+v\n%s%+v", got, lines(x.Status.Differences), x.Status.Undecided)
	}
}

// TestALifetime starts, reads and ends shadows.
func TestALifetime(t *testing.T) {
	s := start(t)
	if text := string(s.must(t, "sam", "GET", shadowsPath, "")); !strings.Contains(text, `"items":[]`) {
		t.Error(text)
	}
	s.refused(t, 404, "sam", "GET", shadowPath, "")
	s.refused(t, 404, "sam", "DELETE", shadowPath, "")
	for _, as := range []string{"wendy", "nora"} {
		s.refused(t, 403, as, "POST", shadowsPath, proposal(bundle))
	}
	if text := s.refused(t, 422, "sam", "POST", shadowsPath, proposal(changed(t, `maxGiB: 500`, `maxGib: 500`))); !strings.Contains(text, "bundle.cue:26") {
		t.Error(text)
	}
	s.refused(t, 422, "sam", "POST", shadowsPath, strings.Replace(proposal(bundle), `"kind":"Shadow"`, `"kind":"Shadow","metadata":{"name":"mine"}`, 1))
	s.refused(t, 422, "sam", "POST", shadowsPath, `{"apiVersion":"policy.stele.dev/v1","kind":"Shadow","spec":{"package":".","files":[]}}`)
	s.must(t, "sam", "POST", shadowsPath+"?dryRun=All", proposal(bundle))
	s.refused(t, 404, "sam", "GET", shadowPath, "")

	s.begin(t, proposed(t))
	s.refused(t, 409, "sam", "POST", shadowsPath, proposal(bundle))
	s.refused(t, 403, "wendy", "DELETE", shadowPath, "")
	s.refused(t, 405, "admin", "PUT", shadowPath, proposal(bundle))
	s.must(t, "sam", "DELETE", shadowPath+"?dryRun=All", "")
	table := string(s.must(t, "sam", "GET", shadowsPath, ""))
	if !strings.Contains(table, shadow.Kind+"List") || !strings.Contains(table, `"name":"proposed"`) {
		t.Error(table)
	}
	// Another policy in force does not end it.
	s.Activate(t, changed(t, "maxGiB: 500", "maxGiB: 400"))
	s.must(t, "dana", "POST", databases, database("a", `"storageGiB":80`))
	if got := s.show(t, "dana").Status.Requests.Refused; got != 1 {
		t.Errorf("%d requests are refused", got)
	}
	s.must(t, "sam", "DELETE", shadowPath, `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`)
	s.refused(t, 404, "sam", "GET", shadowPath, "")
	s.must(t, "dana", "POST", databases, database("b", `"storageGiB":80`))
	if metrics := string(s.must(t, "admin", "GET", "/metrics", "")); !strings.Contains(metrics, `outcome="refused"} 1`+"\n") {
		t.Error("requests are counted after the end")
	}
	// The next one starts anew.
	s.begin(t, proposed(t))
	if got := s.show(t, "dana").Status.Requests.Refused; got != 0 {
		t.Errorf("%d requests are refused", got)
	}
}

// TestAuthorizersOutsideAreNotAsked: what they would decide is undecided.
func TestAuthorizersOutsideAreNotAsked(t *testing.T) {
	s := start(t)
	s.begin(t, changed(t, `cluster: "test"`, "cluster: \"test\"\n\tauthorizers: [\"deny\", \"rbac\", \"abac\"]"))
	s.must(t, "dana", "GET", databases, "")
	s.refused(t, 403, "mallory", "GET", databases, "")
	x := s.show(t, "dana").Status
	if len(x.Differences) > 0 || x.Requests.Undecided != 1 || len(x.Undecided) != 1 || x.Undecided[0].Count != 1 || !strings.Contains(x.Undecided[0].Why, "outside") {
		t.Errorf("%+v", x)
	}
}

// A rule that asks an authorizer outside of the proposed policy decides nothing.
func TestRulesThatAskOutsideAreUndecided(t *testing.T) {
	s := start(t)
	s.begin(t, changed(t, `cluster: "test"`, "cluster: \"test\"\n\tauthorizers: [\"deny\", \"rbac\", \"abac\"]", `admission: validate: limit: {`, `admission: validate: asks: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["CREATE"]}
			validations: secrets: {expression: "object.spec.tier == 'dev' || authorizer.group('').resource('secrets').namespace('x').check('get').allowed()", message: "only for those who may read secrets"}
		}
		admission: validate: limit: {`))
	s.must(t, "dana", "POST", databases, database("a", ""))
	s.must(t, "dana", "POST", databases, database("b", `"tier":"critical"`))
	x := s.show(t, "dana").Status
	if len(x.Differences) > 0 || x.Requests.Undecided != 1 || len(x.Undecided) != 1 || !strings.Contains(x.Undecided[0].Why, "outside") {
		t.Errorf("%+v", x)
	}
}

// A shadow decides rules over other objects on the state on which the request was decided.
func TestRulesOverOtherObjectsAsAShadow(t *testing.T) {
	s := start(t)
	s.begin(t, changed(t, `admission: validate: limit: {`, `admission: validate: few: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["CREATE"]}
			objects: databases: {kind: "databases.data.corp.example", version: "v1"}
			validations: two: {expression: "objects.databases.namespace(request.namespace).others().count() < 2", message: "two are enough"}
		}
		admission: validate: limit: {`))
	for _, name := range []string{"a", "b", "c", "d"} {
		s.must(t, "dana", "POST", databases, database(name, ""))
	}
	x := s.show(t, "dana")
	if got, want := lines(x.Status.Differences), "refuses 2x dana create databases.data.corp.example: validation data/validate/few/two with a line\n"; got != want || x.Status.Requests.Undecided != 0 {
		t.Errorf("got:\n%swant:\n%s%+v", got, want, x.Status.Requests)
	}
}
