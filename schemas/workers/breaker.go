package workers

import (
	"sync"
	"time"
)

// Bounds of how long what has failed is not tried.
const (
	shortest = time.Second
	longest  = time.Minute
	// memory is for how long failures count.
	memory = time.Minute
)

// A breaker refuses what has failed often enough within [memory], for a while that doubles
// with each trial that fails. What succeeds meanwhile does not count: whoever sends values
// that end workers would send others as well.
type breaker struct {
	enough int

	mu     sync.Mutex
	failed map[string]*failures
}

// failures of one thing.
type failures struct {
	count   int
	first   time.Time
	backoff time.Duration // 0: it is not refused
	until   time.Time
	trying  bool // one is let through, to see
}

func newBreaker(enough int) *breaker {
	return &breaker{enough: enough, failed: map[string]*failures{}}
}

// admit tells whether something may be tried, and else for how long it may not. Whoever is
// admitted MUST report what came of it, as a trial if it is one.
func (b *breaker) admit(what string, now time.Time) (wait time.Duration, trial, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.failed[what]
	switch {
	case f == nil || f.backoff == 0:
		return 0, false, true
	case f.trying:
		return shortest, false, false
	case now.Before(f.until):
		return f.until.Sub(now), false, false
	}
	f.trying = true
	return 0, true, true
}

// outcome of what was admitted.
type outcome int

const (
	untried outcome = iota // nothing is known about it
	succeeded
	failed
)

func (b *breaker) report(what string, trial bool, o outcome, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.failed[what]
	if trial {
		f.trying = false
		switch o {
		case succeeded:
			delete(b.failed, what)
		case failed:
			f.open(min(2*f.backoff, longest), now)
		}
		return
	}
	if o != failed || f != nil && f.backoff > 0 {
		return
	}
	if f == nil || now.Sub(f.first) > memory {
		b.forget(now)
		f = &failures{first: now}
		b.failed[what] = f
	}
	if f.count++; f.count >= b.enough {
		f.open(shortest, now)
	}
}

func (f *failures) open(d time.Duration, now time.Time) { f.backoff, f.until = d, now.Add(d) }

// forget drops what is so old that it does not count.
func (b *breaker) forget(now time.Time) {
	for what, f := range b.failed {
		if !f.trying && now.Sub(f.first) > memory && now.Sub(f.until) > memory {
			delete(b.failed, what)
		}
	}
}
