package main

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

// waitingEvery is how often a start that takes long says what it is doing.
const waitingEvery = 10 * time.Second

// startup is what a start is doing. As nobody is answered before a start is over, it says so
// itself when that takes long.
type startup struct {
	logger *slog.Logger
	begun  time.Time
	mu     sync.Mutex
	doing  string
	timer  *time.Timer
}

func newStartup(logger *slog.Logger) *startup {
	s := &startup{logger: logger, begun: time.Now()}
	s.timer = time.AfterFunc(waitingEvery, s.say)
	return s
}

func (s *startup) say() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil {
		return
	}
	s.logger.Warn("still starting; requests are not answered yet", "doing", s.doing, "for", time.Since(s.begun).Round(time.Second))
	s.timer.Reset(waitingEvery)
}

// does notes what is done next.
func (s *startup) does(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing = what
}

// over ends it. It may be called again.
func (s *startup) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// bootstrapped is the check of readiness for what clients rely on from their first request on: the policy
// that the start puts in force, and the namespaces that always exist.
func bootstrapped(prepared <-chan struct{}) func() error {
	return func() error {
		select {
		case <-prepared:
			return nil
		default:
			return errors.New("the start has not yet put the policy in force and created the namespaces default and kube-system")
		}
	}
}
