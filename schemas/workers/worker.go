package workers

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	// errGone reports that a worker has died before it was asked.
	errGone = errors.New("workers: it is gone")
	// errCrashed reports that a worker has died of a question.
	errCrashed = errors.New("workers: it crashed")
	// errLate reports that a worker has not answered in time.
	errLate = errors.New("workers: it did not answer in time")
	// errGarbage reports that what a worker says is no answer to what it was asked.
	errGarbage = errors.New("workers: it answered what is no answer")
)

// A worker is a process. Whoever has taken it from the pool has it alone, but for kill.
type worker struct {
	cmd     *exec.Cmd
	to      *os.File
	from    *os.File
	answers *bufio.Reader
	stderr  head
	asked   int

	// How long it had run, and waited for a processor, when it was asked.
	ran, waited time.Duration

	exited chan struct{} // closed when it is; the files are closed then
}

// launch starts a process. Its thread MUST live for as long as the process may.
func launch(cmd *exec.Cmd) (*worker, error) {
	stdin, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, stdout, err := os.Pipe()
	if err != nil {
		stdin.Close()
		to.Close()
		return nil, err
	}
	w := &worker{cmd: cmd, to: to, from: from, answers: bufio.NewReader(from), exited: make(chan struct{})}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, &w.stderr
	cmd.WaitDelay = time.Second
	err = cmd.Start()
	stdin.Close()
	stdout.Close()
	if err != nil {
		to.Close()
		from.Close()
		return nil, err
	}
	return w, nil
}

// wait returns when the process has ended.
func (w *worker) wait() {
	_ = w.cmd.Wait()
	w.to.Close()
	w.from.Close()
	close(w.exited)
}

// kill ends the process. It may be called at any time, and more than once.
func (w *worker) kill() { _ = w.cmd.Process.Kill() }

// greet waits until the process is ready to be asked.
func (w *worker) greet(deadline time.Time) error {
	_ = w.from.SetReadDeadline(deadline)
	return w.hear(0, new(answer))
}

// ask asks a question and waits for the answer. After an error the process is of no use.
func (w *worker) ask(q *question, deadline time.Time) (*answer, error) {
	w.ran, w.waited = scheduled(w.cmd.Process.Pid)
	_ = w.to.SetWriteDeadline(deadline)
	_ = w.from.SetReadDeadline(deadline)
	switch err := write(w.to, q); {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errLate
	case errors.Is(err, syscall.EPIPE), errors.Is(err, os.ErrClosed):
		return nil, errGone // it did not read all of it
	default:
		return nil, err
	}
	a := &answer{}
	return a, w.hear(q.ID, a)
}

func (w *worker) hear(id uint64, a *answer) error {
	switch err := read(w.answers, a); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errLate
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrClosed):
		return errCrashed
	case err != nil:
		return fmt.Errorf("%w: %w", errGarbage, err)
	case a.ID != id:
		return fmt.Errorf("%w: it is for question %d, not %d", errGarbage, a.ID, id)
	}
	return nil
}

// starved reports whether a process that has not answered within a deadline has spent that waiting
// for a processor: then the machine is busy, and the value need not be at fault.
func (w *worker) starved(deadline time.Duration) bool {
	ran, waited := scheduled(w.cmd.Process.Pid)
	return waited-w.waited > deadline/2 && ran-w.ran < deadline/4
}

// said is what the process said of its end.
func (w *worker) said() string {
	w.kill()
	<-w.exited
	return w.stderr.String()
}

// cause is in a few words why a process has crashed, as Go says it; "" if it does not.
func cause(stderr string) string {
	for line := range strings.Lines(stderr) {
		if _, why, ok := strings.Cut(strings.TrimSpace(line), "fatal error: "); ok {
			return ": " + why
		}
	}
	return ""
}

// maxSaid is how much of what a worker says on its standard error is kept.
const maxSaid = 8 << 10

// head is the beginning of what was written.
type head struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Write(p[:min(len(p), maxSaid-h.text.Len())])
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}
