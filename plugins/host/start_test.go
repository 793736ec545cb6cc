package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/plugins/host"
)

func TestProgramsThatAreNotStarted(t *testing.T) {
	t.Parallel()
	f := newHost(t, func(o *host.Options) { o.StartTimeout = 5 * time.Second })
	in := func(name string) string { return filepath.Join(f.options.Dir, name) }
	must(t, os.Symlink(in("plugin"), in("link")))
	must(t, os.Mkdir(in("folder"), 0o755))
	must(t, os.WriteFile(in("data"), []byte("x"), 0o644))
	must(t, os.WriteFile(in("open"), []byte("x"), 0o755))
	must(t, os.Chmod(in("open"), 0o757))
	must(t, os.WriteFile(in("other"), []byte("x"), 0o755))
	must(t, os.WriteFile(in("text"), []byte("x"), 0o755))
	named := func(name string) func(*host.Spec) { return func(s *host.Spec) { s.Name = name } }
	sum := func(text string) func(*host.Spec) {
		return func(s *host.Spec) { s.SHA256 = map[string]string{runtime.GOOS + "/" + runtime.GOARCH: text} }
	}
	for _, c := range []struct {
		what string
		spec host.Spec
		want string
	}{
		{"missing", f.spec(named("missing")), "the program missing is missing in "},
		{"a symbolic link", f.spec(named("link")), "is a symbolic link"},
		{"a folder", f.spec(named("folder")), "is not a regular file"},
		{"not executable", f.spec(named("data")), "is not executable: chmod 0755"},
		{"writable by everybody", f.spec(named("open")), "can be written by everybody: chmod o-w"},
		{"outside of the folder", f.spec(named("../plugin")), `is not a file name`},
		{"by its path", f.spec(named(in("plugin"))), `is not a file name`},
		{"the folder", f.spec(named("..")), `is not a file name`},
		{"of another checksum", f.spec(named("other")), "install the program that the policy means, or push a policy with this checksum"},
		{"without a checksum", f.spec(func(s *host.Spec) { s.SHA256 = map[string]string{"plan9/mips": f.sum} }), "the policy has no checksum for " + runtime.GOOS},
		{"with half a checksum", f.spec(sum(f.sum[:32])), "is not a SHA-256 in hexadecimal"},
		{"no program", f.spec(named("text"), sum("2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881")), "it is not a program for " + runtime.GOOS},
		{"exits at once", f.spec(named("plugin-exits")), "it exited (exit status 3): it has to greet as a plugin does"},
		{"panics at once", f.spec(named("plugin-panics")), `the last it wrote to stderr: "panic: out of order"`},
		{"prints before its greeting", f.spec(named("plugin-chatty")), `it wrote "Hello, I am a plugin." to stdout before its greeting: let it write to stderr only`},
		{"prints and prints", f.spec(named("plugin-endless")), "to stdout before its greeting"},
		{"speaks another protocol", f.spec(named("plugin-old")), "it speaks version \"7\" of the protocol, and this server speaks 1"},
		{"listens elsewhere", f.spec(named("plugin-tcp")), "it listens on tcp 127.0.0.1:1: let it make a unix socket"},
		{"without TLS", f.spec(named("plugin-plain")), "it greets without a certificate"},
		{"refuses its configuration", f.spec(func(s *host.Spec) { s.Config = []byte(`{"refuse":"no window is named"}`) }), "it refuses its configuration: no window is named"},
		{"lacks a secret", f.spec(named("plugin-raw")), `it needs the secret "token"`},
		{"lacks the secret's file", f.spec(named("plugin-raw"), func(s *host.Spec) { s.Secrets = map[string]string{"token": "jira"} }), "the secret jira is missing"},
	} {
		t.Run(c.what, func(t *testing.T) {
			err := f.Check(context.Background(), c.spec)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n", "one line for the operator")
			b := f.Bind([]host.Spec{c.spec})
			defer b.Release()
			a := b.Authorize(context.Background(), c.spec.Name, question("alice", "get"))
			require.Equal(t, deny, a.Decision)
			require.True(t, a.Failed)
			require.Equal(t, fmt.Sprintf("authorizer plugin %q is unavailable", c.spec.Name), a.Reason, "callers learn nothing of the server")
		})
	}
}

func TestProgramsThatDoNotStartInTime(t *testing.T) {
	for name, c := range map[string]struct {
		within time.Duration // in which the one that greets has to have done so
		want   string
	}{
		"plugin-silent": {300 * time.Millisecond, "it has not greeted in time"},
		"plugin-deaf":   {3 * time.Second, "it has not started in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newHost(t, func(o *host.Options) { o.StartTimeout = c.within })
			start := time.Now()
			require.ErrorContains(t, f.Check(context.Background(), f.spec(func(s *host.Spec) { s.Name = name })), c.want)
			require.Less(t, time.Since(start), c.within+20*time.Second)
		})
	}
}

func TestWithoutFoldersNothingStarts(t *testing.T) {
	t.Parallel()
	f := newHost(t, func(o *host.Options) { o.Dir, o.SecretsDir = "", "" })
	require.ErrorContains(t, f.Check(context.Background(), f.spec()), "--plugin-dir")
}

func TestAProgramThatIsReplacedIsNotRun(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bind(f.spec())
	file := filepath.Join(f.options.Dir, "plugin")
	must(t, os.Remove(file))
	must(t, os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755))
	kill(t, pid(t, b))
	eventually(t, "the other one is refused", func() bool {
		err := f.Health()
		return err != nil && strings.Contains(err.Error(), "the policy has "+f.sum)
	})
	require.Equal(t, deny, ask(b, "alice", "get").Decision)
}

func TestACheckKeepsThePluginForThePush(t *testing.T) {
	t.Parallel()
	f := newHost(t, func(o *host.Options) { o.Linger = time.Minute })
	must(t, f.Check(context.Background(), f.spec()))
	require.Equal(t, 1.0, f.metric("up"))
	b := f.Bind([]host.Spec{f.spec()})
	defer b.Release()
	require.Equal(t, allow, ask(b, "alice", "get").Decision)
	require.Equal(t, 1.0, f.metric("up"), "it is the same process")
	require.Equal(t, 0.0, f.metric("restarts_total"))
}

func TestACheckOfAPluginThatIsDownTriesAgain(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	file := filepath.Join(f.options.Dir, "plugin")
	must(t, os.Rename(file, file+"-away"))
	b := f.Bind([]host.Spec{f.spec()})
	defer b.Release()
	for range 3 {
		require.ErrorContains(t, f.Check(context.Background(), f.spec()), "is missing")
	}
	must(t, os.Rename(file+"-away", file))
	must(t, f.Check(context.Background(), f.spec()))
	require.Equal(t, 1, strings.Count(f.log.String(), "level=ERROR"), "the same is not said again and again: %s", f.log)
}

// A refused plugin is needed by nobody: it does not affect the health, and its process ends.
func TestWhatACheckRefusesIsTriedOnce(t *testing.T) {
	t.Parallel()
	f := newHost(t, func(o *host.Options) { o.Linger = time.Minute })
	refused := f.spec(func(s *host.Spec) { s.Config = []byte(`{"refuse":"no window is named"}`) })
	require.ErrorContains(t, f.Check(context.Background(), refused), "no window is named")
	eventually(t, "it is forgotten", func() bool {
		n, err := testutil.GatherAndCount(f.metrics, "stele_plugin_circuit_state")
		return err == nil && n == 0
	})
	require.Equal(t, 1, strings.Count(f.log.String(), "no window is named"), f.log)
	require.NotContains(t, f.log.String(), "level=ERROR")
}

func TestACheckEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, f.Check(ctx, f.spec(func(s *host.Spec) { s.Name = "plugin-silent" })), context.DeadlineExceeded)
}

func TestAPluginDescribesItselfWithoutItsConfiguration(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	is, err := f.Describe(context.Background(), f.spec(func(s *host.Spec) { s.Name = "plugin-raw" }))
	must(t, err)
	require.Equal(t, []string{"token"}, is.GetSecrets())
	is, err = f.Host.Check(context.Background(), f.spec(func(s *host.Spec) { s.Name = "plugin-raw" }))
	require.ErrorContains(t, err, "it needs the secret", "and also if it is not configured then")
	require.Equal(t, []string{"token"}, is.GetSecrets())
	_, err = f.Describe(context.Background(), f.spec(func(s *host.Spec) { s.Name = "plugin-exits" }))
	require.ErrorContains(t, err, "plugin plugin-exits: it exited (exit status 3)")
}
