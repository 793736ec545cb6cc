package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/policy/importing"
)

// auditPolicy is what both servers record: the level of a request is that of its user.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, userGroups: ["system:serviceaccounts"]}
- {level: RequestResponse, users: [full]}
- {level: Request, users: [half], omitManagedFields: true}
- {level: Metadata, users: [meta], omitStages: [RequestReceived]}
- {level: None, users: ["system:apiserver"]}
- {level: RequestResponse, users: [ana]}
- {level: Metadata}
`

// recordedAs are the users in whose name the requests are sent, with one level each. They may do everything.
var recordedAs = []string{"full", "half", "meta"}

// recorded is a request that both servers record. In path, header and body, «revision» is the resourceVersion of the
// Widget a, and «user» the user of recordedAs.
type recorded struct {
	name, method, path string
	header             map[string]string
	body               string
	code               int
	stele              *recorded // what is sent to stele instead
}

const widgetsPath = "/apis/example.com/v1/namespaces/default/widgets"

// recordedRequests is one after the other, for each user of recordedAs.
func recordedRequests() []recorded {
	widget := func(name, spec string) string {
		return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `","labels":{"app":"x"}},"spec":{` + spec + `}}`
	}
	revised := func(spec string) string {
		return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"«revision»","labels":{"app":"x"}},"spec":{` + spec + `}}`
	}
	form := func(media string) map[string]string { return map[string]string{"Content-Type": media} }
	as := func(user string) map[string]string { return map[string]string{"Authorization": "Bearer " + user} }
	impersonating := func(user string) map[string]string { return map[string]string{"Impersonate-User": user} }
	const a = widgetsPath + "/a"
	return []recorded{
		{name: "create", method: "POST", path: widgetsPath, body: widget("a", `"color":"red"`), code: 201},
		{name: "create with a generated name", method: "POST", path: widgetsPath + "?fieldManager=hand", body: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"generateName":"made-1-"},"spec":{"color":"red"}}`, code: 201},
		{name: "create that exists", method: "POST", path: widgetsPath, body: widget("a", `"color":"red"`), code: 409},
		{name: "create that is invalid", method: "POST", path: widgetsPath, body: widget("b", `"color":"pink"`), code: 422},
		{name: "create that is not JSON", method: "POST", path: widgetsPath, body: `{"apiVersion":`, code: 400},
		{name: "create with an unknown field", method: "POST", path: widgetsPath + "?fieldValidation=Strict", body: widget("b", `"color":"red","more":1`), code: 400},
		{name: "create as YAML", method: "POST", path: widgetsPath, header: form("application/yaml"), body: "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: yaml}\nspec: {color: red}\n", code: 201},
		{name: "create in a dry run", method: "POST", path: widgetsPath + "?dryRun=All", body: widget("dry", `"color":"red"`), code: 201},
		{name: "create without metadata.name", method: "POST", path: widgetsPath, body: `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"color":"red"}}`, code: 422},
		{name: "create in another version", method: "POST", path: "/apis/example.com/v1beta1/namespaces/default/widgets", body: strings.Replace(widget("beta", `"color":"red"`), "/v1", "/v1beta1", 1), code: 201},
		{name: "get", method: "GET", path: a, code: 200},
		{name: "get of nothing", method: "GET", path: widgetsPath + "/nothing", code: 404},
		{name: "get of an unknown resource", method: "GET", path: "/apis/example.com/v1/namespaces/default/nothings/a", code: 404},
		{name: "get of a form that is not served", method: "GET", path: a, header: map[string]string{"Accept": "image/png"}, code: 406},
		{name: "list", method: "GET", path: widgetsPath + "?labelSelector=app%3Dx", code: 200},
		{name: "list of one name", method: "GET", path: widgetsPath + "?fieldSelector=metadata.name%3Da", code: 200},
		{name: "list of all namespaces", method: "GET", path: "/apis/example.com/v1/widgets?limit=1", code: 200},
		{name: "list as a table", method: "GET", path: widgetsPath + "?labelSelector=app%3Dx", header: map[string]string{"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}, code: 200},
		{name: "list of metadata", method: "GET", path: widgetsPath + "?labelSelector=app%3Dx", header: map[string]string{"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}, code: 200},
		{name: "list from an old page", method: "GET", path: widgetsPath + "?limit=1&continue=x", code: 400},
		{name: "watch", method: "GET", path: widgetsPath + "?watch=1&timeoutSeconds=1", code: 200},
		{name: "watch of a bad selector", method: "GET", path: widgetsPath + "?watch=1&fieldSelector=spec.unknown%3D1", code: 400},
		{name: "update", method: "PUT", path: a, body: revised(`"color":"green"`), code: 200},
		{name: "update that changes nothing", method: "PUT", path: a, body: revised(`"color":"green"`), code: 200},
		{name: "update of an old revision", method: "PUT", path: a, body: strings.Replace(revised(`"color":"red"`), "«revision»", "1", 1), code: 409},
		{name: "update of nothing", method: "PUT", path: widgetsPath + "/nothing", body: widget("nothing", `"color":"red"`), code: 404},
		{name: "update of another name", method: "PUT", path: a, body: widget("b", `"color":"red"`), code: 400},
		{name: "JSON patch", method: "PATCH", path: a, header: form("application/json-patch+json"), body: `[{"op":"add","path":"/spec/replicas","value":2}]`, code: 200},
		{name: "JSON patch that fails", method: "PATCH", path: a, header: form("application/json-patch+json"), body: `[{"op":"test","path":"/spec/color","value":"none"}]`, code: 422},
		{name: "merge patch", method: "PATCH", path: a, header: form("application/merge-patch+json"), body: `{"spec":{"replicas":3}}`, code: 200},
		{name: "merge patch that is invalid", method: "PATCH", path: a, header: form("application/merge-patch+json"), body: `{"spec":{"replicas":-3}}`, code: 422},
		{name: "merge patch of nothing", method: "PATCH", path: widgetsPath + "/nothing", header: form("application/merge-patch+json"), body: `{"spec":{"replicas":3}}`, code: 404},
		{name: "strategic merge patch", method: "PATCH", path: a, header: form("application/strategic-merge-patch+json"), body: `{"spec":{"replicas":3}}`, code: 415},
		{name: "apply that creates", method: "PATCH", path: widgetsPath + "/applied?fieldManager=kubectl", header: form("application/apply-patch+yaml"), body: "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: applied}\nspec: {color: red}\n", code: 201},
		{name: "apply in conflict", method: "PATCH", path: widgetsPath + "/applied?fieldManager=other", header: form("application/apply-patch+yaml"), body: widget("applied", `"color":"blue"`), code: 409},
		{name: "apply with force", method: "PATCH", path: widgetsPath + "/applied?fieldManager=other&force=true", header: form("application/apply-patch+yaml"), body: widget("applied", `"color":"blue"`), code: 200},
		{name: "update of the status", method: "PUT", path: a + "/status", body: strings.Replace(revised(`"color":"red"`), `"spec":`, `"status":{"replicas":1},"spec":`, 1), code: 200},
		{name: "patch of the status", method: "PATCH", path: a + "/status", header: form("application/merge-patch+json"), body: `{"status":{"ready":true}}`, code: 200},
		{name: "get of the status", method: "GET", path: a + "/status", code: 200},
		{name: "get of the scale", method: "GET", path: a + "/scale", code: 200},
		{name: "update of the scale", method: "PUT", path: a + "/scale", body: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","namespace":"default"},"spec":{"replicas":4}}`, code: 200},
		{name: "patch of the scale", method: "PATCH", path: a + "/scale", header: form("application/merge-patch+json"), body: `{"spec":{"replicas":5}}`, code: 200},
		{name: "a method that is not allowed", method: "DELETE", path: a + "/status", code: 405},
		{name: "a path", method: "GET", path: "/version", code: 200},
		{name: "discovery", method: "GET", path: "/apis/example.com", code: 200},
		{name: "a path of nothing", method: "GET", path: "/nothing/here?x=1", code: 404},
		{name: "impersonation", method: "GET", path: a, header: impersonating("ana"), code: 200},
		{name: "impersonation of a user without rights", method: "DELETE", path: a, header: impersonating("ana"), code: 403},
		{name: "impersonation that is not allowed", method: "GET", path: a, header: map[string]string{"Authorization": "Bearer ana", "Impersonate-User": "full"}, code: 403},
		{name: "one who may", method: "GET", path: a, header: as("ana"), code: 200},
		{name: "user without rights", method: "POST", path: widgetsPath, header: as("ana"), body: widget("b", `"color":"red"`), code: 403},
		{name: "nobody", method: "GET", path: a, header: map[string]string{"Authorization": ""}, code: 403},
		{name: "wrong credentials", method: "GET", path: a, header: as("wrong"), code: 401},
		{name: "a body that is too large", method: "POST", path: widgetsPath, body: widget("b", `"color":"`+strings.Repeat("x", 3<<20)+`"`), code: 413},
		{name: "delete in a dry run", method: "DELETE", path: a + "?dryRun=All", code: 200},
		{name: "delete of another object", method: "DELETE", path: a, body: `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"other"}}`, code: 409},
		{name: "delete", method: "DELETE", path: a, body: `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}`, code: 200},
		{name: "delete of nothing", method: "DELETE", path: a, code: 404},
		{name: "deletecollection", method: "DELETE", path: widgetsPath + "?labelSelector=app%3Dx", code: 200},
		{name: "deletecollection of what is left", method: "DELETE", path: widgetsPath, code: 200},
		{name: "deletecollection of nothing", method: "DELETE", path: widgetsPath, code: 200},
		{name: "panic", method: "POST", path: widgetsPath, header: form("application/vnd.kubernetes.protobuf"), body: `{"no":"protobuf"}`, code: broken,
			stele: &recorded{method: "GET", path: "/panic", code: 500}},
	}
}

// What the audit log has of a request is what that of upstream's server has, whatever the level, but for the differences of
// intendedInRecords. Each of these must occur, so that none is excused that has gone, but for the one of slow requests.
func TestTheSameAuditEvents(t *testing.T) {
	judge, judged, logs := startRecording(t)
	requests := recordedRequests()
	var sending sync.WaitGroup
	for _, p := range []*peer{judge, judged} {
		sending.Go(func() { p.sendAllRecorded(t, requests) })
	}
	sending.Wait()
	occur := make([]bool, len(intendedInRecords))
	for _, user := range recordedAs {
		for i := range requests {
			q := &requests[i]
			id := recordedID(*q, user)
			want := recordedEvents(t, logs[0], judge, id, 1)
			steles := 1
			if q.code == http.StatusUnauthorized {
				steles = 0
			}
			got := recordedEvents(t, logs[1], judged, id, steles)
			for j := range intendedInRecords {
				before := differingRecords(want, got)
				want, got = intendedInRecords[j].excuse(q, want, got)
				occur[j] = occur[j] || differingRecords(want, got) != before
			}
			if diff := differingRecords(want, got); diff != "" {
				t.Errorf("%s, as %s (-upstream +stele):\n%s", q.name, user, diff)
			}
		}
	}
	for j := range intendedInRecords {
		if !occur[j] && intendedInRecords[j].why != ofSlowRequests {
			t.Errorf("does not occur: %s", intendedInRecords[j].why)
		}
	}
}

func differingRecords(upstreams, steles []map[string]any) string {
	body := func(events []map[string]any) any {
		stages := make(map[string]any, len(events))
		for i, e := range events {
			stages[fmt.Sprint(i, e["stage"])] = e
		}
		return stages
	}
	return leaves(flat(compared{Body: body(upstreams)}), flat(compared{Body: body(steles)}))
}

// sent returns the body of the request, as both servers may show it; nil if it has none.
func (q *recorded) sent() any {
	form := q.header["Content-Type"]
	switch {
	case q.body == "":
		return nil
	case strings.HasSuffix(form, "yaml"):
		form = "application/yaml"
	}
	return decoded(form, []byte(q.body))
}

func recordedID(q recorded, user string) string { return strings.ReplaceAll(user+" "+q.name, " ", "-") }

// sendAllRecorded sends all requests, one after the other.
func (p *peer) sendAllRecorded(t *testing.T, requests []recorded) {
	t.Helper()
	for _, user := range recordedAs {
		for _, q := range requests {
			if p.name == "stele" && q.stele != nil {
				name := q.name
				q = *q.stele
				q.name = name
			}
			if a := p.sendRecorded(t, q, user); a.code != q.code {
				t.Errorf("%s: %s, as %s: %d, want %d: %v", p.name, q.name, user, a.code, q.code, a.body)
			}
		}
	}
}

// sendRecorded sends a request whose audit ID is its name.
func (p *peer) sendRecorded(t *testing.T, q recorded, user string) *answer {
	t.Helper()
	revision := ""
	if strings.Contains(q.body, "«revision»") {
		revision, _ = field(p.do(t, "GET", widgetsPath+"/a", http.Header{"Authorization": {"Bearer admin"}}, nil).body, "metadata", "resourceVersion").(string)
	}
	body := []byte(strings.ReplaceAll(q.body, "«revision»", revision))
	header := http.Header{"Authorization": {"Bearer " + user}, "Audit-Id": {recordedID(q, user)}}
	if len(body) > 0 {
		header.Set("Content-Type", "application/json")
	}
	for name, value := range q.header {
		if header.Set(name, value); value == "" {
			header.Del(name)
		}
	}
	if len(body) == 0 {
		body = nil
	}
	a := p.do(t, q.method, q.path, header, body)
	p.seen(a.body)
	return a
}

// recordedEvents waits until a request has so many last events, and returns all of its events by their stages.
func recordedEvents(t *testing.T, file string, p *peer, id string, last int) (events []map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var lines []any
		ended := 0
		for line := range bytes.Lines(text) {
			if !bytes.Contains(line, []byte(`"auditID":"`+id+`"`)) {
				continue
			}
			event := decoded("application/json", line)
			p.seen(event)
			if stage := field(event, "stage"); stage == "ResponseComplete" || stage == "Panic" || fmt.Sprint(field(event, "responseStatus", "code")) == "401" {
				ended++
			}
			lines = append(lines, event)
		}
		if ended >= last {
			for _, e := range p.normal(lines).([]any) {
				events = append(events, e.(map[string]any))
			}
			order := []any{"RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"}
			slices.SortStableFunc(events, func(a, b map[string]any) int {
				return slices.Index(order, a["stage"]) - slices.Index(order, b["stage"])
			})
			return events
		}
		select {
		case <-ctx.Done():
			t.Errorf("%s: %s has no last event", p.name, id)
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// startRecording starts both servers with the same rules and users. logs are their audit files.
func startRecording(t *testing.T) (judge, judged *peer, logs [2]string) {
	t.Helper()
	dir := t.TempDir()
	rules := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(rules, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	imported := imports(t, []importing.Document{{Name: "audit-policy.yaml", Data: []byte(auditPolicy)}})
	files := map[string][]byte{"access.cue": []byte(`package conformance

bundle: authorizers: ["system:masters", "deny", "rbac"]
bundle: teams: t: rbac: {
	clusterRoles: reader: rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["get", "list", "watch"]}
	bindings: readers: {clusterRole: "reader", subjects: [{user: "ana"}], namespaces: ["default"]}
}
`)}
	for _, f := range imported.Files {
		files[f.Path] = f.Data
	}
	users := kubeconfigOf(t, startUsers(t))
	logs = [2]string{filepath.Join(dir, "upstream.log"), filepath.Join(dir, "stele.log")}
	judge = startUpstream(t, "", "--audit-policy-file", rules, "--audit-log-path", logs[0], "--authentication-kubeconfig", users, "--authorization-kubeconfig", users)
	judged = startStele(t, files, func(c *plane.Config) {
		c.AuditFile, c.Decisions.Unanchored = logs[1], true
		c.Authentication.Webhook.File, c.Authentication.Anonymous = users, &apiserver.AnonymousAuthConfig{Enabled: true}
		c.Routes = append(c.Routes, core.Route{Path: "/panic", Serve: func(*call.Call) error { panic("a route") }})
	})
	for _, p := range []*peer{judge, judged} {
		p.begin(t)
		config := rest.AnonymousClientConfig(p.config)
		config.UserAgent = "judge/1.0"
		var err error
		if p.client, err = rest.HTTPClientFor(config); err != nil {
			t.Fatal(err)
		}
	}
	return judge, judged, logs
}

// startUsers starts the server that both servers ask about tokens, and upstream's server about access.
func startUsers(t *testing.T) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var review map[string]any
		if err := json.NewDecoder(q.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		status := map[string]any{}
		switch token, _ := field(review, "spec", "token").(string); {
		case review["kind"] == "SubjectAccessReview":
			attributes := field(review, "spec", "resourceAttributes")
			status["allowed"] = field(review, "spec", "user") == "ana" && field(attributes, "resource") == "widgets" && slices.Contains([]any{"get", "list", "watch"}, field(attributes, "verb"))
			status["reason"] = fmt.Sprintf("the reason of %v", status["allowed"])
		case token == "wrong":
			status["authenticated"] = false
		default:
			user := map[string]any{"username": token, "uid": "uid-of-" + token, "groups": []string{"system:masters", "system:authenticated"}, "extra": map[string]any{"k": []string{"v"}}}
			if token == "ana" {
				user["groups"] = []string{"team", "system:authenticated"}
			}
			status["authenticated"], status["user"] = true, user
		}
		review["status"] = status
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
