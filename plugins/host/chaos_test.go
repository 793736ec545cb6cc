package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/host"
)

func kill(t testing.TB, pid int) {
	t.Helper()
	must(t, syscall.Kill(pid, syscall.SIGKILL))
}

// TestChaos makes plugins under load fail in every way. A healthy plugin denies mallory, so that no failure
// may ever allow mallory. Afterwards alice must be allowed again.
func TestChaos(t *testing.T) {
	try := func(f *fixture, b *host.Binding, verb string) {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		b.Authorize(ctx, "plugin-raw", question("mallory", verb))
	}
	for _, c := range []struct {
		what  string
		do    func(*fixture, *host.Binding)
		dies  bool
		times int
	}{
		{what: "kill -9", times: 3, dies: true, do: func(f *fixture, b *host.Binding) {
			n, err := strconv.Atoi(b.Authorize(context.Background(), "plugin-raw", question("eve", "pid")).Reason)
			must(f, err)
			kill(f, n)
		}},
		{what: "stops", times: 1, dies: true, do: func(f *fixture, b *host.Binding) { try(f, b, "stop") }},
		{what: "panics", times: 3, dies: true, do: func(f *fixture, b *host.Binding) { try(f, b, "panic") }},
		{what: "garbage instead of TLS", times: 3, do: func(f *fixture, b *host.Binding) { try(f, b, "garbage-tls") }},
		{what: "garbage instead of HTTP/2", times: 3, do: func(f *fixture, b *host.Binding) { try(f, b, "garbage-http") }},
		{what: "hangs", times: 3, do: func(f *fixture, b *host.Binding) { try(f, b, "hang") }},
		{what: "a flood of output", times: 3, do: func(f *fixture, b *host.Binding) { try(f, b, "flood"); try(f, b, "flood-raw") }},
		{what: "answers that are none", times: 3, do: func(f *fixture, b *host.Binding) {
			for _, verb := range []string{"unknown", "unspecified", "oversized", "invalid-utf8", "long-header", "negative-ttl", "error"} {
				try(f, b, verb)
			}
		}},
		{what: "children", times: 3, do: func(f *fixture, b *host.Binding) { try(f, b, "leak"); try(f, b, "leak-session") }},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel() // they mostly wait for plugins to come back
			f := newHost(t)
			must(t, os.WriteFile(filepath.Join(f.options.SecretsDir, "token"), nil, 0o600))
			s := f.spec(func(s *host.Spec) {
				s.Name, s.Timeout, s.Secrets = "plugin-raw", 300*time.Millisecond, map[string]string{"token": "token"}
			})
			b := f.Bind([]host.Spec{s, f.spec()})
			defer b.Release()
			b.Use()
			must(t, f.Check(context.Background(), s))
			must(t, f.Check(context.Background(), f.spec()))

			var over atomic.Bool
			var asked, slow, wrong atomic.Int64
			var callers sync.WaitGroup
			for i := range 16 {
				callers.Go(func() {
					pace := time.NewTicker(5 * time.Millisecond) // what fails at once would else leave the plugin no processor to come back on
					defer pace.Stop()
					for n := 0; !over.Load(); n++ {
						<-pace.C
						q := question("mallory", "get")
						q.GetResource().Name = fmt.Sprint(i, "-", n) // so that each is asked
						start := time.Now()
						if i%2 == 0 {
							if b.Authorize(context.Background(), "plugin-raw", q).Decision != deny {
								wrong.Add(1)
							}
						} else if b.Review(context.Background(), "plugin-raw", 300*time.Millisecond, write("mallory", "")).Allowed {
							wrong.Add(1)
						}
						if time.Since(start) > 10*time.Second {
							slow.Add(1)
						}
						asked.Add(1)
					}
				})
			}
			for range c.times {
				c.do(f, b)
				require.Equal(t, allow, ask(b, "alice", "get").Decision, "another plugin is not concerned")
				eventually(t, "alice is allowed again", func() bool {
					return b.Authorize(context.Background(), "plugin-raw", question("alice", "get")).Decision == allow
				})
			}
			over.Store(true)
			callers.Wait()
			require.Zero(t, wrong.Load(), "of %d answers", asked.Load())
			require.Zero(t, slow.Load(), "of %d answers", asked.Load())
			require.Positive(t, asked.Load())
			eventually(t, "both are well", func() bool { return f.Health() == nil })
			if c.dies {
				// One that is to stop may answer a moment longer, so that all seems well before its health is checked.
				eventually(t, "it was started again", func() bool { return f.metric("restarts_total", "plugin-raw") >= float64(c.times) })
			}
			require.Zero(t, f.metric("restarts_total", "plugin"), f.log)
		})
	}
}

func TestAHostThatPanicsDenies(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bind(f.spec())
	q := question("alice", "get")
	q.Target = (*authorizerpb.AuthorizeRequest_Resource)(nil)
	a := b.Authorize(context.Background(), "plugin", q)
	require.Equal(t, deny, a.Decision)
	require.True(t, a.Failed)
	require.Equal(t, 1.0, f.metric("failures_total", "panic"))
	require.Equal(t, allow, ask(b, "alice", "get").Decision, "and goes on")
}

func TestAFloodOfOutputIsReadAndLeftOut(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"flood", "flood-raw"} {
		t.Run(verb, func(t *testing.T) {
			f := newHost(t)
			b := f.bind(f.spec())
			require.False(t, ask(b, "eve", verb).Failed)
			eventually(t, "all of it is read", func() bool {
				a := ask(b, "eve", "floods")
				require.Empty(t, a.Detail, "and it answers meanwhile")
				return a.Reason == "1"
			})
			require.Less(t, len(f.log.String()), 4<<20)
			require.Equal(t, allow, ask(b, "alice", "get").Decision)
			require.Zero(t, f.metric("restarts_total"))
		})
	}
}

func TestMemoryIsBounded(t *testing.T) {
	f := newHost(t)
	b := f.bind(f.spec(func(s *host.Spec) { s.CacheTTL = time.Hour }))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	round := func(n int) {
		for i := range 20 {
			q := question("eve", "get")
			q.User.Uid = string(make([]byte, 1<<20))
			q.GetResource().Name = fmt.Sprint(n, "-", i)
			require.Empty(t, b.Authorize(context.Background(), "plugin", q).Detail)
		}
		ask(b, "eve", "flood-raw")
		// Each round has its own plugin, because the backoff grows with each crash of the same one.
		uncached := f.Bind([]host.Spec{f.spec(func(s *host.Spec) { s.Config = fmt.Appendf(nil, `{"generation":"%d"}`, n) })})
		defer uncached.Release()
		old := fmt.Sprint(pid(t, uncached))
		kill(t, pid(t, uncached))
		eventually(t, "another process answers", func() bool {
			a := ask(uncached, "eve", "pid")
			return !a.Failed && a.Reason != old
		})
	}
	round(0)
	files := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(open)
	}
	before, goroutines, opened := heap(), runtime.NumGoroutine(), files()
	for n := range 5 {
		round(n + 1)
	}
	require.Less(t, heap(), before+16<<20)
	eventually(t, "no more goroutines than before", func() bool { return runtime.NumGoroutine() <= goroutines })
	eventually(t, "no more files than before", func() bool { return files() <= opened })
}
