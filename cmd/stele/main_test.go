package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"stele.dev/stele/cmd/stele/internal/calls"
	"stele.dev/stele/core/auth/authn/authntest"
)

// process is a running `stele serve`.
type process struct {
	*exec.Cmd
	stdout, stderr syncBuffer
	heard          map[*syncBuffer]int // of what it said, how much scripts have waited for
	ready          chan struct{}       // closed once it has said where it is
	exited         chan struct{}
	err            error
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// serveProcess starts `stele serve` in a folder. It listens on a port that is free, unless
// the arguments say otherwise.
func serveProcess(program, dir string, env []string, args ...string) (*process, error) {
	if err := provideKey(dir, args); err != nil {
		return nil, err
	}
	p := &process{Cmd: exec.Command(program, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...), heard: map[*syncBuffer]int{}, ready: make(chan struct{}), exited: make(chan struct{})}
	p.Dir, p.Env = dir, env
	stdout, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.Stderr = &p.stderr
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			fmt.Fprintln(&p.stdout, lines.Text())
			if strings.HasPrefix(lines.Text(), "Try ") {
				close(p.ready)
			}
		}
		_, _ = io.Copy(io.Discard, stdout)
		p.err = p.Wait()
		close(p.exited)
	}()
	return p, nil
}

// await waits until the server serves.
func (p *process) await() error {
	select {
	case <-p.ready:
		return nil
	case <-p.exited:
		return fmt.Errorf("stele serve ended: %v\n%s%s", p.err, p.stdout.String(), p.stderr.String())
	case <-time.After(time.Minute):
		return fmt.Errorf("stele serve is not ready after a minute\n%s%s", p.stdout.String(), p.stderr.String())
	}
}

// end signals the server and waits until it is gone.
func (p *process) end(signal syscall.Signal) error {
	_ = p.Process.Signal(signal)
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		_ = p.Process.Kill()
		return fmt.Errorf("stele serve has not ended a minute after %v", signal)
	}
	if signal == syscall.SIGTERM && p.err != nil {
		return fmt.Errorf("stele serve ended with %v\n%s", p.err, p.stderr.String())
	}
	return nil
}

// hear waits until the server has said what a pattern describes, behind what was waited
// for before.
func (p *process) hear(in *syncBuffer, pattern *regexp.Regexp) error {
	deadline := time.After(time.Minute)
	for {
		text := in.String()
		if at := pattern.FindStringIndex(text[p.heard[in]:]); at != nil {
			p.heard[in] += at[1]
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			return fmt.Errorf("stele serve has not said %q within a minute, but\n%s", pattern, text[p.heard[in]:])
		case <-p.exited:
			return fmt.Errorf("stele serve ended: %v\n%s", p.err, p.stderr.String())
		}
	}
}

// serverKey holds the script's server, poolKey the workers that run its commands.
type (
	serverKey struct{}
	poolKey   struct{}
)

// TestScripts runs the stories of testdata/script with the real program and the real
// kubectl, whose commands are run by processes that stay. Beside testscript's own commands they have
//
//	serve [flags]   start a server in the script's folder, and point KUBECONFIG at it; ADDRESS is where it listens, PID its process
//	hear stdout|stderr REGEXP
//	                wait until the server says it, after what was last waited for
//	end             end it by SIGTERM; it must exit with 0 (not stop, which is testscript's: it would end the script)
//	crash           end it by SIGKILL
//	plugin NAME FOLDER
//	                put a plugin of internal/testplugins into a folder
//	shows FILE      what the last program printed is what the file has, but for what no two runs have in common
func TestScripts(t *testing.T) {
	withKubectl(t)
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home")) // kubectl's caches
			e.Setenv("TZ", "UTC")                              // times are as wide everywhere
			root, err := filepath.Abs(filepath.Join("..", ".."))
			if err != nil {
				return err
			}
			e.Setenv("REPO", root)
			e.Setenv("GOGC", os.Getenv("GOGC"))
			pool, err := withWorkers(e)
			if err != nil {
				return err
			}
			e.Values[poolKey{}] = pool
			server := new(*process)
			e.Values[serverKey{}] = server
			e.Values[issuerKey{}] = new(*authntest.Issuer)
			e.Values[hookKey{}] = new(*httptest.Server)
			limitScript(t, e, server)
			e.Defer(func() {
				if *server != nil {
					_ = (*server).end(syscall.SIGKILL)
				}
				if err := pool.Close(); err != nil {
					t.Error(err)
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":  scriptServe,
			"hear":   scriptHear,
			"shows":  scriptShows,
			"plugin": scriptPlugin,
			"end":    func(ts *testscript.TestScript, neg bool, args []string) { scriptEnd(ts, syscall.SIGTERM) },
			"exits":  scriptExits,
			"issuer": scriptIssuer, "certificate": scriptCertificate, "webhook": scriptWebhook, "proxy": scriptProxy, // see there
			"crash": func(ts *testscript.TestScript, neg bool, args []string) { scriptEnd(ts, syscall.SIGKILL) },
		},
	})
}

func scriptServe(ts *testscript.TestScript, neg bool, args []string) {
	program, err := exec.LookPath("stele")
	ts.Check(err)
	folder, err := callers()
	ts.Check(err)
	home, path := ts.Getenv("HOME"), strings.Replace(ts.Getenv("PATH"), folder, filepath.Join(os.TempDir(), "bin"), 1)
	p, err := serveProcess(program, ts.Getenv("WORK"), []string{"HOME=" + home, "PATH=" + path, "TMPDIR=" + os.TempDir(), "GOGC=" + os.Getenv("GOGC")}, args...)
	ts.Check(err)
	ts.Check(p.await())
	*ts.Value(serverKey{}).(**process) = p
	ts.Setenv("KUBECONFIG", filepath.Join(ts.Getenv("WORK"), "stele-data", "admin.kubeconfig"))
	ts.Setenv("PID", strconv.Itoa(p.Process.Pid))
	ts.Setenv("ADDRESS", regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(p.stdout.String()))
	ts.Check(os.WriteFile(ts.MkAbs("serve.out"), []byte(p.stdout.String()), 0o600))
}

// scriptExits runs a program that must end with an exit code.
func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	code := 0
	var ended *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ended) {
		code = ended.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func scriptHear(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: hear stdout|stderr REGEXP")
	}
	p := *ts.Value(serverKey{}).(**process)
	in := map[string]*syncBuffer{"stdout": &p.stdout, "stderr": &p.stderr}[args[0]]
	if in == nil {
		ts.Fatalf("hear %s: want stdout or stderr", args[0])
	}
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	ts.Check(p.hear(in, pattern))
}

func scriptShows(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: shows FILE")
	}
	got, want := ts.ReadFile("stdout"), ts.ReadFile(args[0])
	if diff := gocmp.Diff(constant(want), constant(got)); diff != "" {
		ts.Fatalf("(-%s +stdout):\n%s\nIt is all of\n%s", args[0], diff, got)
	}
}

// slowRequest matches what a server says of a request that took a second, as any may on a busy machine. Scripts that want a server to say nothing
// do not count it; the tests of package core say when it is logged.
var slowRequest = regexp.MustCompile(`(?m)^.* msg="a request was slow" .*\n`)

func scriptEnd(ts *testscript.TestScript, signal syscall.Signal) {
	server := ts.Value(serverKey{}).(**process)
	p := *server
	*server = nil
	ts.Check(ts.Value(poolKey{}).(*calls.Pool).Renew()) // connections to the server
	ts.Check(p.end(signal))
	ts.Check(os.WriteFile(ts.MkAbs("serve.err"), slowRequest.ReplaceAll([]byte(p.stderr.String()), nil), 0o600))
}
