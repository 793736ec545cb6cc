package workers

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"stele.dev/stele/limits/breaker"
	"stele.dev/stele/limits/child"
	"stele.dev/stele/schemas"
)

// Options configure a pool.
type Options struct {
	// Command returns the command that runs a worker: its path and arguments. The pool sets the
	// rest.
	Command func() (*exec.Cmd, error)
	// Size is the maximum number of workers. 0 means two for each processor.
	Size int
	// Deadline limits an evaluation, including all waiting. 0 means two seconds.
	Deadline time.Duration
	// Lifetime is the number of evaluations after which a worker is replaced, because CUE retains
	// some memory. 0 means 10,000.
	Lifetime int
	Logger   *slog.Logger
}

const (
	// maxHeap is the heap size in bytes at which a worker is replaced.
	maxHeap = 192 << 20
	// softMemory is the soft memory limit of a worker's garbage collector.
	softMemory = "GOMEMLIMIT=256MiB"
)

// A Pool is an evaluator that runs in worker processes. It starts workers when needed.
type Pool struct {
	options Options
	slots   chan struct{} // one token for each concurrent evaluation
	ids     atomic.Uint64

	values, expressions *refusals

	starter  sync.Once
	launches chan func()
	closing  chan struct{}

	mu      sync.Mutex
	closed  bool
	idle    []*worker // used from the end: the last worker is most likely to have the expression cached
	live    map[*worker]bool
	running sync.WaitGroup // counts workers

	evaluations, overruns, crashes atomic.Uint64
}

// New returns a pool. It starts no workers yet.
func New(o Options) *Pool {
	o.Size = cmp.Or(o.Size, 2*runtime.GOMAXPROCS(0))
	o.Deadline = cmp.Or(o.Deadline, 2*time.Second)
	o.Lifetime = cmp.Or(o.Lifetime, 10_000)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Pool{
		options: o, slots: make(chan struct{}, o.Size), live: map[*worker]bool{},
		values: newRefusals(1), expressions: newRefusals(3),
		launches: make(chan func()), closing: make(chan struct{}),
	}
}

// Evaluate implements [schemas.Evaluator].
func (p *Pool) Evaluate(expression string, value []byte) schemas.Verdict {
	p.evaluations.Add(1)
	deadline := time.Now().Add(p.options.Deadline)
	sum := sha256.Sum256(append([]byte(expression+"\x00"), value...))
	same := string(sum[:])

	wait, trialE, ok := p.expressions.admit(expression, time.Now())
	if !ok {
		return refused("values like it have", wait)
	}
	o := breaker.Unknown
	defer func() { p.expressions.report(expression, trialE, o, time.Now()) }()
	wait, trialV, ok := p.values.admit(same, time.Now())
	if !ok {
		return refused("the same value has", wait)
	}
	defer func() { p.values.report(same, trialV, o, time.Now()) }()

	// Waiting may take half of the deadline. So an evaluation gets at least the other half.
	patience := time.NewTimer(p.options.Deadline / 2)
	defer patience.Stop()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-patience.C:
		return schemas.Verdict{Failed: "too many checks are going on", Busy: true}
	case <-p.closing:
		return stopping
	}
	v, o2 := p.ask(&question{ID: p.ids.Add(1), Expression: expression, Value: value, Within: p.options.Deadline}, deadline)
	o = o2
	return v
}

func refused(what string, wait time.Duration) schemas.Verdict {
	return schemas.Verdict{Failed: fmt.Sprintf("checking %s failed before, and is tried again in %v", what, max(wait, time.Second).Round(time.Second))}
}

var stopping = schemas.Verdict{Failed: "the server is stopping", Busy: true}

// ask sends the question to a worker. If the worker has died since its last question, ask tries another
// one.
func (p *Pool) ask(q *question, deadline time.Time) (schemas.Verdict, breaker.Outcome) {
	for {
		w, fresh, err := p.take(deadline)
		switch {
		case errors.Is(err, errClosed):
			return stopping, breaker.Unknown
		case err != nil:
			p.options.Logger.Error("no worker for evaluations could be started", "error", err)
			return schemas.Verdict{Failed: "what checks it could not be started", Busy: true}, breaker.Unknown
		}
		a, err := w.ask(q, deadline)
		if err == nil {
			p.put(w, a.Heap)
			return a.Verdict, breaker.Succeeded
		}
		starved := errors.Is(err, errLate) && w.starved(p.options.Deadline)
		w.kill()
		switch {
		case p.isClosed():
			return stopping, breaker.Unknown
		case errors.Is(err, errGone) && !fresh:
			continue
		case starved:
			p.options.Logger.Warn("an evaluation took too long because the machine is busy, and its worker was killed", "pid", w.cmd.Process.Pid)
			return schemas.Verdict{Failed: "the machine is too busy", Busy: true}, breaker.Unknown
		case errors.Is(err, errLate):
			p.overruns.Add(1)
			p.options.Logger.Warn("an evaluation took too long, and its worker was killed", "pid", w.cmd.Process.Pid)
			return schemas.Verdict{Failed: fmt.Sprintf("checking it took more than %v", p.options.Deadline)}, breaker.Failed
		default:
			p.crashes.Add(1)
			said := w.stderrStart()
			p.options.Logger.Warn("an evaluation ended its worker", "pid", w.cmd.Process.Pid, "error", err, "stderr", strings.TrimSpace(said))
			return schemas.Verdict{Failed: "checking it crashed" + cause(said)}, breaker.Failed
		}
	}
}

// errClosed reports that the pool is closed.
var errClosed = errors.New("workers: the pool is closed")

// take returns a worker for exclusive use. fresh reports whether the worker was just started.
func (p *Pool) take(deadline time.Time) (w *worker, fresh bool, err error) {
	p.mu.Lock()
	for len(p.idle) > 0 {
		w := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if p.live[w] {
			p.mu.Unlock()
			return w, false, nil
		}
	}
	p.mu.Unlock()
	w, err = p.start()
	if err != nil {
		return nil, true, err
	}
	if err := w.greet(deadline); err != nil {
		if said := strings.TrimSpace(w.stderrStart()); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		if p.isClosed() {
			err = errClosed
		}
		return nil, true, err
	}
	return w, true, nil
}

// put returns a worker to the pool.
func (p *Pool) put(w *worker, heap uint64) {
	if w.asked++; w.asked >= p.options.Lifetime || heap > maxHeap {
		w.kill()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return // the worker is being killed
	}
	p.idle = append(p.idle, w)
}

// start starts a worker. The kernel kills a worker when the thread that started it ends (see
// https://go.dev/issue/27505). So a single thread, which lives as long as the pool, starts all workers.
func (p *Pool) start() (w *worker, err error) {
	cmd, err := p.options.Command()
	if err != nil {
		return nil, err
	}
	cmd.Env = []string{"GOTRACEBACK=none", "GOMAXPROCS=2", softMemory}
	cmd.Dir = "/"
	cmd.SysProcAttr = child.Attributes()
	p.starter.Do(func() { go p.launch() })
	done := make(chan struct{})
	job := func() {
		defer close(done)
		if err = p.reserve(); err != nil {
			return
		}
		if w, err = launch(cmd); err != nil {
			p.running.Done()
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.live[w] = true; p.closed { // closed while the worker started
			w.kill()
		}
	}
	select {
	case p.launches <- job:
		<-done
	case <-p.closing:
		return nil, errClosed
	}
	if err != nil {
		return nil, err
	}
	go func() {
		w.wait()
		p.mu.Lock()
		delete(p.live, w)
		p.mu.Unlock()
		p.running.Done()
	}()
	return w, nil
}

// reserve registers a worker that is about to start, so that Close waits for it. Starting takes
// milliseconds and runs without the lock.
func (p *Pool) reserve() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	p.running.Add(1)
	return nil
}

// launch starts workers until the pool is closed and all workers have ended.
func (p *Pool) launch() {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	child.ForgoPrivileges()
	for {
		select {
		case job := <-p.launches:
			job()
		case <-p.closing:
			p.running.Wait()
			return
		}
	}
}

func (p *Pool) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// Close ends all workers. Running and later evaluations fail. Close may be called more than once.
func (p *Pool) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.closing)
		for w := range p.live {
			w.kill()
		}
	}
	p.mu.Unlock()
	p.running.Wait()
}

// Stats are counts since the pool was created, except for Running.
type Stats struct {
	Running     int // current number of workers
	Evaluations uint64
	Overruns    uint64 // evaluations that exceeded the deadline
	Crashes     uint64 // evaluations that crashed their worker
}

// Stats returns the current counts.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{len(p.live), p.evaluations.Load(), p.overruns.Load(), p.crashes.Load()}
}
