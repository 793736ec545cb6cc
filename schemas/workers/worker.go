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
	// errGone reports that the worker died before it got the question.
	errGone = errors.New("workers: it is gone")
	// errCrashed reports that the worker died while it evaluated the question.
	errCrashed = errors.New("workers: it crashed")
	// errLate reports that the worker did not answer in time.
	errLate = errors.New("workers: it did not answer in time")
	// errGarbage reports that the worker's answer is invalid.
	errGarbage = errors.New("workers: it answered what is no answer")
)

// A worker is a process. Only the goroutine that took it from the pool may use it. Others may only call
// kill.
type worker struct {
	cmd     *exec.Cmd
	to      *os.File
	from    *os.File
	answers *bufio.Reader
	stderr  head
	asked   int

	// ran and waited are the scheduling times of the process when it got the question.
	ran, waited time.Duration

	exited chan struct{} // closed when the process has ended; then the files are closed too
}

// launch starts a process. The calling thread must live as long as the process.
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

// kill kills the process. It may be called at any time and more than once.
func (w *worker) kill() { _ = w.cmd.Process.Kill() }

// greet waits until the process is ready for questions.
func (w *worker) greet(deadline time.Time) error {
	_ = w.from.SetReadDeadline(deadline)
	return w.hear(0, new(answer))
}

// ask sends a question and waits for the answer. After an error the process must not be used again.
func (w *worker) ask(q *question, deadline time.Time) (*answer, error) {
	w.ran, w.waited = scheduled(w.cmd.Process.Pid)
	_ = w.to.SetWriteDeadline(deadline)
	_ = w.from.SetReadDeadline(deadline)
	switch err := write(w.to, q); {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errLate
	case errors.Is(err, syscall.EPIPE), errors.Is(err, os.ErrClosed):
		return nil, errGone // the process did not read the whole question
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

// starved reports whether a process that missed its deadline spent the time waiting for a processor.
// Then the machine is busy, and the value may be valid.
func (w *worker) starved(deadline time.Duration) bool {
	ran, waited := scheduled(w.cmd.Process.Pid)
	return waited-w.waited > deadline/2 && ran-w.ran < deadline/4
}

// stderrStart returns the beginning of the process's standard error.
func (w *worker) stderrStart() string {
	w.kill()
	<-w.exited
	return w.stderr.String()
}

// cause returns the reason of a crash, taken from Go's crash output, or "".
func cause(stderr string) string {
	for line := range strings.Lines(stderr) {
		if _, why, ok := strings.Cut(strings.TrimSpace(line), "fatal error: "); ok {
			return ": " + why
		}
	}
	return ""
}

// maxSaid is the number of bytes of a worker's standard error that are kept.
const maxSaid = 8 << 10

// A head keeps the beginning of the data written to it.
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
