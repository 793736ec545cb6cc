package plane

import (
	"log/slog"
	"sync"
	"time"
)

// progressEvery is how often a slow start logs which step it is at.
const progressEvery = 10 * time.Second

// startup logs the current step of a start that takes long, because the API answers no requests
// before the start is done.
type startup struct {
	logger *slog.Logger
	begun  time.Time
	mu     sync.Mutex
	step   string
	timer  *time.Timer // nil when the start is done
}

func newStartup(logger *slog.Logger) *startup {
	s := &startup{logger: logger, begun: time.Now()}
	s.timer = time.AfterFunc(progressEvery, s.log)
	return s
}

func (s *startup) log() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil {
		return
	}
	s.logger.Warn("still starting; requests are not answered yet", "doing", s.step, "for", time.Since(s.begun).Round(time.Second))
	s.timer.Reset(progressEvery)
}

// begin notes the step that begins.
func (s *startup) begin(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step = step
}

// done stops the messages. It may be called more than once.
func (s *startup) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}
