// Package child runs this program as a child process with limits.
//
// A bundle is CUE, which may compute without end or take more memory than there is, and CUE can
// be neither interrupted nor bounded. It is therefore evaluated by a process of its own:
//
//	err := apart.Run(ctx, limits, []string{"policy", "compile"}, write, read)
//
// The command calls [Confine] before it reads its input. Run always returns: nil, a [*Failure] if
// the child's work was at fault, or a [*Starved] if the machine was, so that a second try may
// succeed.
package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Limits bound a child.
type Limits struct {
	// CPU is how much processor time it may use. Unlike Wall it does not depend on how busy the
	// machine is.
	CPU time.Duration
	// Wall is how long it may run.
	Wall time.Duration
	// Memory is how many bytes it may use.
	Memory int64
	// Output is how many bytes it may write.
	Output int64
}

// A Failure reports that a child failed because of its input.
type Failure struct {
	Why   string
	Limit Limit // the limit that it exceeded; 0 if none
}

// Limit is one of [Limits].
type Limit int

// The limits that a child may exceed.
const (
	CPU Limit = iota + 1
	Memory
	Stack
	Output
)

// Error says why the child failed.
func (f *Failure) Error() string { return f.Why }

// Starved reports that a child could not be started, or did not get the processor time or the
// memory that it may use. The same input may succeed later.
type Starved struct {
	Why   string
	Cause error // may be nil
}

// Error says what was missing, and its cause.
func (s *Starved) Error() string {
	if s.Cause != nil {
		return s.Why + ": " + s.Cause.Error()
	}
	return s.Why
}

// Unwrap returns the cause.
func (s *Starved) Unwrap() error { return s.Cause }

// Command returns a command that runs this program. On Linux it is the running program, also if
// another version has been installed in its place: another version might compile a policy
// differently. Elsewhere it is the program's file.
func Command(args ...string) (*exec.Cmd, error) {
	program := "/proc/self/exe"
	if _, err := os.Stat(program); err != nil {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(program, args...)
	cmd.Args[0] = "stele" // whatever the file is called
	return cmd, nil
}

// Run runs this program with arguments. write writes the child's input and read reads its
// output, at the same time; an error of read is returned if the child itself did not fail.
func Run(ctx context.Context, l Limits, args []string, write func(io.Writer) error, read func(io.Reader) error) error {
	cmd, err := Command(args...)
	if err != nil {
		return &Starved{"the program could not be started", err}
	}
	limited, cancel := context.WithTimeout(ctx, l.Wall)
	defer cancel()
	c := &child{cmd: cmd, limits: l, stderr: &head{left: maxStderr}}
	cmd.Env = []string{"GOTRACEBACK=none", l.variable()}
	cmd.Dir = "/"
	cmd.SysProcAttr = Attributes()
	cmd.Stderr = c.stderr
	cmd.WaitDelay = time.Second
	return c.run(ctx, limited, write, read)
}

type child struct {
	cmd    *exec.Cmd
	limits Limits
	stderr *head
}

// run starts the child and waits until it has ended.
func (c *child) run(ctx, limited context.Context, write func(io.Writer) error, read func(io.Reader) error) error {
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return &Starved{"the program could not be started", err}
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return &Starved{"the program could not be started", err}
	}
	started, ended := make(chan error), make(chan error, 1)
	finished := make(chan struct{}) // all has been read
	go func() {
		// On Linux the kernel kills the child when the thread that started it ends. It ends with this goroutine, because that is
		// never unlocked: nothing else may be started on a thread that has forgone privileges.
		runtime.LockOSThread()
		ForgoPrivileges()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			<-finished
			ended <- c.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return &Starved{"the program could not be started", err}
	}
	stop := context.AfterFunc(limited, func() { _ = c.cmd.Process.Kill() })
	defer stop()
	go func() {
		defer stdin.Close()
		_ = write(stdin) // it fails if the child has ended, which verdict explains
	}()
	output := &bounded{from: stdout, left: c.limits.Output}
	readErr := read(output)
	if readErr != nil {
		_ = c.cmd.Process.Kill()
	}
	_, _ = io.Copy(io.Discard, stdout)
	close(finished)
	return c.verdict(ctx, limited, <-ended, output, readErr)
}

// verdict returns why a child failed; nil if it did not.
func (c *child) verdict(ctx, limited context.Context, ended error, output *bounded, readErr error) error {
	state := c.cmd.ProcessState
	var used time.Duration
	if state != nil {
		used = (state.UserTime() + state.SystemTime()).Round(100 * time.Millisecond)
	}
	switch {
	case ended == nil:
		return readErr
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case output.exceeded:
		return &Failure{fmt.Sprintf("the result is larger than %s", size(c.limits.Output)), Output}
	case state != nil && state.ExitCode() == exitCPU, used >= c.limits.CPU:
		return &Failure{fmt.Sprintf("it takes more than %v of processor time", c.limits.CPU), CPU}
	case limited.Err() != nil:
		return &Starved{Why: fmt.Sprintf("the machine is too busy: in %v there were %v of processor time for it", c.limits.Wall, used)}
	}
	text := c.stderr.text.String()
	switch {
	case strings.Contains(text, "out of memory"), strings.Contains(text, "cannot allocate memory"), strings.Contains(text, "failed to create new OS thread"):
		return &Failure{fmt.Sprintf("it takes more than %s of memory", size(c.limits.Memory)), Memory}
	case strings.Contains(text, "stack overflow"), strings.Contains(text, "stack exceeds"):
		return &Failure{"it recurs too deeply", Stack}
	case killed(state) && readErr == nil, killed(state) && errors.Is(readErr, io.ErrUnexpectedEOF), killed(state) && errors.Is(readErr, io.EOF):
		return &Starved{Why: "the process was killed, most likely because the machine has too little memory"}
	}
	if line, _, _ := strings.Cut(strings.TrimSpace(text), "\n"); line != "" {
		return &Failure{Why: line}
	}
	return &Failure{Why: ended.Error()}
}

// killed reports whether a process was ended by SIGKILL.
func killed(state *os.ProcessState) bool {
	if state == nil {
		return false
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// size formats a number of bytes.
func size(n int64) string {
	if n >= 1<<30 && n%(1<<30) == 0 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// bounded is a reader that fails after a number of bytes.
type bounded struct {
	from     io.Reader
	left     int64
	exceeded bool
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		b.exceeded = true
		return 0, errors.New("too much output")
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left+1)])
	b.left -= int64(n)
	return n, err
}

// maxStderr is how much is kept of a child's standard error.
const maxStderr = 64 << 10

// head is a writer that keeps the beginning of what is written.
type head struct {
	text bytes.Buffer
	left int
}

func (h *head) Write(p []byte) (int, error) {
	n := min(len(p), h.left)
	h.left -= n
	h.text.Write(p[:n])
	return len(p), nil
}
