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
	"testing/fstest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"stele.dev/stele/core"
	"stele.dev/stele/core/authn"
	"stele.dev/stele/core/bootstrap"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/parts"
	"stele.dev/stele/core/tokens"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
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

// compileBundle compiles a bundle once per test binary and text.
func compileBundle(t testing.TB, text string) *compile.Result {
	t.Helper()
	compiledMu.Lock()
	defer compiledMu.Unlock()
	if c := compiledBundles[text]; c != nil {
		return c
	}
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue":         {Data: []byte(text)},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	c, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	compiledBundles[text] = c
	return c
}

var (
	compiledMu      sync.Mutex
	compiledBundles = map[string]*compile.Result{}
)

// loaded loads a policy once per test binary and text: replicas may share it, as it never changes.
func loaded(form []byte) (*policy.Policy, error) {
	loadedMu.Lock()
	defer loadedMu.Unlock()
	if p := loadedPolicies[string(form)]; p != nil {
		return p, nil
	}
	p, err := policy.New(form)
	if err == nil {
		loadedPolicies[string(form)] = p
	}
	return p, err
}

var (
	loadedMu       sync.Mutex
	loadedPolicies = map[string]*policy.Policy{}
)

// tokens of the users of these tests.
const staticTokens = `admin-token,admin,1,"system:masters"
editor-token,eddie,2,"editors"
reader-token,reader,3,
nobody-token,nobody,4,
helper-token,helper,5,
`

var authenticator = sync.OnceValues(func() (*authn.Authenticator, error) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(file, []byte(staticTokens), 0o600); err != nil {
		return nil, err
	}
	return authn.New(authn.Options{TokenFile: file})
})

// compileHere is what the program does in another process.
func compileHere(_ context.Context, source *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
	compiled, diags := compile.Bundle(source)
	return compiled, diags, nil
}

// inMemory is a folder on a file system in memory, if there is one: replicas crash here, the machine doesn't, and a
// simulation would wait for its disk most of the time.
var inMemory = func() string {
	if dir, err := os.MkdirTemp("/dev/shm", ""); err == nil {
		os.Remove(dir)
		return "/dev/shm"
	}
	return ""
}()

// replica is one process of a control plane, without sockets.
type replica struct {
	*core.Pipeline
	committer     *commit.Committer
	log           *eventlog.Log
	backend       eventlog.Backend
	history       *history.Store
	historyDir    string
	keyFile       string // of what signs the tokens of service accounts
	keys          *tokens.Keys
	accounts      *tokens.ServiceAccounts
	authenticator *authn.Authenticator
	stop          context.CancelFunc
	stopped       sync.WaitGroup
	err           error // of the committer
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
	return tryStartAsking(ctx, backend, historyBytes, nil, nil)
}

// tryStartAsking starts a replica whose policies are bound to authorizers outside of them, unless bind is nil.
func tryStartAsking(ctx context.Context, backend eventlog.Backend, historyBytes int, bind func(*policy.Policy) *policy.Policy, enforceable core.Enforceable) (*replica, error) {
	return tryStartWith(ctx, backend, replicaOptions{historyBytes: historyBytes, bind: bind, enforceable: enforceable})
}

// replicaOptions say how a replica differs from others.
type replicaOptions struct {
	historyBytes int
	bind         func(*policy.Policy) *policy.Policy
	enforceable  core.Enforceable
	clock        func() time.Time
	acceptClock  bool
	memory       int64
	compile      core.Compile // compileHere if nil
	parts        *parts.Store
}

func tryStartWith(ctx context.Context, backend eventlog.Backend, o replicaOptions) (*replica, error) {
	if o.compile == nil {
		o.compile = compileHere
	}
	log, err := eventlog.Open(ctx, backend, eventlog.Options{Clock: o.clock})
	if err != nil {
		return nil, err
	}
	store := objects.New(o.historyBytes)
	c := commit.New(commit.Options{Log: log, Objects: store, Load: func(proposal *policies.Proposal) (*policy.Policy, error) {
		p, err := loaded(proposal.Form)
		if err == nil && o.bind != nil {
			p = o.bind(p)
		}
		return p, err
	}})
	if err := c.Replay(ctx); err != nil {
		return nil, err
	}
	if o.acceptClock {
		if err := c.AcceptClock(ctx); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(inMemory, "history")
	if err != nil {
		return nil, err
	}
	r := &replica{committer: c, log: log, backend: backend, historyDir: dir}
	if err := r.authenticate(); err != nil {
		return nil, err
	}
	past, err := history.Open(history.Options{Dir: dir, Log: log, Start: log.Start()})
	if err != nil {
		return nil, err
	}
	r.history = past
	r.Pipeline = core.New(core.Options{Committer: c, Log: log, History: past, Authenticator: r.authenticator, Tokens: r.accounts, Version: version.Info{Major: "1", Minor: "37"}, Compile: o.compile, Enforceable: o.enforceable, Memory: o.memory, Parts: o.parts})
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.stopped.Go(func() { store.Run(ctx) })
	r.stopped.Go(func() { past.Run(ctx) })
	r.stopped.Go(func() { r.err = c.Run(ctx) })
	return r, nil
}

func (r *replica) close() {
	r.Drain()
	r.stop()
	r.stopped.Wait()
	r.authenticator.Close()
	r.history.Close()
	os.RemoveAll(r.historyDir)
	r.backend.Close()
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
	if _, err := bootstrap.Activate(t.Context(), r.committer, compileBundle(t, text), "test"); err != nil {
		t.Fatal(err)
	}
	if err := bootstrap.Namespaces(t.Context(), r.committer); err != nil {
		t.Fatal(err)
	}
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
