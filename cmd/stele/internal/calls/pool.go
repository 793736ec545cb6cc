package calls

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Pool has the workers of one script. It starts one when all others are busy.
type Pool struct {
	// Path returns where a program is that a caller has the name of.
	path func(name string) string
	// Alone reports whether a command must have a process of its own.
	alone    func(args []string) bool
	listener net.Listener
	calls    sync.WaitGroup

	mu   sync.Mutex
	idle map[string][]*worker // by program and what it read at its start
	busy map[*worker]bool
}

// worker is a process that runs one call at a time.
type worker struct {
	cmd  *exec.Cmd
	conn *net.UnixConn
}

// signals are those of one caller. They reach the worker until its call has ended.
type signals struct {
	mu    sync.Mutex
	sent  bool
	ended bool
}

// Listen makes a pool whose callers find it by a socket. Path returns the real program of a name. Alone reports whether a command
// needs a process of its own. Close ends the pool.
func Listen(socket string, path func(name string) string, alone func(args []string) bool) (*Pool, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	p := &Pool{path: path, alone: alone, listener: listener, idle: map[string][]*worker{}, busy: map[*worker]bool{}}
	p.calls.Go(p.accept)
	return p, nil
}

// Variable returns the environment variable by which callers find the pool: its name and value.
func (p *Pool) Variable() (name, value string) { return socketVariable, p.listener.Addr().String() }

// Close ends the pool and its workers, also those that have a call.
func (p *Pool) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	for w := range p.busy {
		_ = w.cmd.Process.Kill()
	}
	p.mu.Unlock()
	p.calls.Wait()
	return errors.Join(err, p.Renew())
}

// Renew ends the workers that have no call. The next calls have new ones, without connections to a server.
func (p *Pool) Renew() error {
	p.mu.Lock()
	idle := p.idle
	p.idle = map[string][]*worker{}
	p.mu.Unlock()
	var errs []error
	for _, workers := range idle {
		for _, w := range workers {
			errs = append(errs, w.conn.Close(), w.cmd.Wait())
		}
	}
	return errors.Join(errs...)
}

func (p *Pool) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.calls.Go(func() {
			defer conn.Close()
			if err := p.serve(conn.(*net.UnixConn)); err != nil {
				fmt.Fprintln(os.Stderr, "a call of a script:", err)
			}
		})
	}
}

// serve has a worker run the call of a caller.
func (p *Pool) serve(caller *net.UnixConn) error {
	c, files, err := receiveCall(caller)
	defer func() {
		for _, file := range files {
			_ = syscall.Close(file)
		}
	}()
	if err != nil {
		return err
	}
	program := p.path(c.program())
	if p.alone(c.Args) {
		return json.NewEncoder(caller).Encode(answer{Exec: program})
	}
	kind := program + "\n" + strings.Join(c.startup(), "\n")
	w, err := p.take(kind, program, c)
	if err != nil {
		return err
	}
	a, again := w.run(c, files, caller)
	p.mu.Lock()
	delete(p.busy, w)
	if again {
		p.idle[kind] = append(p.idle[kind], w)
	}
	p.mu.Unlock()
	if !again {
		_ = w.conn.Close()
		_ = w.cmd.Wait()
	}
	_ = json.NewEncoder(caller).Encode(a) // the caller may be gone
	return nil
}

// run has the worker run a call. It reports whether the worker can have another one.
func (w *worker) run(c call, files []int, caller *net.UnixConn) (a answer, again bool) {
	var s signals
	go s.forward(caller, w.cmd.Process)
	err := sendCall(w.conn, c, files)
	if err == nil {
		err = json.NewDecoder(w.conn).Decode(&a)
	}
	sent := s.end()
	if err == nil {
		return a, !sent // what was sent may yet end it
	}
	_ = w.conn.Close()
	_ = w.cmd.Wait()
	if status, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return answer{Signal: status.Signal()}, false
	}
	return answer{Code: w.cmd.ProcessState.ExitCode()}, false
}

// program is the name under which the caller was started.
func (c call) program() string { return c.Args[0][strings.LastIndexByte(c.Args[0], '/')+1:] }

// startup returns the variables that a program reads once, when it starts or first needs them.
func (c call) startup() []string {
	read := []string{"HOME=", "TZ=", "GO", "SSL_CERT_", "HTTP_PROXY=", "HTTPS_PROXY=", "NO_PROXY=", "http_proxy=", "https_proxy=", "no_proxy=", "KUBE_", "KUBECTL_", "KUBERNETES_", "XDG_"}
	variables := slices.DeleteFunc(slices.Clone(c.Env), func(v string) bool {
		return !slices.ContainsFunc(read, func(name string) bool { return strings.HasPrefix(v, name) })
	})
	slices.Sort(variables)
	return variables
}

// take returns an idle worker of a kind, or a new one.
func (p *Pool) take(kind, program string, c call) (*worker, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if idle := p.idle[kind]; len(idle) > 0 {
		w := idle[len(idle)-1]
		p.idle[kind], p.busy[w] = idle[:len(idle)-1], true
		return w, nil
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "worker"), os.NewFile(uintptr(pair[1]), "pool")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env, cmd.Dir, cmd.ExtraFiles = append(slices.Clone(c.Env), workerVariable+"=yes"), c.Dir, []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	w := &worker{cmd, conn.(*net.UnixConn)}
	p.busy[w] = true
	return w, nil
}

// end ends the time in which signals reach the worker. It reports whether there was one.
func (s *signals) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return s.sent
}

// forward passes signals of the caller to a worker. A caller that is gone takes the worker with it.
func (s *signals) forward(caller *net.UnixConn, process *os.Process) {
	for decoder := json.NewDecoder(caller); ; {
		var signal syscall.Signal
		err := decoder.Decode(&signal)
		if err != nil {
			signal = syscall.SIGKILL
		}
		s.mu.Lock()
		if !s.ended {
			s.sent = true
			_ = process.Signal(signal)
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}
