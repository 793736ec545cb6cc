package decisions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
)

// decided describes the only decision with an audit ID: outcome, stage, status and rule.
func decided(r *planetest.Replica, t *testing.T, auditID string) string {
	t.Helper()
	found := r.Decisions(t, auditID)
	if len(found) != 1 {
		return fmt.Sprintf("%d decisions", len(found))
	}
	m := found[0].Meta
	d := m.GetDecision()
	return strings.TrimSpace(fmt.Sprintf("%s %s %d %s", strings.TrimPrefix(d.GetOutcome().String(), "OUTCOME_"), d.GetStage(), m.GetRequest().GetStatus(), d.GetRule()))
}

// What leaves no event in the log is recorded, whatever the audit rules say; an event is not recorded twice.
func TestDecisionsAreRecorded(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("precious", 1))
	merge := []string{"Content-Type", "application/merge-patch+json"}
	nobody := []string{"Authorization", "Bearer nobody-token"}
	review := `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`
	for id, tc := range map[string]struct {
		code               int
		method, path, body string
		want               string
		header             []string
	}{
		"refused":    {403, "DELETE", planetest.WidgetsPath + "/a", "", "REFUSED authorization 403", nobody},
		"denied":     {403, "DELETE", planetest.WidgetsPath + "/precious", "", "REFUSED authorization 403 t/denies/keep-precious", nil},
		"body":       {400, "POST", planetest.WidgetsPath, "{", "REFUSED decode 400", nil},
		"schema":     {422, "POST", planetest.WidgetsPath, planetest.Widget("x", -1), "REFUSED schema 422 widgets.example.com/schema", nil},
		"validation": {422, "POST", planetest.WidgetsPath, planetest.Widget("x", 11), "REFUSED validation 422 t/validate/size-limit/max", nil},
		"exists":     {409, "POST", planetest.WidgetsPath, planetest.Widget("a", 1), "CONFLICT commit 409", nil},
		"unchanged":  {200, "PATCH", planetest.WidgetsPath + "/a", `{"spec":{"size":1}}`, "UNCHANGED commit 200", merge},
		"dry":        {201, "POST", planetest.WidgetsPath + "?dryRun=All", planetest.Widget("x", 1), "DRY_RUN commit 201", nil},
		"none":       {200, "DELETE", planetest.WidgetsPath + "?labelSelector=x%3Dy", "", "UNCHANGED answer 200", nil},
		"review":     {201, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, "DONE answer 201", nil},
		"path":       {403, "GET", "/metrics", "", "REFUSED authorization 403", nobody},
		"read":       {403, "GET", planetest.WidgetsPath, "", "REFUSED authorization 403", nobody},
		"written":    {201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1), "0 decisions", nil},
		"deleted":    {200, "DELETE", planetest.WidgetsPath + "?fieldSelector=metadata.name%3Db", "", "0 decisions", nil},
		"got":        {200, "GET", planetest.WidgetsPath + "/a", "", "0 decisions", nil},
		"missing":    {404, "GET", planetest.WidgetsPath + "/zzz", "", "0 decisions", nil},
	} {
		if id == "deleted" {
			p.Do("POST", planetest.WidgetsPath, planetest.Widget("b", 1))
		}
		p.Must(t, tc.code, tc.method, tc.path, tc.body, append(tc.header, "Audit-ID", id)...)
		if got := decided(p, t, id); got != tc.want {
			t.Errorf("%s: %s, want %s", id, got, tc.want)
		}
	}
	e := p.Decisions(t, "validation")[0]
	d := e.Meta.GetDecision()
	if d.GetRevision() == 0 || len(e.Meta.GetPolicyDigest()) == 0 || e.Meta.GetActor().GetUser() != "admin" || e.Meta.GetObject().GetResource() != "widgets" || d.GetSource() == "" ||
		d.GetFlowSchema() == "" || e.Meta.GetDecisions().GetRule() == "" || string(e.Content(logpb.Role_ROLE_REQUEST)) != planetest.Widget("x", 11) {
		t.Errorf("a refusal is recorded as %v, %s", e.Meta, e.Contents)
	}
}

// Refusals of schemas name the line, or the CEL rule, and creates name the object, also if the server was to make the name.
func TestRefusalsNameRuleLineAndObject(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Push(t, planetest.PolicyBody(t, strings.Replace(planetest.Bundle, "			additionalPrinterColumns", `			validations: even: {rule: "self.spec.size % 2 == 0", message: "must be even"}
			additionalPrinterColumns`, 1), nil))
	generated := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"generateName":"made-"},"spec":{"size":3}}`
	for id, tc := range map[string]struct {
		code             int
		body, rule, name string
	}{
		"bound":     {422, planetest.Widget("x", -1), "widgets.example.com/schema", "x"},
		"cel":       {422, planetest.Widget("y", 3), "widgets.example.com/validations/even", "y"},
		"generated": {422, generated, "widgets.example.com/validations/even", "made-"},
		"elsewhere": {400, `{"metadata":{"name":"z","namespace":"other"},"spec":{"size":2}}`, "", ""},
	} {
		p.Must(t, tc.code, "POST", planetest.WidgetsPath, tc.body, "Audit-ID", id)
		m := p.Decisions(t, id)[0].Meta
		d := m.GetDecision()
		if d.GetRule() != tc.rule || strings.Contains(d.GetSource(), ".cue:") != (tc.rule != "") || tc.name == "" && m.GetObject().GetName() != "" || !strings.HasPrefix(m.GetObject().GetName(), tc.name) {
			t.Errorf("%s: rule %q at %q, object %q", id, d.GetRule(), d.GetSource(), m.GetObject().GetName())
		}
	}
}

// URIs in events and records have no credentials, and no values of secret fields.
func TestRecordedURIsHaveNoSecrets(t *testing.T) {
	p := newAudited(t, `rest: {order: 1, level: "Metadata"}`)
	const secret = "s3cr3t-v4lue"
	p.Must(t, 201, "POST", planetest.WidgetsPath+"?access_token="+secret+"&fieldManager=me", planetest.Widget("a", 1), "Audit-ID", "write")
	for id, path := range map[string]string{
		"token":    planetest.WidgetsPath + "?X-Amz-Security-Token=" + secret + "&limit=5",
		"selector": "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dx,data.password%3D" + secret,
		"pattern":  "/api/v1/namespaces/default/secrets?fieldSelector=" + secret,
		"plain":    planetest.WidgetsPath + "?labelSelector=owner%3Dann&limit=5",
	} {
		p.Do("GET", path, "", "Audit-ID", id)
		m := p.Decisions(t, id)[0].Meta
		if uri := m.GetRequest().GetUri(); strings.Contains(uri, secret) || strings.Contains(path, secret) != strings.Contains(uri, "hidden") || id == "plain" && uri != path {
			t.Errorf("%s: the record has the URI %s", id, uri)
		}
	}
	found := false
	for _, e := range p.Events(t, 0) {
		uri := e.Meta.GetRequest().GetUri()
		found = found || uri == planetest.WidgetsPath+"?access_token=hidden&fieldManager=me"
		if strings.Contains(uri, secret) {
			t.Errorf("an event has the URI %s", uri)
		}
	}
	if !found {
		t.Error("the event of the write has another URI")
	}
}

// Explained requests, and the parts of a collection, are not requests of their own.
func TestPartsOfRequestsAreNotRecorded(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("precious", 1))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 403, "DELETE", planetest.WidgetsPath, "", "Audit-ID", "collection")
	if got := len(p.Decisions(t, "collection")); got != 1 {
		t.Errorf("%d decisions about a collection of two", got)
	}
	spec := `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"delete","group":"example.com","version":"v1","resource":"widgets","namespace":"default","name":"precious"}}`
	p.Must(t, 201, "POST", planetest.ExplanationsPath, spec, "Audit-ID", "explained")
	if got := decided(p, t, "explained"); got != "DONE answer 201" {
		t.Errorf("an explanation: %s", got)
	}
}

// Reads are recorded if an audit rule selects them, at its level.
func TestSelectedReadsAreRecorded(t *testing.T) {
	p := newAudited(t, `
		widgets: {order: 1, level: "RequestResponse", apiGroups: ["example.com"], resources: ["widgets"]}
		secrets: {order: 2, level: "RequestResponse", apiGroups: [""], resources: ["secrets"]}`)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	got := p.Must(t, 200, "GET", planetest.WidgetsPath+"/a", "", "Audit-ID", "get")
	p.Must(t, 200, "GET", planetest.WidgetsPath, "", "Audit-ID", "list", "Accept-Encoding", "gzip")
	p.Must(t, 404, "GET", planetest.WidgetsPath+"/b", "", "Audit-ID", "missing")
	p.Must(t, 200, "GET", "/api/v1/namespaces/default", "", "Audit-ID", "other")
	for id, want := range map[string]string{"get": "READ answer 200", "list": "READ answer 200", "missing": "READ answer 404", "other": "0 decisions"} {
		if got := decided(p, t, id); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
	e := p.Decisions(t, "get")[0]
	if a := e.Meta.GetDecisions().GetAudit(); a.GetRule() != "audit/rules/widgets" || string(e.Content(logpb.Role_ROLE_RESPONSE)) != string(got.Body) {
		t.Errorf("the rule is %v, the answer %s, want %s", a, e.Contents, got.Body)
	}
	if text := string(p.Decisions(t, "list")[0].Content(logpb.Role_ROLE_RESPONSE)); !strings.Contains(text, `"kind":"WidgetList"`) {
		t.Errorf("the list is recorded as %q", text)
	}

	secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"password":"hunter2"}}`
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets?dryRun=All", secret, "Audit-ID", "secret")
	dry := p.Decisions(t, "secret")[0]
	for _, c := range dry.Contents {
		if !strings.Contains(string(c), `"password":"hmac-sha256:`) || strings.Contains(string(c), "hunter2") || strings.Contains(string(c), "aHVudGVyMg") {
			t.Errorf("a secret is recorded as %s", c)
		}
	}
	if len(dry.Contents) != 2 {
		t.Errorf("a dry run has %d contents, want the body and the answer", len(dry.Contents))
	}
}

// A watch that is recorded has two records: when it starts, and when it ends.
func TestAWatchIsRecordedAtItsStartAndEnd(t *testing.T) {
	p := newAudited(t, `all: {order: 1, level: "Metadata"}`)
	q := planetest.Request("GET", planetest.WidgetsPath+"?watch=true&timeoutSeconds=1", "", "Audit-ID", "watch")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ServeHTTP(httptest.NewRecorder(), q.WithContext(ctx))
	}()
	for len(p.Decisions(t, "watch")) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	var stages []uint32
	for _, e := range p.Decisions(t, "watch") {
		stages = append(stages, e.Meta.GetDecision().GetAuditStage())
	}
	if fmt.Sprint(stages) != "[4 2]" {
		t.Errorf("the stages of the records are %v, the newest first", stages)
	}
}

// What may be a secret in a request is not recorded: neither in its headers and its query nor in a body that cannot be decoded.
func TestSecretsOfRequestsAreNotRecorded(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	nobody := []string{"Authorization", "Bearer nobody-token", "Cookie", "session=hunter2"}
	p.Must(t, 403, "POST", "/api/v1/namespaces/default/secrets?token=hunter2&x=y", `{"stringData":{"a":"hunter2"}}`, append(nobody, "Audit-ID", "secret")...)
	p.Must(t, 403, "POST", "/api/v1/namespaces/default/secrets", `{"stringData: hunter2`, append(nobody, "Audit-ID", "garbled")...)
	p.Must(t, 403, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"hunter2"}}`, append(nobody, "Audit-ID", "review")...)
	for _, id := range []string{"secret", "garbled", "review"} {
		e := p.Decisions(t, id)[0]
		text := fmt.Sprint(e.Meta)
		for _, c := range e.Contents {
			text += string(c)
		}
		if strings.Contains(text, "hunter2") || strings.Contains(text, "nobody-token") {
			t.Errorf("%s is recorded with its secret: %s", id, text)
		}
		if len(e.Contents) != 1 || !strings.Contains(string(e.Contents[0]), "hmac-sha256:") {
			t.Errorf("%s is recorded without the hash of its secret: %s", id, e.Contents)
		}
	}
	if uri := p.Decisions(t, "secret")[0].Meta.GetRequest().GetUri(); uri != "/api/v1/namespaces/default/secrets?token=hidden&x=y" {
		t.Errorf("the URI is %s", uri)
	}
}

// The record of a read of the past names the moment.
func TestRecordsOfThePastNameTheMoment(t *testing.T) {
	p := newAudited(t, `all: {order: 1, level: "Metadata"}`)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	then := fmt.Sprintf("/at/%d", p.Committer.Tip().Revision())
	for id, q := range map[string]struct {
		code      int
		uri, want string
	}{
		"revision": {200, then + planetest.WidgetsPath + "/a?token=x", then + planetest.WidgetsPath + "/a?token=hidden"},
		"list":     {200, then + planetest.WidgetsPath, then + planetest.WidgetsPath},
		"path":     {200, then + "/version", then + "/version"},
		"future":   {504, "/at/99999" + planetest.WidgetsPath, "/at/99999" + planetest.WidgetsPath},
		"none":     {400, "/at/never" + planetest.WidgetsPath, "/at/never" + planetest.WidgetsPath},
		"present":  {200, planetest.WidgetsPath, planetest.WidgetsPath},
	} {
		p.Must(t, q.code, "GET", q.uri, "", "Audit-ID", id)
		if got := p.Decisions(t, id)[0].Meta.GetRequest().GetUri(); got != q.want {
			t.Errorf("%s is recorded as %s, want %s", q.uri, got, q.want)
		}
	}
	if e := p.Must(t, 200, "GET", "/apis/policy.stele.dev/v1/explanations/revision", ""); !strings.Contains(string(e.Body), `"name":"a"`) || !strings.Contains(string(e.Body), "GET "+then+planetest.WidgetsPath) {
		t.Errorf("the read is explained as %s", e.Body)
	}
}

// What quotes secrets of objects is recorded with hashes: answers about changes, decisions and blame, the object of a question, and the rows of
// views, whose cells and names are made of them.
func TestQuotedSecretsAreNotRecorded(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	text := strings.Replace(planetest.Audited(`all: {order: 1, level: "RequestResponse"}`), "owner?:", "token?: string @stele(sensitive)\n\t\towner?:", 1)
	p.Bootstrap(t, strings.Replace(text, `kinds: "plains.example.com"`, `views: {
			tokens: {kind: "widgets.example.com", version: "v1", columns: {
				size: {expression: "object.spec.size", type: "integer"}
				token: {expression: "object.spec.token", type: "string"}
				both: {expression: "object.spec.?token.orValue('') + '!'", type: "string"}
			}}
			"token-groups": {kind: "widgets.example.com", version: "v1", groupBy: ["token"], columns: token: {expression: "object.spec.token", type: "string"}}
		}
		kinds: "plains.example.com"`, 1))
	secret := strings.Replace(planetest.Widget("a", 7), `"size":7`, `"size":7,"token":"hunter2"`, 1)
	p.Must(t, 201, "POST", planetest.WidgetsPath, secret, "Audit-ID", "create")
	p.Must(t, 201, "POST", planetest.WidgetsPath+"?dryRun=All", strings.Replace(secret, `"a"`, `"b"`, 1), "Audit-ID", "dry")
	const log, views, table = "/apis/log.stele.dev/v1", "/apis/views.stele.dev/v1", "application/json;as=Table;v=v1;g=meta.k8s.io"
	for id, q := range map[string][]string{
		"changes":      {"GET", log + "/namespaces/default/changes", ""},
		"change":       {"GET", log + "/namespaces/default/changes?fieldSelector=object.name%3Da", ""},
		"decisions":    {"GET", log + "/decisions?bodies=true&fieldSelector=request.auditID%3Dcreate", ""},
		"dry decision": {"GET", log + "/namespaces/default/decisions/dry", ""},
		"blame":        {"POST", log + "/blames", `{"apiVersion":"log.stele.dev/v1","kind":"Blame","spec":{"group":"example.com","resource":"widgets","namespace":"default","name":"a"}}`},
		"explanation":  {"POST", "/apis/policy.stele.dev/v1/explanations", `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"create","group":"example.com","version":"v1","resource":"widgets","namespace":"default","object":` + secret + `}}`},
		"view":         {"GET", views + "/tokens", ""},
		"row":          {"GET", views + "/namespaces/default/tokens/a", ""},
		"table":        {"GET", views + "/tokens", "", "Accept", table},
		"groups":       {"GET", views + "/token-groups", ""},
		"group table":  {"GET", views + "/token-groups", "", "Accept", table},
		"column":       {"GET", views + "/tokens?fieldSelector=columns.token%3Dhunter2", ""},
	} {
		code := 200
		if q[0] == "POST" {
			code = 201
		}
		if got := p.Must(t, code, q[0], q[1], q[2], append(q[3:], "Audit-ID", id)...); q[0] == "GET" && id != "dry decision" && !strings.Contains(string(got.Body), "hunter2") {
			t.Errorf("%s: the client does not see the secret: %s", id, got.Body)
		}
		e := p.Decisions(t, id)[0]
		recorded := e.Meta.GetRequest().GetUri()
		for _, c := range e.Contents {
			recorded += "\n" + string(c)
		}
		if strings.Contains(recorded, "hunter2") || !strings.Contains(recorded, "hmac-sha256:") {
			t.Errorf("%s is recorded as %s", id, recorded)
		}
		if q[1] == views+"/tokens" && len(q) == 3 && !strings.Contains(recorded, `"size":7`) {
			t.Errorf("%s: columns without secrets are hashed, too: %s", id, recorded)
		}
	}
}

// A field that is a secret today is recorded with a hash also in a read of a moment at which it was none.
func TestSecretsOfThePastAreNotRecorded(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	text := planetest.Audited(`all: {order: 1, level: "RequestResponse"}`)
	p.Bootstrap(t, strings.Replace(text, "owner?:", "token?: string\n\t\towner?:", 1))
	p.Must(t, 201, "POST", planetest.WidgetsPath, strings.Replace(planetest.Widget("a", 7), `"size":7`, `"size":7,"token":"hunter2"`, 1))
	then := fmt.Sprintf("/at/%d", p.Committer.Tip().Revision())
	p.Push(t, planetest.PolicyBody(t, strings.Replace(text, "owner?:", "token?: string @stele(sensitive)\n\t\towner?:", 1), nil))
	for id, path := range map[string]string{"object": "/a", "list": ""} {
		if got := p.Must(t, 200, "GET", then+planetest.WidgetsPath+path, "", "Audit-ID", id); !strings.Contains(string(got.Body), "hunter2") {
			t.Errorf("the client does not see the secret: %s", got.Body)
		}
		if recorded := string(p.Decisions(t, id)[0].Content(logpb.Role_ROLE_RESPONSE)); strings.Contains(recorded, "hunter2") || !strings.Contains(recorded, "hmac-sha256:") {
			t.Errorf("%s is recorded as %s", id, recorded)
		}
	}
}

// Refusals are explained by their audit ID, also after a restart.
func TestRefusalsAreExplainedAfterARestart(t *testing.T) {
	var store memlog.Store
	dir := t.TempDir()
	first := planetest.StartIn(t, store.Open(nil), planetest.Options{Dir: dir})
	first.Bootstrap(t, planetest.Ruled)
	first.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("precious", 1))
	first.Must(t, 403, "DELETE", planetest.WidgetsPath+"/precious", "", "Audit-ID", "denied")
	first.Must(t, 422, "POST", planetest.WidgetsPath, planetest.Widget("x", 11), "Audit-ID", "invalid")
	first.Close()

	again := planetest.StartIn(t, store.Open(nil), planetest.Options{Dir: dir})
	for id, want := range map[string]explain.Stage{
		"denied":  {Name: "authorization", Verdict: "refused", Rule: "t/denies/keep-precious"},
		"invalid": {Name: "validation", Verdict: "refused", Rule: "t/validate/size-limit/max"},
	} {
		var e explain.Explanation
		if err := json.Unmarshal(again.Must(t, 200, "GET", planetest.ExplanationsPath+"/"+id, "").Body, &e); err != nil {
			t.Fatal(err)
		}
		last := e.Status.Stages[len(e.Status.Stages)-1]
		if last.Name != want.Name || last.Verdict != want.Verdict || last.Rule != want.Rule || !strings.HasPrefix(last.Source, "bundle.cue:") || last.Message == "" ||
			e.Status.Allowed || e.Spec.User != "admin" || e.Spec.Resource != "widgets" || e.Status.Policy == "" || e.Status.Revision == 0 {
			t.Errorf("%s: %+v", id, e)
		}
	}
}

// A rule with sync makes the answer wait for its record. Without a record there is no answer.
func TestSyncRulesAnswerOnlyWhatIsRecorded(t *testing.T) {
	p := newAudited(t, `
		widgets: {order: 1, level: "Metadata", apiGroups: ["example.com"], resources: ["widgets"], sync: true}`)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	recorded := func(id string) (n int) {
		batches, err := p.Plane.Decisions.Log().Back(t.Context(), math.MaxInt64, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range batches[0].Events {
			if e.Meta.GetRequest().GetAuditId() == id {
				n++
			}
		}
		return n
	}
	for id, tc := range map[string]struct {
		code               int
		method, path, body string
	}{
		"get": {200, "GET", planetest.WidgetsPath + "/a", ""}, "list": {200, "GET", planetest.WidgetsPath, ""}, "dry": {201, "POST", planetest.WidgetsPath + "?dryRun=All", planetest.Widget("b", 1)},
		"refused": {422, "POST", planetest.WidgetsPath, planetest.Widget("b", -1)},
	} {
		w := &atHeader{ResponseWriter: httptest.NewRecorder(), first: func() {
			if recorded(id) != 1 {
				t.Errorf("%s: the header is sent before the record is written", id)
			}
		}}
		q := planetest.Request(tc.method, tc.path, tc.body, "Audit-ID", id)
		p.ServeHTTP(w, q)
		if w.code != tc.code || recorded(id) != 1 {
			t.Errorf("%s: code %d, %d records", id, w.code, recorded(id))
		}
	}

	if err := p.Plane.Decisions.Log().Close(); err != nil { // from here on nothing can be written
		t.Fatal(err)
	}
	p.Do("GET", planetest.WidgetsPath+"/a", "").Refuses(t, 503, "audit/rules/widgets requires a record", "could not be recorded")
	p.Do("POST", planetest.WidgetsPath, planetest.Widget("b", -1)).Refuses(t, 503, "requires a record")
	p.Must(t, 200, "GET", "/api/v1/namespaces/default", "")
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("c", 1)) // its event is its record
	if p.Plane.Decisions.Health() == nil {
		t.Error("the log of decisions is healthy")
	}
	if metrics := p.Must(t, 200, "GET", "/metrics", "").String(); !strings.Contains(metrics, "\napiserver_audit_requests_rejected_total 2\n") {
		t.Error("the two requests that were rejected are not counted")
	}
}

// With sync at RequestResponse, the record that an answer waits for has its body, unless it is large.
func TestSyncRulesRecordTheBodyOfTheAnswer(t *testing.T) {
	p := newAudited(t, `
		widgets: {order: 1, level: "RequestResponse", apiGroups: ["example.com"], resources: ["widgets"], sync: true}`)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	for i := range 40 {
		p.Must(t, 201, "POST", planetest.WidgetsPath, fmt.Sprintf(`{"metadata":{"name":"w%d","annotations":{"a":%q}},"spec":{"size":1}}`, i, strings.Repeat("x", 4096)))
	}
	for id, path := range map[string]string{"get": planetest.WidgetsPath + "/a", "missing": planetest.WidgetsPath + "/none", "large": planetest.WidgetsPath, "few": planetest.WidgetsPath + "?limit=2"} {
		for _, encoding := range []string{"identity", "gzip"} {
			id := id + "-" + encoding
			recorded := ""
			w := &atHeader{ResponseWriter: httptest.NewRecorder()}
			w.first = func() {
				if e := p.Decisions(t, id); len(e) == 1 {
					recorded = string(e[0].Content(logpb.Role_ROLE_RESPONSE))
				} else {
					t.Errorf("%s: %d records before the header is sent", id, len(e))
				}
			}
			p.ServeHTTP(w, planetest.Request("GET", path, "", "Audit-ID", id, "Accept-Encoding", encoding))
			plain := p.Do("GET", path, "").String()
			body := w.ResponseWriter.(*httptest.ResponseRecorder).Body.String()
			switch {
			case strings.HasPrefix(id, "large"):
				if recorded != "" || len(body) == 0 || encoding == "identity" && len(body) < 100<<10 {
					t.Errorf("%s: %d bytes are recorded of an answer of %d", id, len(recorded), len(body))
				}
			case strings.HasPrefix(id, "missing"):
				if w.code != 404 {
					t.Errorf("%s: code %d", id, w.code)
				}
			case encoding == "identity" && (recorded != body || recorded == "") || !strings.HasSuffix(strings.TrimSpace(plain), strings.TrimSpace(recorded)):
				t.Errorf("%s: recorded is\n%.300s\nthe answer is\n%.300s", id, recorded, plain)
			}
		}
	}
	if err := p.Plane.Decisions.Log().Close(); err != nil { // from here on nothing can be written
		t.Fatal(err)
	}
	p.Do("GET", planetest.WidgetsPath+"/a", "").Refuses(t, 503, "audit/rules/widgets requires a record")
	p.Do("GET", planetest.WidgetsPath, "").Refuses(t, 503, "audit/rules/widgets requires a record")
}

// atHeader is a ResponseWriter that calls a function before the header is written.
type atHeader struct {
	http.ResponseWriter
	first func()
	code  int
}

func (w *atHeader) WriteHeader(code int) {
	w.first()
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// A flood of requests without credentials takes little of the disk, and every one of them is counted.
func TestAFloodOfAnonymousRequestsIsCounted(t *testing.T) {
	var store memlog.Store
	dir := t.TempDir()
	anonymous := plane.Authentication{Anonymous: &apiserver.AnonymousAuthConfig{Enabled: true}}
	p := planetest.StartIn(t, store.Open(nil), planetest.Options{Dir: dir, Config: plane.Config{Authentication: anonymous}})
	p.Bootstrap(t, planetest.Bundle)
	const n = 4000
	for i := range n {
		q := httptest.NewRequest("GET", planetest.WidgetsPath+"/"+strings.Repeat("x", i%1000), nil)
		q.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i%250)
		p.ServeHTTP(httptest.NewRecorder(), q)
	}
	p.Close()
	var size, one, counted int64
	files, err := filepath.Glob(filepath.Join(dir, "decisions", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	again := planetest.StartIn(t, store.Open(nil), planetest.Options{Dir: dir})
	batches, err := again.Plane.Decisions.Log().Back(t.Context(), math.MaxInt64, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		for _, e := range b.Events {
			switch m := e.Meta; {
			case m.GetDecision() != nil:
				one++
			case m.GetDecisionsCounted() != nil:
				counted += int64(m.GetDecisionsCounted().GetCount())
			}
		}
	}
	if one+counted != n || one < 100 || counted < 100 {
		t.Errorf("%d are recorded one by one, %d are counted, of %d", one, counted, n)
	}
	if size > 1<<20 {
		t.Errorf("the log takes %d bytes", size)
	}
}

// Wrong credentials are counted, by the network and what is wrong, and not recorded one by one.
func TestFailedAuthenticationsOfRequestsAreCounted(t *testing.T) {
	var store memlog.Store
	dir := t.TempDir()
	p := planetest.StartIn(t, store.Open(nil), planetest.Options{Dir: dir})
	p.Bootstrap(t, planetest.Bundle)
	for range 3 {
		p.Must(t, 401, "GET", planetest.WidgetsPath, "", "Authorization", "Bearer wrong")
	}
	q := httptest.NewRequest("GET", planetest.WidgetsPath, nil) // without credentials
	p.ServeHTTP(httptest.NewRecorder(), q)
	p.Close()
	again := planetest.StartIn(t, store.Open(nil), planetest.Options{Dir: dir})
	batches, err := again.Plane.Decisions.Log().Back(t.Context(), math.MaxInt64, 100)
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]uint64{}
	for _, b := range batches {
		for _, e := range b.Events {
			if c := e.Meta.GetDecisionsCounted(); c != nil {
				counted[c.GetLike().GetOutcome().String()+" "+c.GetLike().GetReason()] += c.GetCount()
			} else if e.Meta.GetDecision() != nil {
				t.Errorf("recorded: %v", e.Meta)
			}
		}
	}
	if counted["OUTCOME_UNAUTHENTICATED token: unknown"] != 3 || counted["OUTCOME_UNAUTHENTICATED Unauthorized"] != 1 || len(counted) != 2 {
		t.Errorf("counted: %v", counted)
	}
}
