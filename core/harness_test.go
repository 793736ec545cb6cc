package core_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

// bundle is the policy of these tests. Roles are named for what they allow.
const bundle = `
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

// authenticator knows the static tokens, and no others.
var authenticator = sync.OnceValues(func() (*authn.Authenticator, error) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(file, []byte(planetest.Tokens), 0o600); err != nil {
		return nil, err
	}
	return authn.New(authn.Options{TokenFile: file})
})

// compileHere is what the program does in another process.
func compileHere(_ context.Context, source *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
	compiled, diags := compile.Bundle(source)
	return compiled, diags, nil
}

// replica is one process of a control plane, without sockets.
type replica struct {
	*core.Pipeline
	plane         *planetest.Plane
	committer     *commit.Committer
	log           *eventlog.Log
	backend       eventlog.Backend
	history       *history.Store
	keyFile       string // of the key that signs tokens of service accounts
	keys          *tokens.Keys
	accounts      *tokens.ServiceAccounts
	authenticator *authn.Authenticator
}

// start starts a replica on a log and takes it to the tip.
func start(t testing.TB, backend eventlog.Backend, historyBytes int) *replica {
	t.Helper()
	r, err := tryStart(t.Context(), backend, historyBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r
}

func tryStart(ctx context.Context, backend eventlog.Backend, historyBytes int) (*replica, error) {
	return tryStartWith(ctx, backend, planetest.Options{Config: plane.Config{WatchBytes: historyBytes}})
}

// tryStartAsking starts a replica whose policies are bound to authorizers outside of them.
func tryStartAsking(ctx context.Context, backend eventlog.Backend, bind func(*policy.Policy) *policy.Policy, enforceable core.Enforceable) (*replica, error) {
	return tryStartWith(ctx, backend, planetest.Options{Config: plane.Config{Enforceable: enforceable, Load: func(proposal *policies.Proposal) (*policy.Policy, error) {
		p, err := planetest.Load(proposal.Form)
		if err != nil {
			return nil, err
		}
		return bind(p), nil
	}}})
}

func tryStartWith(ctx context.Context, backend eventlog.Backend, o planetest.Options) (*replica, error) {
	o.Backend = backend
	p, err := planetest.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &replica{
		Pipeline: p.Pipeline, plane: p, committer: p.Committer, log: p.Log, backend: backend, history: p.History,
		keyFile: p.KeyFile, keys: p.Keys, accounts: p.Accounts, authenticator: p.Authenticator,
	}, nil
}

// close stops the replica.
func (r *replica) close() {
	r.Drain() // which may be the pipeline of a test
	r.plane.Stop()
}

// closeInBubble closes a replica on a slow log: what was on its way there has to arrive before the bubble ends.
func (r *replica) closeInBubble() {
	r.close()
	time.Sleep(time.Second)
}

// newPlane starts a control plane of one replica with a policy in force.
func newPlane(t testing.TB) *replica {
	t.Helper()
	var store memlog.Store
	r := start(t, store.Open(nil), 0)
	r.bootstrap(t, bundle)
	return r
}

func (r *replica) bootstrap(t testing.TB, text string) {
	t.Helper()
	r.plane.Bootstrap(t, text)
}

// answer is what came back.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// request builds a request; header pairs follow the body. Without an Authorization
// header it is the administrator's.
func request(method, path, body string, header ...string) *http.Request {
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

func (r *replica) do(method, path, body string, header ...string) answer {
	return r.serve(request(method, path, body, header...))
}

func (r *replica) serve(q *http.Request) answer {
	w := httptest.NewRecorder()
	r.ServeHTTP(w, q)
	return answer{w.Code, w.Header(), w.Body.Bytes()}
}

// must fails the test unless the answer has the code.
func (r *replica) must(t testing.TB, code int, method, path, body string, header ...string) answer {
	t.Helper()
	a := r.do(method, path, body, header...)
	if a.code != code {
		t.Fatalf("%s %s: %d, want %d\n%s", method, path, a.code, code, a.body)
	}
	return a
}

// finalize removes an empty namespace that is being deleted.
func (r *replica) finalize(t testing.TB, name string) {
	t.Helper()
	r.must(t, http.StatusOK, "PUT", "/api/v1/namespaces/"+name+"/finalize", `{"metadata":{"name":"`+name+`"}}`)
}

// object decodes the body.
func (a answer) object() map[string]any {
	var o map[string]any
	if err := json.Unmarshal(a.body, &o); err != nil {
		return map[string]any{"undecodable": string(a.body), "error": err.Error()}
	}
	return o
}

// field finds a value by its path.
func (a answer) field(path ...string) any {
	var v any = a.object()
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.code, bytes.TrimSpace(a.body)) }

var widgetsResource = schema.GroupResource{Group: "example.com", Resource: "widgets"}

const widgetsPath = "/apis/example.com/v1/namespaces/default/widgets"

func widget(name string, size int) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":{"size":%d}}`, name, size)
}
