package workers

import (
	"sync"
	"time"

	"stele.dev/stele/limits/breaker"
)

const (
	// shortest and longest limit how long an expression or a value is refused after failures.
	shortest, longest = time.Second, time.Minute
	// memory is how long a failure counts.
	memory = time.Minute
)

// refusals refuse expressions and values that failed often within [memory]. Successes in between do not
// count: a client that sends values that crash workers can send valid ones as well.
type refusals struct {
	enough int

	mu     sync.Mutex
	failed map[string]*failures
}

// failures are the failures of one expression or value.
type failures struct {
	breaker.Breaker
	count int
	first time.Time
}

func newRefusals(enough int) *refusals {
	return &refusals{enough: enough, failed: map[string]*failures{}}
}

// admit reports whether an expression or a value may be evaluated. If not, wait is how long it is
// refused. If so, the caller must report the outcome; trial must then be passed to report.
func (r *refusals) admit(what string, now time.Time) (wait time.Duration, trial, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.failed[what]
	if f == nil {
		return 0, false, true
	}
	if trial, ok = f.Allow(now); !ok {
		wait = f.Wait(now)
	}
	return wait, trial, ok
}

// report records the outcome of an admitted evaluation.
func (r *refusals) report(what string, trial bool, o breaker.Outcome, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.failed[what]
	if trial {
		if f.Tried(o, now); o == breaker.Succeeded {
			delete(r.failed, what)
		}
		return
	}
	if o != breaker.Failed || f != nil && f.State(now) != breaker.Closed {
		return
	}
	if f == nil || now.Sub(f.first) > memory {
		r.forget(now)
		f = &failures{Breaker: breaker.Breaker{First: shortest, Last: longest}, first: now}
		r.failed[what] = f
	}
	if f.count++; f.count >= r.enough {
		f.Open(now)
	}
}

// forget removes failures that no longer count.
func (r *refusals) forget(now time.Time) {
	for what, f := range r.failed {
		if now.Sub(f.first) > memory && f.Unused(now, memory) {
			delete(r.failed, what)
		}
	}
}
