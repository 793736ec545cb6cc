package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"stele.dev/stele/plugins/host"
)

// withTemp sets TMPDIR to a new folder, with a path that is short enough for sockets.
func withTemp(t testing.TB) string {
	t.Helper()
	temp, err := os.MkdirTemp("/tmp", "")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(temp) })
	t.Setenv("TMPDIR", temp)
	return temp
}

// A cleaner of temporary files may remove the folders of plugins that run for long. They must still
// restart, and never in a folder that somebody else made since.
func TestAPluginStartsAgainWhenItsFolderIsGone(t *testing.T) {
	for what, replace := range map[string]func(folder string) error{
		"gone":        func(string) error { return nil },
		"another one": func(folder string) error { return os.Mkdir(folder, 0o777) },
		"a link":      func(folder string) error { return os.Symlink(filepath.Dir(folder), folder) },
	} {
		t.Run(what, func(t *testing.T) {
			temp := withTemp(t)
			f := newHost(t)
			b := f.bind(f.spec())
			first := pid(t, b)
			folders, err := filepath.Glob(filepath.Join(temp, "stele-*"))
			must(t, err)
			require.Len(t, folders, 1)
			must(t, os.RemoveAll(folders[0]))
			must(t, replace(folders[0]))
			kill(t, first)
			eventually(t, "another process answers", func() bool {
				a := ask(b, "alice", "get")
				return a.Decision == allow && pid(t, b) != first
			})
			left, err := filepath.Glob(filepath.Join(folders[0], "[0-9]*"))
			must(t, err)
			require.Empty(t, left, "what is not the host's own is not used")
			f.stop()
		})
	}
}

// The failure policy is for failures of the plugin: a caller that gives up must be denied.
func TestWhoGivesUpIsDenied(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bind(f.spec(func(s *host.Spec) { s.FailurePolicy = "NoOpinion" }))
	ctx, giveUp := context.WithTimeout(context.Background(), time.Millisecond)
	defer giveUp()
	a := b.Authorize(ctx, "plugin", question("mallory", "hang"))
	require.Equal(t, deny, a.Decision)
	require.True(t, a.Failed)
}

// A plugin's error about its configuration must not be mistaken for an error of the handshake.
func TestWhyAConfigurationIsRefusedIsSaidInItsWords(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	for _, words := range []string{"incompatible settings: both a and b", "timeout while waiting for the directory"} {
		err := f.Check(context.Background(), f.spec(func(s *host.Spec) { s.Config = []byte(`{"refuse":"` + words + `"}`) }))
		require.ErrorContains(t, err, "it refuses its configuration: "+words)
		require.NotContains(t, err.Error(), "protocol")
		require.NotContains(t, err.Error(), "has not started in time")
	}
}

// What a plugin starts gains no privileges by set-user-ID files, also after a restart of the plugin.
func TestPluginsCannotGainPrivileges(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("there is no /proc")
	}
	f := newHost(t)
	b := f.bind(f.spec())
	first := pid(t, b)
	check := func(pid int) {
		t.Helper()
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		must(t, err)
		require.Contains(t, string(text), "NoNewPrivs:\t1")
	}
	check(first)
	kill(t, first)
	eventually(t, "another process answers", func() bool { return ask(b, "alice", "get").Decision == allow && pid(t, b) != first })
	check(pid(t, b))
	f.stop()
}
