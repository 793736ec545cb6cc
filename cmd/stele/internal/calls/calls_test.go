package calls_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"stele.dev/stele/cmd/stele/internal/calls"
)

// TestMain makes the test binary the caller and the program, too.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "program":
		if calls.IsWorker() {
			if err := calls.Work(program); err != nil {
				panic(err)
			}
			os.Exit(0)
		}
		os.Exit(program())
	case "caller":
		panic(calls.Call())
	}
	os.Exit(m.Run())
}

// program does what its first argument says, and returns its exit code.
func program() int {
	dir, _ := os.Getwd()
	switch os.Args[1] {
	case "show":
		fmt.Println(os.Getpid(), strings.Join(os.Args[2:], ","), os.Getenv("WORD"), filepath.Base(dir))
		fmt.Fprintln(os.Stderr, "this is stderr")
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "return":
		return 3
	case "exit":
		os.Exit(4)
	case "panic":
		panic("at once")
	case "wait":
		fmt.Println("waits")
		select {}
	}
	return 0
}

// The folder of the programs, and the environment variable by which callers find the pool.
var (
	folder   string
	variable [2]string
)

// called is a caller of a pool.
func called(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(folder, "caller"), args...)
	cmd.Env = append(os.Environ(), strings.Join(variable[:], "="), "WORD=word")
	cmd.Dir = folder
	return cmd
}

// start returns a pool. Its folder has a short name, because a socket is in it.
func start(t *testing.T) *calls.Pool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	folder = dir
	for _, name := range []string{"caller", "program"} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	path := func(string) string { return filepath.Join(dir, "program") }
	pool, err := calls.Listen(filepath.Join(dir, "socket"), path, func(args []string) bool { return args[len(args)-1] == "alone" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	variable[0], variable[1] = pool.Variable()
	return pool
}

// shown runs the command show, and returns the process that ran it.
func shown(t *testing.T, cmd *exec.Cmd) (pid string) {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("from stdin\n"), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err, stderr.String())
	}
	pid, rest, _ := strings.Cut(stdout.String(), " ")
	want := strings.Join(cmd.Args[2:], ",") + " word " + filepath.Base(cmd.Dir) + "\nfrom stdin\n"
	if rest != want || stderr.String() != "this is stderr\n" {
		t.Errorf("%q and %q, want %q", rest, stderr.String(), want)
	}
	return pid
}

func TestCommandsHaveWhatTheirCallersHave(t *testing.T) {
	pool := start(t)
	first := shown(t, called(t, "show", "a", "b"))
	other := called(t, "show", "c")
	other.Dir = t.TempDir()
	if again := shown(t, other); again != first {
		t.Error("the second command had another process than the first")
	}
	other = called(t, "show")
	other.Env = append(other.Env, "TZ=Mars")
	if shown(t, other) == first {
		t.Error("a command with another time zone had the same process")
	}
	if shown(t, called(t, "show", "alone")) == first {
		t.Error("a command that wants its own process had none")
	}
	if err := pool.Renew(); err != nil {
		t.Error(err)
	}
	if shown(t, called(t, "show")) == first {
		t.Error("a worker that was to end had another command")
	}
}

func TestCallersEndAsTheirCommands(t *testing.T) {
	start(t)
	for command, want := range map[string]int{"show": 0, "return": 3, "exit": 4, "panic": 2} {
		var exit *exec.ExitError
		cmd := called(t, command)
		err := cmd.Run()
		if errors.As(err, &exit) && exit.ExitCode() != want || exit == nil && (err != nil || want != 0) {
			t.Errorf("%s: %v, want exit code %d", command, err, want)
		}
	}
	shown(t, called(t, "show", "still"))
}

func TestSignalsReachCommands(t *testing.T) {
	start(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		cmd := called(t, "wait")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		if line, err := lines.ReadString('\n'); line != "waits\n" {
			t.Fatal(line, err)
		}
		shown(t, called(t, "show", "meanwhile"))
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if _, err := lines.ReadString('\n'); err != io.EOF { // the command's process has let go of the pipe
			t.Error(err)
		}
		_ = cmd.Wait()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != signal {
			t.Errorf("%v: the caller ended with %v", signal, cmd.ProcessState)
		}
	}
}

// As in `stele history | head -1`, if head ends first.
func TestACommandWhoseOutputNobodyReadsEnds(t *testing.T) {
	start(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	cmd := called(t, "show")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGPIPE) {
		t.Errorf("it ends with %v", err)
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	pool := start(t)
	cmd := called(t, "wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the caller ended as if its command had")
	}
}
