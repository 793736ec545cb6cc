package core_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/core/auth/authz"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/reviewers/plugins"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/plugins/sdk"
	"stele.dev/stele/policy/bundles"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "gate" { // this binary is the plugin of a test, too
		serveGate()
		return
	}
	os.Exit(m.Run())
}

type gateConfig struct {
	Generation int    `json:"generation"`
	Refuse     string `json:"refuse"`
}

// serveGate is a plugin that denies nobody, whatever roles say, and does what helper asks for by a name.
func serveGate() {
	sdk.Serve(sdk.Plugin[gateConfig]{Name: "gate", Version: "1", New: func(_ context.Context, c gateConfig, _ map[string][]byte) (sdk.Authorizer, error) {
		if c.Refuse != "" {
			return nil, errors.New(c.Refuse)
		}
		return sdk.Func(func(_ context.Context, r *sdk.Request) (sdk.Decision, error) {
			switch {
			case r.User.Name == "nobody":
				return sdk.Deny("not nobody"), nil
			case r.User.Name != "helper":
			case r.Name == "garbage":
				for fd := range 64 { // into every connection that there is
					if at, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", fd)); strings.HasPrefix(at, "socket:") {
						_, _ = io.CopyN(descriptor(fd), rand.Reader, 10_000)
					}
				}
			case r.Name == "panic":
				go panic("of a plugin")
			case r.Name == "error":
				return sdk.NoOpinion(), errors.New("the ticket system is down")
			case strings.HasPrefix(r.Name, "slow"):
				time.Sleep(200 * time.Millisecond)
			}
			return sdk.NoOpinion(), nil
		}), nil
	}})
}

type descriptor int

func (d descriptor) Write(p []byte) (int, error) { return syscall.Write(int(d), p) }

// gated is a bundle in which nobody has the rights of editors, and only the plugin is in the way.
func gated(sum, config string) string {
	return strings.NewReplacer(
		`cluster: "test"`, fmt.Sprintf(`cluster: "test"
	authorizers: ["deny", "plugin:gate", "rbac"]
	plugins: gate: {
		sha256: "%s/%s": %q
		match: {apiGroups: ["example.com"], resources: ["widgets"]}
		timeout: "10s", cacheTTL: "10s"
		config: %s
	}`, runtime.GOOS, runtime.GOARCH, sum, config),
		`subjects: [{group: "editors"}]`, `subjects: [{group: "editors"}, {user: "nobody"}, {user: "helper"}]`,
	).Replace(planetest.Bundle)
}

// gatedPlane is a control plane with a plugin, as a server has it.
type gatedPlane struct {
	*planetest.Replica
	sum     string
	state   string // folder of the host's records of processes
	metrics *prometheus.Registry
	seen    map[int]bool
	finish  func() // ends all processes
}

func newGatedPlane(t *testing.T) *gatedPlane {
	t.Helper()
	p := &gatedPlane{state: t.TempDir(), metrics: prometheus.NewRegistry(), seen: map[int]bool{}}
	dir, digest := t.TempDir(), sha256.New()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	program, err := os.OpenFile(filepath.Join(dir, "gate"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = io.Copy(io.MultiWriter(program, digest), self)
		err = errors.Join(err, program.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	p.sum = hex.EncodeToString(digest.Sum(nil))
	h, err := host.New(host.Options{Metrics: p.metrics, Dir: dir, StateDir: p.state, HealthInterval: time.Hour, Linger: 100 * time.Millisecond,
		StartTimeout: time.Minute}) // on a machine that others use, and with the race detector
	if err != nil {
		t.Fatal(err)
	}
	authorizers, err := authz.New(authz.Options{Plugins: plugins.New(plugins.Options{Host: h})})
	if err != nil {
		t.Fatal(err)
	}
	var store memlog.Store
	if p.Replica, err = planetest.OpenReplicaAsking(t.Context(), store.Open(nil), authorizers.Bind, authorizers.Check); err != nil {
		t.Fatal(err)
	}
	authorizers.Follow(p.Committer)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = authorizers.Run(ctx) })
	running.Go(func() { _ = h.Run(ctx) })
	p.finish = sync.OnceFunc(func() { stop(); running.Wait() })
	t.Cleanup(func() { p.finish(); p.Close() })
	p.Bootstrap(t, gated(p.sum, `{generation: 1}`))
	return p
}

// processes are those of the plugin that run.
func (p *gatedPlane) processes(t *testing.T) (pids []int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(p.state, "plugin-*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has just ended
		}
		var record struct{ Pid int }
		if err = errors.Join(err, json.Unmarshal(text, &record)); err != nil {
			t.Fatal(err)
		}
		if record.Pid != 0 {
			p.seen[record.Pid] = true
			pids = append(pids, record.Pid)
		}
	}
	return pids
}

// signal sends a signal to all processes of the plugin. Those that are to stop have stopped then: until the first
// of its threads has heard of it, others go on answering.
func (p *gatedPlane) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	for _, pid := range p.processes(t) {
		_ = syscall.Kill(-pid, s) // which may have just ended
		if s == syscall.SIGSTOP {
			eventually(t, "the plugin stops", func() bool { return stopped(pid) })
		}
	}
}

// inFlight is how many questions the plugin has not answered.
func (p *gatedPlane) inFlight(t *testing.T) (n float64) {
	t.Helper()
	families, err := p.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "stele_plugin_in_flight" {
			for _, m := range f.GetMetric() {
				n += m.GetGauge().GetValue()
			}
		}
	}
	return n
}

// stopped tells whether no thread of a process runs any more.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if _, state, found := strings.Cut(string(stat), ") "); err == nil && found && !strings.ContainsRune("TZX", rune(state[0])) {
			return false
		}
	}
	return true
}

// runs tells whether there is such a process.
func runs(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// eventually waits for what comes by itself.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// push pushes a bundle with a configuration of the plugin, and expects an answer.
func (p *gatedPlane) push(t *testing.T, code int, sum, config string) {
	t.Helper()
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue":         {Data: []byte(gated(sum, config))},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	asked := &activation.Policy{Spec: activation.SpecOf(source)}
	asked.APIVersion, asked.Kind = activation.Group+"/"+activation.Version, activation.Kind
	body, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	p.Must(t, code, "POST", planetest.PoliciesPath, string(body))
	p.processes(t)
}

// load has clients ask all the time.
type load struct {
	clients sync.WaitGroup
	over    atomic.Bool
	wrong   chan string
	passed  atomic.Int64 // requests of who is allowed that were
	asked   atomic.Int64
}

// client sends requests until the load is over; check tells what is wrong with an answer.
func (l *load) client(p *gatedPlane, user string, send func(n int) *http.Request, check func(planetest.Answer) string) {
	l.clients.Go(func() {
		for n := 0; !l.over.Load(); n++ {
			time.Sleep(time.Millisecond) // there is to be something left for the plugin
			q := send(n)
			q.Header.Set("Authorization", "Bearer "+user+"-token")
			a := p.Serve(q)
			l.asked.Add(1)
			if text := check(a); text != "" {
				select {
				case l.wrong <- fmt.Sprintf("%s: %s %s: %s: %s", user, q.Method, q.URL, text, a):
				default:
				}
			}
		}
	})
}

// A server whose plugin is killed, hangs, talks nonsense, is slow, is replaced, and is to be replaced by what does not start, while
// clients ask: who the plugin denies is never let in, requests that it is not asked about never
// fail, who is allowed is served again, and no process is left.
func TestPluginsUnderChaos(t *testing.T) {
	p := newGatedPlane(t)
	p.Must(t, http.StatusCreated, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	p.Must(t, http.StatusCreated, "POST", "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`)

	l := &load{wrong: make(chan string, 10)}
	denied := func(a planetest.Answer) string {
		if a.Code != http.StatusForbidden {
			return "is not refused"
		}
		return ""
	}
	served := func(a planetest.Answer) string {
		switch a.Code {
		case http.StatusOK, http.StatusNotFound:
			l.passed.Add(1)
		case http.StatusForbidden:
		default:
			return "is neither served nor refused"
		}
		return ""
	}
	unconcerned := func(a planetest.Answer) string {
		if a.Code != http.StatusOK {
			return "fails, and is none of the plugin's"
		}
		return ""
	}
	get := func(path string) func(int) *http.Request {
		return func(int) *http.Request { return planetest.Request("GET", path, "") }
	}
	some := func(i string) func(int) *http.Request { // so that each is asked
		return func(n int) *http.Request {
			return planetest.Request("GET", fmt.Sprintf("%s/%s-%d", planetest.WidgetsPath, i, n), "")
		}
	}
	l.client(p, "nobody", get(planetest.WidgetsPath+"/w"), denied)
	l.client(p, "nobody", some("n"), denied)
	l.client(p, "nobody", func(n int) *http.Request {
		return planetest.Request("POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprint("by-nobody-", n), 1))
	}, denied)
	l.client(p, "editor", get(planetest.WidgetsPath+"/w"), served)
	l.client(p, "editor", some("e"), served)
	l.client(p, "editor", get(planetest.WidgetsPath), served)
	l.client(p, "reader", get("/api/v1/namespaces/default/configmaps/c"), unconcerned)
	l.client(p, "reader", get("/api/v1/namespaces/default/configmaps"), unconcerned)

	helps := func(name string) func() {
		return func() { p.Do("GET", planetest.WidgetsPath+"/"+name, "", "Authorization", "Bearer helper-token") }
	}
	for i, fault := range []struct {
		what string
		ends bool // the processes that there are
		do   func()
	}{
		{"nothing", false, func() {}},
		{"it is killed", true, func() { p.signal(t, syscall.SIGKILL) }},
		{"it hangs for a while", false, func() {
			p.signal(t, syscall.SIGSTOP)
			time.Sleep(300 * time.Millisecond)
			p.signal(t, syscall.SIGCONT)
		}},
		{"another generation", true, func() { p.push(t, http.StatusCreated, p.sum, `{generation: 2}`) }},
		{"garbage", true, helps("garbage")},
		{"errors", false, helps("error")},
		{"a program that is not there", false, func() { p.push(t, http.StatusUnprocessableEntity, strings.Repeat("0", 64), `{generation: 3}`) }},
		{"a configuration that it refuses", false, func() { p.push(t, http.StatusUnprocessableEntity, p.sum, `{refuse: "no"}`) }},
		{"it hangs and is killed", true, func() { p.signal(t, syscall.SIGSTOP); p.signal(t, syscall.SIGKILL) }},
		{"it is slow", false, func() {
			var slow sync.WaitGroup
			for i := range 8 {
				slow.Go(helps(fmt.Sprint("slow-", i)))
			}
			slow.Wait()
		}},
		{"another generation while the one before is killed", true, func() {
			var killed sync.WaitGroup
			killed.Go(func() { p.push(t, http.StatusCreated, p.sum, `{generation: 4}`) })
			for _, pid := range p.processes(t) {
				_ = syscall.Kill(-pid, syscall.SIGKILL)
			}
			killed.Wait()
		}},
		{"a panic", true, helps("panic")},
	} {
		before := p.processes(t)
		fault.do()
		if fault.ends {
			eventually(t, fault.what+": it ends", func() bool { return !slices.ContainsFunc(before, runs) })
		}
		n := 0
		eventually(t, fault.what+": who is allowed is served again", func() bool {
			n++
			return p.Do("GET", fmt.Sprintf("%s/after-%d-%d", planetest.WidgetsPath, i, n), "", "Authorization", "Bearer editor-token").Code == http.StatusNotFound
		})
		p.processes(t)
	}
	l.over.Store(true)
	l.clients.Wait()
	close(l.wrong)
	for text := range l.wrong {
		t.Error(text)
	}
	if l.passed.Load() == 0 {
		t.Error("nobody was served")
	}
	if text := string(p.Must(t, http.StatusOK, "GET", planetest.WidgetsPath, "").Body); strings.Contains(text, "by-nobody") {
		t.Errorf("there is %s", text)
	}
	if n := len(p.seen); n < 7 {
		t.Errorf("there were %d processes only", n)
	}
	p.finish()
	for pid := range p.seen {
		if runs(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	if left := p.processes(t); len(left) > 0 {
		t.Errorf("there are records of %v", left)
	}
	t.Logf("%d requests, %d processes", l.asked.Load(), len(p.seen))
}

// While a plugin hangs, who asks what it is to decide waits, and nobody else does: other requests, readiness, pushes,
// and the end of the server.
func TestAPluginThatHangsStallsNobodyElse(t *testing.T) {
	p := newGatedPlane(t)
	p.Must(t, http.StatusCreated, "POST", "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`)
	editor := []string{"Authorization", "Bearer editor-token"}
	p.Must(t, http.StatusNotFound, "GET", planetest.WidgetsPath+"/before", "", editor...)
	p.signal(t, syscall.SIGSTOP)
	waits := make(chan planetest.Answer, 1)
	go func() { waits <- p.Do("GET", planetest.WidgetsPath+"/meanwhile", "", editor...) }()
	eventually(t, "the plugin is asked", func() bool { return p.inFlight(t) == 1 })

	others := func() {
		p.Must(t, http.StatusOK, "GET", "/api/v1/namespaces/default/configmaps/c", "", "Authorization", "Bearer reader-token")
		p.Must(t, http.StatusCreated, "POST", planetest.WidgetsPath, planetest.Widget("of-admin", 1))
		p.Must(t, http.StatusOK, "DELETE", planetest.WidgetsPath+"/of-admin", "")
		p.Do("GET", "/readyz", "")
	}
	others()
	p.push(t, http.StatusUnprocessableEntity, strings.Repeat("0", 64), `{}`)
	p.push(t, http.StatusCreated, p.sum, `{generation: 2}`)
	others()
	p.Must(t, http.StatusNotFound, "GET", planetest.WidgetsPath+"/after", "", editor...)
	select {
	case a := <-waits:
		t.Fatalf("it was answered: %s", a)
	default:
	}
	p.signal(t, syscall.SIGSTOP)
	p.finish()
	if a := <-waits; a.Code != http.StatusForbidden {
		t.Errorf("in the end it is %s", a)
	}
	if left := p.processes(t); len(left) > 0 {
		t.Errorf("there are records of %v", left)
	}
}
