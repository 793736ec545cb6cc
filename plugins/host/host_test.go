package host_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/host"
)

const (
	allow     = authorizerpb.Decision_DECISION_ALLOW
	deny      = authorizerpb.Decision_DECISION_DENY
	noOpinion = authorizerpb.Decision_DECISION_NO_OPINION
)

// fixture is a host with all test programs in its folder.
type fixture struct {
	testing.TB
	*host.Host
	options host.Options
	sum     string
	log     *buffer
	metrics *prometheus.Registry
	stop    func()
}

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

var hosts atomic.Int64

// goroutines returns the number of goroutines with a label.
func goroutines(t testing.TB, of string) (n int) {
	t.Helper()
	var all bytes.Buffer
	must(t, pprof.Lookup("goroutine").WriteTo(&all, 1))
	_, groups, _ := strings.Cut(all.String(), "\n") // behind their total
	for group := range strings.SplitSeq(groups, "\n\n") {
		if strings.Contains(group, fmt.Sprintf("%q:%q", "of", of)) {
			same := 0
			_, err := fmt.Sscan(group, &same)
			must(t, err)
			n += same
		}
	}
	return n
}

// newHost runs a host, and checks at the end of the test that no goroutines or files are left.
func newHost(t testing.TB, with ...func(*host.Options)) *fixture {
	t.Helper()
	// A goroutine inherits the labels of the one that starts it.
	name := fmt.Sprint("host-", hosts.Add(1))
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("of", name)))
	path, sum := thisBinary()
	f := &fixture{TB: t, sum: sum, log: &buffer{}, metrics: prometheus.NewRegistry()}
	f.options = host.Options{
		Dir: t.TempDir(), SecretsDir: t.TempDir(), HealthInterval: 200 * time.Millisecond, Linger: time.Millisecond,
		StartTimeout: time.Minute, // six start at once, on a machine that others use, and with the race detector
		Logger:       slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Metrics: f.metrics,
	}
	for name := range programs {
		if os.Link(path, filepath.Join(f.options.Dir, name)) != nil {
			text, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(filepath.Join(f.options.Dir, name), text, 0o755))
		}
	}
	for _, set := range with {
		set(&f.options)
	}
	var err error
	f.Host, err = host.New(f.options)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	stopped := false
	f.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		eventually(t, "no goroutine is left but the test's", func() bool { return goroutines(t, name) <= 1 })
	}
	t.Cleanup(f.stop)
	return f
}

// Check calls [host.Host.Check] and returns the error only.
func (f *fixture) Check(ctx context.Context, s host.Spec) error {
	_, err := f.Host.Check(ctx, s)
	return err
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("not within a minute: %s\n%s", what, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// spec returns the spec of the well-behaved program.
func (f *fixture) spec(with ...func(*host.Spec)) host.Spec {
	s := host.Spec{Name: "plugin", SHA256: map[string]string{runtime.GOOS + "/" + runtime.GOARCH: f.sum}, Timeout: 5 * time.Second}
	for _, set := range with {
		set(&s)
	}
	return s
}

// bind returns a binding, in use, of one running plugin.
func (f *fixture) bind(s host.Spec) *host.Binding {
	f.Helper()
	b := f.Bind([]host.Spec{s})
	b.Use()
	f.Cleanup(b.Release)
	must(f, f.Check(context.Background(), s))
	return b
}

func question(user, verb string) *authorizerpb.AuthorizeRequest {
	return &authorizerpb.AuthorizeRequest{
		User: &authorizerpb.User{Name: user, Groups: []string{"dev", "ops"}}, Verb: verb,
		Target: &authorizerpb.AuthorizeRequest_Resource{Resource: &authorizerpb.Resource{Version: "v1", Resource: "pods", Namespace: "shop"}},
	}
}

func ask(b *host.Binding, user, verb string) host.Answer {
	return b.Authorize(context.Background(), "plugin", question(user, verb))
}

// pid returns the id of the process that answers.
func pid(t testing.TB, b *host.Binding) int {
	t.Helper()
	n, err := strconv.Atoi(ask(b, "eve", "pid").Reason)
	must(t, err)
	return n
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && stat[bytes.LastIndexByte(stat, ')')+2] != 'Z'
}

// metric returns the sum of a metric's series whose labels have all these values.
func (f *fixture) metric(name string, values ...string) float64 {
	f.Helper()
	families, err := f.metrics.Gather()
	must(f, err)
	sum := 0.0
	for _, family := range families {
		if family.GetName() != "stele_plugin_"+name {
			continue
		}
		for _, m := range family.Metric {
			var has []string
			for _, label := range m.Label {
				has = append(has, label.GetValue())
			}
			if slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(has, v) }) {
				continue
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bind(f.spec())
	for _, c := range []struct {
		user, verb string
		decision   authorizerpb.Decision
		reason     string
		failed     bool
	}{
		{"alice", "get", allow, "", false},
		{"mallory", "get", deny, "not you", false},
		{"eve", "get", noOpinion, "", false},
		{"alice", "error", deny, `authorizer plugin "plugin" is unavailable`, true},
		{"alice", "unspecified", deny, `authorizer plugin "plugin" is unavailable`, true},
		{"alice", "unknown", deny, `authorizer plugin "plugin" is unavailable`, true},
		{"alice", "invalid-utf8", deny, `authorizer plugin "plugin" is unavailable`, true},
		{"alice", "oversized", deny, `authorizer plugin "plugin" is unavailable`, true},
		{"alice", "long-header", deny, `authorizer plugin "plugin" is unavailable`, true},
		{"alice", "negative-ttl", deny, `authorizer plugin "plugin" is unavailable`, true},
		{"alice", "long-reason", allow, strings.Repeat("ä", 510) + "…", false},
	} {
		t.Run(c.user+" "+c.verb, func(t *testing.T) {
			a := ask(b, c.user, c.verb)
			require.Equal(t, c.failed, a.Detail != "", "Detail: %s", a.Detail)
			a.Detail = ""
			require.Equal(t, host.Answer{Decision: c.decision, Reason: c.reason, Failed: c.failed}, a)
		})
	}
	require.Equal(t, 7.0, f.metric("failures_total"))
	require.Equal(t, 2.0, f.metric("decisions_total", "allow", "enforced"))
	require.Equal(t, 8.0, f.metric("decisions_total", "deny", "enforced"))
	require.Equal(t, 1.0, f.metric("up"))
}

func TestAFailureMayBeNoOpinion(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bind(f.spec(func(s *host.Spec) { s.FailurePolicy = "NoOpinion" }))
	a := ask(b, "alice", "error")
	require.Equal(t, noOpinion, a.Decision)
	require.True(t, a.Failed)
	require.Equal(t, deny, ask(b, "mallory", "get").Decision)
}

// Kubernetes allows any bytes in paths and in values of field selectors, but protobuf requires UTF-8.
func TestWhatAPluginCannotBeAskedIsDenied(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bind(f.spec(func(s *host.Spec) { s.FailurePolicy = "NoOpinion" }))
	q := question("mallory", "deletecollection")
	q.GetResource().FieldSelector = []*authorizerpb.Requirement{{Key: "metadata.name", Operator: "NotIn", Values: []string{"\xff"}}}
	a := b.Authorize(t.Context(), "plugin", q)
	require.Equal(t, deny, a.Decision)
	require.True(t, a.Failed)
	require.Contains(t, a.Detail, "UTF-8")
}

// A user who keeps a plugin busy is denied.
func TestWhoHasTheirShareOfAPluginIsDenied(t *testing.T) {
	t.Parallel()
	f := newHost(t, func(o *host.Options) { o.MaxInFlight = 4 })
	b := f.bind(f.spec())
	hasty := f.bind(f.spec(func(s *host.Spec) { s.Timeout, s.FailurePolicy = 50*time.Millisecond, "NoOpinion" }))
	ctx, giveUp := context.WithCancel(context.Background())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer giveUp()
	for i := range 2 {
		flood.Go(func() {
			q := question("mallory", "hang")
			q.GetResource().Name = fmt.Sprint(i)
			b.Authorize(ctx, "plugin", q)
		})
	}
	eventually(t, "the flood has all that it gets", func() bool { return f.metric("in_flight") == 2 })
	require.Equal(t, deny, ask(hasty, "mallory", "get").Decision)
	require.Equal(t, 1.0, f.metric("failures_total", "busy"))
}

func TestAPluginThatThePolicyDoesNotHaveDenies(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.Bind(nil)
	defer b.Release()
	a := ask(b, "alice", "get")
	require.Equal(t, deny, a.Decision)
	require.True(t, a.Failed)
}

func TestShadow(t *testing.T) {
	f := newHost(t)
	b := f.bind(f.spec(func(s *host.Spec) { s.Shadow, s.CacheTTL = true, time.Minute }))
	for _, user := range []string{"alice", "mallory"} {
		require.Equal(t, noOpinion, ask(b, user, "get").Decision)
	}
	eventually(t, "what they would have been is counted", func() bool {
		return f.metric("decisions_total", "allow", "shadow") == 1 && f.metric("decisions_total", "deny", "shadow") == 1
	})
	require.Contains(t, f.log.String(), `decision=deny reason="not you" user=mallory verb=get target="pods shop"`)
	a := ask(b, "mallory", "get")
	require.Equal(t, host.Answer{Decision: noOpinion, Detail: "shadow: it would be deny: not you", Cached: true}, a)
	start := time.Now()
	ask(b, "alice", "hang")
	require.Less(t, time.Since(start), 4*time.Second, "nobody waits for a plugin in shadow mode")

	b = f.bind(f.spec(func(s *host.Spec) { s.Shadow, s.Timeout = true, 50*time.Millisecond }))
	explained := func(verb string) string {
		return b.Explain(context.Background(), "plugin", question("mallory", verb)).Detail
	}
	require.Equal(t, "shadow: it would be deny: not you", explained("get"), "but who wants to know what it says does")
	require.Equal(t, "shadow: it would be deny: no answer within 50ms", explained("hang"))
}

func TestTheEnvironmentIsScrubbed(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
	f := newHost(t)
	b := f.bind(f.spec())
	for _, name := range strings.Fields(ask(b, "eve", "environment").Reason) {
		require.True(t, strings.HasPrefix(name, "PLUGIN_") || name == authorizerpb.Handshake.MagicCookieKey, name)
	}
	group, err := syscall.Getpgid(pid(t, b))
	must(t, err)
	require.Equal(t, pid(t, b), group, "it leads a process group of its own")
}

func TestSecretsAreFilesOfTheOperator(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	secret := func(name string) func(*host.Spec) {
		return func(s *host.Spec) { s.Secrets = map[string]string{"token": name} }
	}
	must(t, os.WriteFile(filepath.Join(f.options.SecretsDir, "tickets"), []byte("abc\n"), 0o600))
	b := f.bind(f.spec(secret("tickets")))
	require.Equal(t, "abc\n", ask(b, "eve", "secret").Reason, "as it is in the file")

	must(t, os.Symlink("tickets", filepath.Join(f.options.SecretsDir, "projected")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(f.options.SecretsDir, "escapes")))
	must(t, syscall.Mkfifo(filepath.Join(f.options.SecretsDir, "pipe"), 0o600))
	must(t, os.WriteFile(filepath.Join(f.options.SecretsDir, "large"), make([]byte, 1<<20+1), 0o600))
	must(t, f.Check(context.Background(), f.spec(secret("projected"))))
	for name, want := range map[string]string{
		"none": "is missing", "../x": "is not a file name", "/etc/passwd": "is not a file name", "..": "is not a file name", "": "is not a file name",
		"escapes": "is a symbolic link in " + f.options.SecretsDir + " that leads out of it", "pipe": "not a regular file", "large": "more than 1048576 bytes",
	} {
		err := f.Check(context.Background(), f.spec(secret(name)))
		require.ErrorContains(t, err, want, name)
	}
}

func TestWhatAPluginPrintsIsLogged(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bind(f.spec())
	for _, line := range []string{"plain words", `{"@level":"warn","@message":"from hclog","@timestamp":"x","ticket":7}`, `{"@message":5,"@level":{}}`, `{"level":"ERROR","msg":"from slog"}`} {
		q := question("eve", "print")
		q.Target = &authorizerpb.AuthorizeRequest_Path{Path: line}
		require.False(t, b.Authorize(context.Background(), "plugin", q).Failed)
	}
	for _, want := range []string{
		`level=INFO msg="plain words" plugin=plugin stream=stderr`,
		`level=WARN msg="from hclog" plugin=plugin stream=stderr fields=map[ticket:7]`,
		`level=ERROR msg="from slog" plugin=plugin stream=stderr`,
		`{\"@message\":5,\"@level\":{}}`,
	} {
		eventually(t, want, func() bool { return strings.Contains(f.log.String(), want) })
	}
}
