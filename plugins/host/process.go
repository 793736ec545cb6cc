package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"stele.dev/stele/limits/child"
)

// greetingBytes is the maximum length of a plugin's greeting, the line that says where it listens.
const greetingBytes = 8 << 10

// process is a program that runs as the leader of its own process group. It is the runner of a go-plugin client, which gets
// only the first line of its output. The rest goes to the log. All output is read as long as the program runs, so that
// the program never blocks.
type process struct {
	path, name string
	env        []string
	folder     string                   // its private folder, and its working directory
	start      func(func() error) error // see Host.launch
	record     *record
	stdout     *lines
	stderr     *lines

	cmd     *exec.Cmd
	hello   *io.PipeReader
	mu      sync.Mutex
	pid     int  // 0: not started
	gone    bool // it was reaped, so that another process may have its id
	stopped bool // kill was called
	first   string
	done    chan struct{} // closed when the program and its children have ended
	exit    error         // set before done is closed
}

// Start implements [runner.Runner].
func (p *process) Start(context.Context) (err error) {
	var ours, theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			for _, f := range ours {
				f.Close()
			}
		}
	}()
	for _, output := range []bool{false, true, true} {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		if !output {
			r, w = w, r
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	// Nothing is written to the input. Its end tells the plugin, on every system, that the host has ended.
	for range 20 {
		p.cmd = &exec.Cmd{
			Path: p.path, Args: []string{p.name}, Env: p.env, Dir: p.folder, SysProcAttr: child.Attributes(),
			Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2],
		}
		if err = p.start(p.cmd.Start); !errors.Is(err, syscall.ETXTBSY) {
			break
		}
		// Another child, forked while the copy of the program was written, may have it open for a moment.
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	if p.pid = p.cmd.Process.Pid; p.stopped {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
	}
	p.mu.Unlock()
	if err := p.record.started(p.pid); err != nil {
		p.stderr.log.Warn("a process is not recorded", "pid", p.pid, "error", err)
	}
	hello, greet := io.Pipe()
	p.hello = hello
	var output sync.WaitGroup
	output.Go(func() { p.listen(ours[1], greet) })
	output.Go(func() { _, _ = io.Copy(p.stderr, ours[2]) })
	go p.reap(ours, &output)
	return nil
}

// listen passes the first line on as the greeting, and logs the rest.
func (p *process) listen(stdout io.Reader, greet *io.PipeWriter) {
	r := bufio.NewReaderSize(stdout, greetingBytes)
	line, err := r.ReadSlice('\n')
	if len(line) > 0 {
		p.mu.Lock()
		p.first = strings.ToValidUTF8(strings.TrimSpace(string(line)), "\uFFFD")
		p.mu.Unlock()
		if err == nil || errors.Is(err, io.EOF) { // a longer line is not a greeting
			_, _ = greet.Write(append(line, '\n'))
		}
	}
	greet.Close()
	_, _ = io.Copy(p.stdout, r)
}

// reap waits until the program has ended, and ends all processes that it has started.
func (p *process) reap(ours []*os.File, output *sync.WaitGroup) {
	awaitExit(p.pid)
	p.mu.Lock()
	_ = unix.Kill(-p.pid, unix.SIGKILL) // its children; nobody else can have the id yet
	p.gone = true
	p.mu.Unlock()
	exit := p.cmd.Wait()
	_ = unix.Kill(-p.pid, unix.SIGKILL) // for systems where awaitExit does nothing
	for range 10 {
		left := strays(p.folder)
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if len(left) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	read := make(chan struct{})
	go func() { output.Wait(); close(read) }()
	select {
	case <-read:
	case <-time.After(time.Second): // another process still holds the pipes
	}
	for _, f := range ours {
		f.Close()
	}
	<-read
	for { // the first process of a container inherits its grandchildren
		if pid, err := unix.Wait4(-p.pid, nil, unix.WNOHANG, nil); pid <= 0 && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.exit = exit
	close(p.done)
}

// kill ends the program and its children; done is closed afterwards. It may be called at any time, and repeatedly.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	if p.pid != 0 && !p.gone {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
	}
}

// end kills the program, and waits until it and its children have ended.
func (p *process) end() {
	p.kill()
	if p.started() {
		<-p.done
	}
}

func (p *process) started() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid != 0
}

// ended returns how the program exited, with its last line on stderr.
func (p *process) ended() error {
	last := ""
	if line := p.stderr.lastLine(); line != "" {
		last = fmt.Sprintf("; the last it wrote to stderr: %q", line)
	}
	if p.exit == nil {
		return fmt.Errorf("it exited%s", last)
	}
	return fmt.Errorf("it exited (%w)%s", p.exit, last)
}

func (p *process) greeting() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first
}

// The other methods of go-plugin's runner.Runner.

func (p *process) Wait(context.Context) error      { <-p.done; return p.exit }
func (p *process) Kill(context.Context) error      { p.kill(); return nil }
func (p *process) Stdout() io.ReadCloser           { return p.hello }
func (p *process) Stderr() io.ReadCloser           { return io.NopCloser(strings.NewReader("")) }
func (p *process) Name() string                    { return p.name }
func (p *process) ID() string                      { return strconv.Itoa(p.pid) }
func (p *process) Diagnose(context.Context) string { return "" }
func (p *process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
