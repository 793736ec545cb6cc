// Package fair limits how much work runs at a time, and lets the keys that wait take turns. So a key that wants much does
// not make the others wait longer than one turn of each.
package fair

import (
	"context"
	"errors"
	"sync"
)

// ErrFull reports that too much work waits already.
var ErrFull = errors.New("fair: too much work waits")

// Semaphore limits the work that runs at a time. Its methods are safe for concurrent use.
type Semaphore[K comparable] struct {
	most, waits int

	mu      sync.Mutex
	running int
	waiting int
	queues  map[K]*queue[K] // of the keys that wait
	turns   []*queue[K]     // the same queues, in the order of their turns
}

// queue is the work of a key that waits.
type queue[K comparable] struct {
	key   K
	first []*waiter
}

// waiter is one piece of work that waits. Its channel is closed when it may run.
type waiter struct {
	run chan struct{}
}

// New returns a semaphore that lets at most so much work run at a time. For each key at most so much waits; 0 for no limit.
func New[K comparable](running, waitingPerKey int) *Semaphore[K] {
	return &Semaphore[K]{most: max(running, 1), waits: waitingPerKey, queues: map[K]*queue[K]{}}
}

// Acquire waits until work of the key may run, or until the context ends: then it returns the context's error. It returns
// [ErrFull] at once if too much work of the key waits. After a nil error the caller must call Release once.
func (s *Semaphore[K]) Acquire(ctx context.Context, key K) error {
	w, err := s.enter(key)
	if w == nil {
		return err
	}
	select {
	case <-w.run:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.run: // it got its turn just now
		s.handOver()
	default:
		s.remove(key, w)
	}
	return ctx.Err()
}

// enter takes a place, or returns what waits for one.
func (s *Semaphore[K]) enter(key K) (*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running < s.most {
		s.running++
		return nil, nil
	}
	q := s.queues[key]
	if q == nil {
		q = &queue[K]{key: key}
		s.queues[key] = q
		s.turns = append(s.turns, q)
	}
	if s.waits > 0 && len(q.first) >= s.waits {
		return nil, ErrFull
	}
	w := &waiter{run: make(chan struct{})}
	q.first = append(q.first, w)
	s.waiting++
	return w, nil
}

// remove forgets a waiter. The caller holds mu.
func (s *Semaphore[K]) remove(key K, w *waiter) {
	q := s.queues[key]
	for i, other := range q.first {
		if other == w {
			q.first = append(q.first[:i], q.first[i+1:]...)
			s.waiting--
			break
		}
	}
	if len(q.first) > 0 {
		return
	}
	delete(s.queues, key)
	for i, other := range s.turns {
		if other == q {
			s.turns = append(s.turns[:i], s.turns[i+1:]...)
			return
		}
	}
}

// Release ends work, and gives its place to the key whose turn it is.
func (s *Semaphore[K]) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handOver()
}

// handOver gives a place to the next waiter, or frees it. The caller holds mu.
func (s *Semaphore[K]) handOver() {
	if len(s.turns) == 0 {
		s.running--
		return
	}
	q := s.turns[0]
	w := q.first[0]
	q.first[0], q.first = nil, q.first[1:]
	s.waiting--
	s.turns[0], s.turns = nil, s.turns[1:]
	if len(q.first) > 0 {
		s.turns = append(s.turns, q)
	} else {
		delete(s.queues, q.key)
	}
	close(w.run)
}

// State returns how much work runs, and how much waits.
func (s *Semaphore[K]) State() (running, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running, s.waiting
}
