package host_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"stele.dev/stele/plugins/host"
)

// hostProcess is a server that the test kills: it runs a plugin with children, and prints the process ids.
func hostProcess() {
	h, err := host.New(host.Options{Dir: os.Args[1], StateDir: os.Args[2]})
	exitOn(err)
	s := host.Spec{Name: "plugin", SHA256: map[string]string{runtime.GOOS + "/" + runtime.GOARCH: os.Args[3]}, Timeout: 10 * time.Second}
	b := h.Bind([]host.Spec{s})
	_, err = h.Check(context.Background(), s)
	exitOn(err)
	fmt.Println(ask(b, "eve", "pid").Reason, ask(b, "eve", "leak").Reason, ask(b, "eve", "leak-session").Reason)
	select {}
}

func TestAPluginEndsWithAHostThatIsKilledAndItsChildrenWithTheNext(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	state := filepath.Join(t.TempDir(), "state")
	cmd := exec.Command(filepath.Join(f.options.Dir, "test-host"), f.options.Dir, state, f.sum)
	cmd.Args[0] = "test-host"
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	must(t, err)
	var pids []int
	for _, text := range strings.Fields(line) {
		n, err := strconv.Atoi(text)
		must(t, err)
		pids = append(pids, n)
		require.True(t, alive(n))
	}
	require.Len(t, pids, 3)

	_, err = host.New(host.Options{StateDir: state})
	must(t, err)
	require.True(t, alive(pids[0]), "a host that runs keeps its plugins")

	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	eventually(t, "the plugin ends with its host", func() bool { return !alive(pids[0]) })
	require.True(t, alive(pids[2]))

	_, err = host.New(host.Options{StateDir: state})
	must(t, err)
	eventually(t, "what it left is ended", func() bool { return !alive(pids[1]) && !alive(pids[2]) })
	left, err := os.ReadDir(state)
	must(t, err)
	require.Empty(t, left)
}

func TestARecordOfAnotherProcessEndsNobody(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	other := exec.Command("/proc/self/exe")
	other.Args = []string{"child"}
	must(t, other.Start())
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	for i, record := range []map[string]any{
		{"host": 1 << 30, "hostStart": "1", "pid": other.Process.Pid, "pidStart": "1", "folder": state},
		{"host": 1 << 30, "hostStart": "1", "pid": other.Process.Pid, "folder": "/"},
		{"host": 1 << 30, "hostStart": "1", "pid": -1, "pidStart": "1", "folder": ""},
	} {
		text, err := json.Marshal(record)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(state, fmt.Sprintf("plugin-%d.json", i)), text, 0o600))
	}
	must(t, os.WriteFile(filepath.Join(state, "plugin-torn.json"), []byte(`{"pid":`), 0o600))
	_, err := host.New(host.Options{StateDir: state})
	must(t, err)
	require.True(t, alive(other.Process.Pid))
	require.DirExists(t, state)
}

func TestTheChildrenOfAPluginEndWithIt(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"leak", "leak-session"} {
		t.Run(verb, func(t *testing.T) {
			f := newHost(t)
			b := f.bind(f.spec())
			child, err := strconv.Atoi(ask(b, "eve", verb).Reason)
			must(t, err)
			plugin := pid(t, b)
			require.True(t, alive(child))
			start := time.Now()
			f.stop()
			require.False(t, alive(plugin))
			require.False(t, alive(child))
			require.Less(t, time.Since(start), 5*time.Second, "a child that has the output open stalls nobody")
		})
	}
}

func TestNothingIsLeftOfAHostThatEnds(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	f := newHost(t, func(o *host.Options) { o.StateDir = state })
	f.bind(f.spec())
	left, err := os.ReadDir(state)
	must(t, err)
	require.NotEmpty(t, left)
	f.stop()
	left, err = os.ReadDir(state)
	must(t, err)
	require.Empty(t, left)
	require.ErrorContains(t, f.Check(context.Background(), f.spec()), "stopped")
}
