package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"stele.dev/stele/cmd/stele/internal/apiserver"
	"stele.dev/stele/cmd/stele/internal/build"
	"stele.dev/stele/cmd/stele/internal/calls"
	"stele.dev/stele/cmd/stele/internal/flood"
	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/eventlog/etcdlog/etcdtest"
	"stele.dev/stele/examples/controller/provision"
	"stele.dev/stele/examples/ha/balance"
	"stele.dev/stele/examples/webhook/admit"
)

// programs are what the test binary is when it is called by their names.
var programs = map[string]func(){
	"stele":         main,
	"kubectl-stele": main,
	"controller":    provision.Main,
	"balancer":      balance.Main,
	"sites-webhook": admit.Main,
	"flood":         flood.Main,
	apiserver.Name:  main,
	envtestEtcd:     func() { etcdmain.Main(os.Args) },
	nextVersion:     func() { build.Version = "0.2.0-next"; main() },
}

// nextVersion is the program stele of a later version.
const nextVersion = "stele-next"

func TestMain(m *testing.M) {
	etcdtest.Member()
	program := programs[filepath.Base(os.Args[0])]
	if program != nil && calls.IsWorker() {
		work := func() int { return execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr) }
		if err := calls.Work(work); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if program != nil {
		program()
		os.Exit(0)
	}
	code, err := testWithPrograms(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

// testWithPrograms runs the tests with the programs in the PATH; with -short, a few of them. Whatever they make where temporary files are, be they
// killed, goes when the tests end.
func testWithPrograms(m *testing.M) (code int, err error) {
	temporary, err := os.MkdirTemp("", "stele") // a short name: plugins' sockets are in it
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	bin := filepath.Join(temporary, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	for name := range programs {
		if err := link(self, filepath.Join(bin, name)); err != nil {
			return 0, err
		}
	}
	// What starts and ends a thousand times needs its memory less than its time. Tests that wait let others go on.
	for name, value := range map[string]string{"TMPDIR": temporary, "PATH": bin + string(filepath.ListSeparator) + os.Getenv("PATH"), "GOGC": "400"} {
		if err := os.Setenv(name, value); err != nil {
			return 0, err
		}
	}
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		return 0, err
	}
	flag.Parse()
	if testing.Short() && flag.Lookup("test.run").Value.String() == "" {
		// For `make quick`: all others start dozens of processes, or kill them for minutes.
		if err := flag.Set("test.run", "^TestScripts$/^(quickstart|log|vet)$"); err != nil {
			return 0, err
		}
	}
	return m.Run(), nil
}

// link gives a program another name. A symbolic link would not do: servers start their own program, and it would know
// its first name.
func link(program, name string) error {
	if os.Link(program, name) == nil {
		return nil
	}
	return copyProgram(program, name) // it lies on another file system
}

func copyProgram(program, name string) error {
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// buildProgram makes one of the programs that the test binary is not, for what is in it all would start with. It is linked
// where Go keeps what it has built, and so only once.
func buildProgram(program, name string) error {
	if out, err := exec.Command("go", "run", "-ldflags", "-s -w", "-exec", "cp", program, name).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

// withKubectl has kubectl in the PATH.
func withKubectl(t *testing.T) {
	t.Helper()
	if err := kubectl(); err != nil {
		t.Fatal(err)
	}
}

var kubectl = sync.OnceValue(func() error { return buildProgram("./internal/kubectl", filepath.Join(os.TempDir(), "bin", "kubectl")) })

// callers is the folder of programs that scripts have in their PATH in place of bin: workers run the commands of stele and
// kubectl, and all others are the same.
var callers = sync.OnceValues(func() (string, error) {
	folder := filepath.Join(os.TempDir(), "callers")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return "", err
	}
	caller := filepath.Join(folder, "kubectl")
	if err := buildProgram("./internal/calls/caller", caller); err != nil {
		return "", err
	}
	for name := range programs {
		program := filepath.Join(os.TempDir(), "bin", name)
		if name == "stele" || name == "kubectl-stele" {
			program = caller
		}
		if err := link(program, filepath.Join(folder, name)); err != nil {
			return "", err
		}
	}
	return folder, nil
})

// withWorkers has workers run the commands stele and kubectl of a script. It returns their pool.
func withWorkers(e *testscript.Env) (*calls.Pool, error) {
	folder, err := callers()
	if err != nil {
		return nil, err
	}
	socket, err := os.CreateTemp("", "calls") // a name that is free; the script's folder may have too long a one
	if err != nil {
		return nil, err
	}
	if err := errors.Join(socket.Close(), os.Remove(socket.Name())); err != nil {
		return nil, err
	}
	path := func(name string) string { return filepath.Join(os.TempDir(), "bin", name) }
	pool, err := calls.Listen(socket.Name(), path, alone)
	if err != nil {
		return nil, err
	}
	e.Setenv(pool.Variable())
	e.Setenv("PATH", strings.Replace(e.Getenv("PATH"), filepath.Join(os.TempDir(), "bin"), folder, 1))
	return pool, nil
}

// alone reports whether a command has a process of its own: a server, and what changes how a process logs.
func alone(args []string) bool {
	return len(args) > 1 && args[1] == "serve" || slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-v") })
}

// withEtcd has etcd in the PATH, of the version that servers embed.
func withEtcd(t *testing.T) {
	t.Helper()
	if err := etcd(); err != nil {
		t.Fatal(err)
	}
}

var etcd = sync.OnceValue(func() error {
	return buildProgram("go.etcd.io/etcd/server/v3", filepath.Join(os.TempDir(), "bin", "etcd"))
})

// plugins is the program of internal/testplugins.
var plugins = sync.OnceValues(func() (string, error) {
	program := filepath.Join(os.TempDir(), "testplugins")
	return program, buildProgram("./internal/testplugins", program)
})

func scriptPlugin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: plugin NAME FOLDER")
	}
	program, err := plugins()
	ts.Check(err)
	ts.Check(copyProgram(program, filepath.Join(ts.MkAbs(args[1]), args[0]))) // a plugin is a file of its own
}

// key is one by which tokens are signed.
var key = sync.OnceValues(func() ([]byte, error) {
	file := filepath.Join(os.TempDir(), "sa.key")
	if err := tokens.MakeKey(file); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

// provideKey puts a key into the folder of a server's data where there is no such folder yet: to find one takes a third
// of the time of a first start.
func provideKey(dir string, args []string) error {
	data := "stele-data"
	if i := slices.Index(args, "--data-dir"); i >= 0 && i+1 < len(args) {
		data = args[i+1]
	}
	if !filepath.IsAbs(data) {
		data = filepath.Join(dir, data)
	}
	if _, err := os.Stat(data); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := key()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(data, "pki"), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(data, "pki", "sa.key"), text, 0o600)
}
