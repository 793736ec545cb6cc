package workers

import (
	"sync"
	"time"

	"stele.dev/stele/limits/breaker"
)

const (
	// shortest and longest are how long something that has failed is refused.
	shortest, longest = time.Second, time.Minute
	// memory is how long a failure counts.
	memory = time.Minute
)

// refusals refuse what has failed often enough within [memory]. Successes in between do not count: a client that sends
// values which end workers would send others as well.
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

// admit reports whether something may be tried, and if not, for how long. If it may, the caller must report the
// outcome, as that of a trial if it is one.
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

// report takes the outcome of something that was admitted.
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

// forget drops failures that are too old to count.
func (r *refusals) forget(now time.Time) {
	for what, f := range r.failed {
		if now.Sub(f.first) > memory && f.Unused(now, memory) {
			delete(r.failed, what)
		}
	}
}
