package planetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/logtest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

// Audited returns the text of a bundle with audit rules.
func Audited(rules string) string {
	return strings.Replace(Bundle, `cluster: "test"`, "cluster: \"test\"\n\taudit: rules: {"+rules+"}", 1)
}

// LastEvent returns the newest event of the log.
func (r *Replica) LastEvent(t testing.TB) *eventlog.Event {
	t.Helper()
	events := r.Events(t, r.Committer.Tip().Revision()-1)
	return events[len(events)-1]
}

// Recorded is what an event has of the audit rule of its request: level, rule, and the body with its media type.
func (r *Replica) Recorded(t testing.TB) string {
	t.Helper()
	e := r.LastEvent(t)
	a := e.Meta.GetDecisions().GetAudit()
	text := strings.TrimPrefix(a.GetLevel().String(), "AUDIT_LEVEL_") + " " + a.GetRule()
	for i, p := range e.Meta.GetPayloads() {
		if p.GetRole() == logpb.Role_ROLE_REQUEST {
			text += fmt.Sprintf(" %s %s", p.GetMediaType(), e.Contents[i])
			if p.GetClass().GetSensitive() {
				text += " sensitive"
			}
		}
	}
	return text
}

// Sorted are the names of a list's objects.
func (a Answer) Sorted() []string {
	names := a.Names()
	slices.Sort(names)
	return names
}

// Fill creates widgets: red ones with the label app=x, and blue ones without.
func (r *Replica) Fill(t testing.TB, red, blue int) {
	t.Helper()
	for i := range red {
		r.Must(t, 201, "POST", WidgetsPath, fmt.Sprintf(`{"metadata":{"name":"r%d","labels":{"app":"x"}},"spec":{"size":%d,"color":"red"}}`, i, i+1))
	}
	for i := range blue {
		r.Must(t, 201, "POST", WidgetsPath, Widget(fmt.Sprint("b", i), i+1))
	}
}

// Events are those after a revision, in order.
func (r *Replica) Events(t testing.TB, after uint64) []*eventlog.Event {
	t.Helper()
	batches, err := r.Log.Back(t.Context(), r.Committer.Tip().Revision(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	var events []*eventlog.Event
	for _, b := range slices.Backward(batches) {
		for i, e := range b.Events {
			if b.First+uint64(i) > after {
				events = append(events, e)
			}
		}
	}
	return events
}

// Bundle is the policy of these tests. Roles are named for what they allow.
const Bundle = `
package test
import "stele.dev/policy"

#Widget: {
	spec!: {
		size!:  int & >0 & <=1000
		color:  *"blue" | "red" | "green"
		owner?: =~"^[a-z]+@example\\.com$"
		ports?: [...{name!: string, port!: int & >0}]
		limits?: [string]: int
		free?: {...}
	}
	status?: {ready?: bool, note: *"none" | string}
}
bundle: policy.#Bundle & {
	cluster: "test"
	quota: resources: "size.example.com": sums: widgets: {kind: "widgets.example.com", path: ".spec.size"}
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		kinds: "widgets.example.com": {
			group: "example.com"
			names: {kind: "Widget", plural: "widgets", shortNames: ["wd"]}
			storageVersion: "v1"
			versions: v1: {
				#schema: #Widget
				subresources: status: {}
				selectableFields: [".spec.color"]
				additionalPrinterColumns: [{name: "Size", type: "integer", jsonPath: ".spec.size"}]
			}
		}
		kinds: "plains.example.com": {
			group: "example.com"
			names: {kind: "Plain", plural: "plains"}
			scope: "Cluster"
			storageVersion: "v1"
			versions: v1: #schema: {spec?: {a?: int}}
		}
		rbac: {
			clusterRoles: widgets: rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["*"]}
			clusterRoles: "editors-helper": rules: {
				user: {apiGroups: [""], resources: ["users"], verbs: ["impersonate"], resourceNames: ["eddie"]}
				group: {apiGroups: [""], resources: ["groups"], verbs: ["impersonate"], resourceNames: ["editors"]}
			}
			clusterRoles: reader: rules: r: {apiGroups: ["*"], resources: ["*"], verbs: ["get", "list", "watch"]}
			bindings: editors: {clusterRole: "widgets", subjects: [{group: "editors"}], namespaces: ["default"]}
			denies: "keep-precious": {
				subjects: [{group: "system:authenticated"}]
				rules: r: {apiGroups: ["example.com"], resources: ["widgets"], resourceNames: ["precious"], verbs: ["delete", "deletecollection"]}
				reason: "precious things stay"
			}
			bindings: helpers: {clusterRole: "editors-helper", subjects: [{user: "helper"}], namespaces: ["*"]}
			bindings: readers: {clusterRole: "reader", subjects: [{user: "reader"}], namespaces: ["*"]}
		}
	}
}
`

// Authenticator knows the static tokens, and no others.
var Authenticator = sync.OnceValues(func() (*authn.Authenticator, error) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(file, []byte(Tokens), 0o600); err != nil {
		return nil, err
	}
	return authn.New(authn.Options{TokenFile: file})
})

// CompileHere is what the program does in another process.
func CompileHere(_ context.Context, source *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
	compiled, diags := compile.Bundle(source)
	return compiled, diags, nil
}

// Replica is one process of a control plane, without sockets.
type Replica struct {
	*core.Pipeline
	Plane         *Plane
	Committer     *commit.Committer
	Log           *eventlog.Log
	Backend       eventlog.Backend
	History       *history.Store
	KeyFile       string // of the key that signs tokens of service accounts
	Keys          *tokens.Keys
	Accounts      *tokens.ServiceAccounts
	Authenticator *authn.Authenticator
}

// StartReplica starts a replica on a log and takes it to the tip.
func StartReplica(t testing.TB, backend eventlog.Backend, historyBytes int) *Replica {
	t.Helper()
	r, err := OpenReplica(t.Context(), backend, historyBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// OpenReplica is [StartReplica] for starts that may fail.
func OpenReplica(ctx context.Context, backend eventlog.Backend, historyBytes int) (*Replica, error) {
	return OpenReplicaWith(ctx, backend, Options{Config: plane.Config{WatchBytes: historyBytes}})
}

// OpenReplicaAsking starts a replica whose policies are bound to authorizers outside of them.
func OpenReplicaAsking(ctx context.Context, backend eventlog.Backend, bind func(*policy.Policy) *policy.Policy, enforceable core.Enforceable) (*Replica, error) {
	return OpenReplicaWith(ctx, backend, Options{Config: plane.Config{Enforceable: enforceable, Load: func(proposal *policies.Proposal) (*policy.Policy, error) {
		p, err := Load(proposal.Form.Bytes())
		if err != nil {
			return nil, err
		}
		return bind(p), nil
	}}})
}

// OpenReplicaWith is [OpenReplica] with options.
func OpenReplicaWith(ctx context.Context, backend eventlog.Backend, o Options) (*Replica, error) {
	o.Backend = backend
	p, err := Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Replica{
		Pipeline: p.Pipeline, Plane: p, Committer: p.Committer, Log: p.Log, Backend: backend, History: p.History,
		KeyFile: p.KeyFile, Keys: p.Keys, Accounts: p.Accounts, Authenticator: p.Authenticator,
	}, nil
}

// Close stops the replica.
func (r *Replica) Close() {
	r.Drain() // which may be the pipeline of a test
	r.Plane.Stop()
}

// CloseInBubble closes a replica on a slow log: what was on its way there has to arrive before the bubble ends.
func (r *Replica) CloseInBubble() {
	r.Close()
	time.Sleep(time.Second)
}

// NewPlane starts a control plane of one replica with a policy in force.
func NewPlane(t testing.TB) *Replica {
	t.Helper()
	var store memlog.Store
	r := StartReplica(t, store.Open(nil), 0)
	r.Bootstrap(t, Bundle)
	return r
}

// Bootstrap puts a bundle in force, and creates the namespaces that every control plane has.
func (r *Replica) Bootstrap(t testing.TB, text string) {
	t.Helper()
	r.Plane.Bootstrap(t, text)
}

// Answer is the answer to a request.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// Request builds a request; header pairs follow the body. Without an Authorization
// header it is the administrator's.
func Request(method, path, body string, header ...string) *http.Request {
	// The bodies of tests leave out what they all have.
	if (method == "POST" || method == "PUT") && strings.HasPrefix(body, `{"metadata":`) {
		for resource, kind := range map[string]string{"widgets": "Widget", "plains": "Plain", "lists": "List"} {
			if strings.HasPrefix(path, "/apis/example.com/") && strings.Contains(path, "/"+resource) {
				version, _, _ := strings.Cut(strings.TrimPrefix(path, "/apis/example.com/"), "/")
				body = `{"apiVersion":"example.com/` + version + `","kind":"` + kind + `",` + body[1:]
			}
		}
	}
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	q := httptest.NewRequest(method, path, reader)
	q.Header.Set("Authorization", "Bearer admin-token")
	if body != "" {
		q.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			q.Header.Del(header[i])
		} else {
			q.Header.Set(header[i], header[i+1])
		}
	}
	return q
}

// Do sends a request and returns the answer. The arguments are those of [Request].
func (r *Replica) Do(method, path, body string, header ...string) Answer {
	return r.Serve(Request(method, path, body, header...))
}

// Serve sends a request and returns the answer.
func (r *Replica) Serve(q *http.Request) Answer {
	w := httptest.NewRecorder()
	r.ServeHTTP(w, q)
	return Answer{w.Code, w.Header(), w.Body.Bytes()}
}

// Must fails the test unless the answer has the code.
func (r *Replica) Must(t testing.TB, code int, method, path, body string, header ...string) Answer {
	t.Helper()
	a := r.Do(method, path, body, header...)
	if a.Code != code {
		t.Fatalf("%s %s: %d, want %d\n%s", method, path, a.Code, code, a.Body)
	}
	return a
}

// Finalize removes an empty namespace that is being deleted.
func (r *Replica) Finalize(t testing.TB, name string) {
	t.Helper()
	r.Must(t, http.StatusOK, "PUT", "/api/v1/namespaces/"+name+"/finalize", `{"metadata":{"name":"`+name+`"}}`)
}

// Object decodes the body.
func (a Answer) Object() map[string]any {
	var o map[string]any
	if err := json.Unmarshal(a.Body, &o); err != nil {
		return map[string]any{"undecodable": string(a.Body), "error": err.Error()}
	}
	return o
}

// Field finds a value by its path.
func (a Answer) Field(path ...string) any {
	var v any = a.Object()
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// String returns code and body.
func (a Answer) String() string { return fmt.Sprintf("%d %s", a.Code, bytes.TrimSpace(a.Body)) }

// WidgetsResource is the resource of widgets.
var WidgetsResource = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// WidgetsPath is the path of the widgets in the namespace default.
const WidgetsPath = "/apis/example.com/v1/namespaces/default/widgets"

// Widget returns a widget as JSON.
func Widget(name string, size int) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":{"size":%d}}`, name, size)
}

// Asking is a read that can be sent for any moment.
type Asking struct{ Path, Accept string }

// Said is an answer: its code and its body.
type Said struct {
	Code int
	Body string
}

// Ask sends a GET as the administrator.
func (r *Replica) Ask(q Asking) Said {
	a := r.Do("GET", q.Path, "", "Accept", q.Accept)
	return Said{a.Code, string(a.Body)}
}

// Aggregated is the content type of aggregated discovery.
const Aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// At returns the same read for a moment, by the path.
func (q Asking) At(moment string) Asking {
	return Asking{"/at/" + url.PathEscape(moment) + q.Path, q.Accept}
}

// StartIn starts a replica with options, which stops when the test ends.
func StartIn(t *testing.T, backend eventlog.Backend, o Options) *Replica {
	t.Helper()
	r, err := OpenReplicaWith(t.Context(), backend, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// Bundles that differ from the usual one in what they make of widgets.
var (
	// Graded has another field, with a default, by which can be selected.
	Graded = withSpec(`grade: *"a" | "b"`, `[".spec.color", ".spec.grade"]`)
	// Regraded has another default.
	Regraded = withSpec(`grade: *"b" | "a"`, `[".spec.color", ".spec.grade"]`)
	// Colorless does not know the color.
	Colorless = strings.NewReplacer(`color:  *"blue" | "red" | "green"`, ``, `[".spec.color"]`, `[]`).Replace(Bundle)
)

func withSpec(field, selectable string) string {
	return strings.NewReplacer(`owner?:`, field+"\n\t\towner?:", `[".spec.color"]`, selectable).Replace(Bundle)
}

// Activate puts a bundle in force.
func (r *Replica) Activate(t testing.TB, text string) {
	t.Helper()
	if _, err := activation.ActivateCompiled(t.Context(), r.Committer, Compile(t, text), "test"); err != nil {
		t.Fatal(err)
	}
}

// Requests counts what a client asks for.
type Requests struct {
	http.RoundTripper
	Lists, Watches atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (r *Requests) RoundTrip(q *http.Request) (*http.Response, error) {
	switch v := q.URL.Query(); {
	case q.Method != "GET":
	case v.Get("watch") == "" || v.Get("sendInitialEvents") == "true":
		r.Lists.Add(1)
	default:
		r.Watches.Add(1)
	}
	return r.RoundTripper.RoundTrip(q)
}

// DynamicClient returns a client of a host as the administrator, whose requests are counted.
func DynamicClient(t *testing.T, host string, r *Requests) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(&rest.Config{Host: host, BearerToken: "admin-token", QPS: -1, WarningHandler: rest.NoWarnings{}, WrapTransport: func(rt http.RoundTripper) http.RoundTripper {
		if r == nil {
			return rt
		}
		r.RoundTripper = rt
		return r
	}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// UnstructuredWidget returns a widget in a version.
func UnstructuredWidget(version, name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/" + version, "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": map[string]any{"size": size},
	}}
}

// Trim moves all but the newest event to an archive.
func (r *Replica) Trim(t *testing.T, archive *logtest.Archive) {
	t.Helper()
	r.Log.SetArchive(archive)
	if err := archive.Seal(t.Context(), r.Log, r.Committer.Tip().Revision()); err != nil {
		t.Fatal(err)
	}
	if err := r.Log.Trim(t.Context(), archive.Tip().Revision); err != nil {
		t.Fatal(err)
	}
}

// List is what an activation tells of all widgets that there are.
func (r *Replica) List(t testing.TB) (events []string) {
	t.Helper()
	for _, item := range r.Must(t, 200, "GET", WidgetsPath, "").Field("items").([]any) {
		meta := item.(map[string]any)["metadata"].(map[string]any)
		events = append(events, fmt.Sprintf("MODIFIED %v@%v", meta["name"], meta["resourceVersion"]))
	}
	return events
}
