package plane

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"stele.dev/stele/eventlog"
)

const (
	// progressAfter is after how long a start logs which step it is at, and progressEvery how often from then on.
	progressAfter = 5 * time.Second
	progressEvery = 10 * time.Second
)

// startup knows the current step of a start, and logs it if the start takes long: until it is done, the API answers
// nothing but that. Its methods are safe for concurrent use.
type startup struct {
	logger *slog.Logger
	tell   func(doing string)
	begun  time.Time

	telling sync.Mutex  // held while a step is logged and told, so that no earlier one is told later
	timer   *time.Timer // nil when the start is done; guarded by telling

	mu       sync.Mutex // is not held while a step is told, which may take time
	step     string
	progress func() string // of the step; nil if there is none
}

// StartWork is what a start has read before it was ready. It follows the number of objects, and what was written after the newest
// checkpoint; it does not follow how much was ever written.
type StartWork struct {
	// Objects are those of the checkpoint, which has CheckpointBytes.
	Objects, CheckpointBytes int64
	// Replayed is how many revisions follow the checkpoint, or the beginning of the log.
	Replayed uint64
	// Log and Decisions are what was read of the two logs. Parts that follow the log of record behind the start may have read some of it.
	Log, Decisions eventlog.Work
	// StoreBytes is what the log's store held. The embedded etcd reads all of it.
	StoreBytes int64
	// For is how long the start took.
	For time.Duration
}

// noteStart notes and logs what the start has read.
func (p *Plane) noteStart() {
	from := p.Committer.Restored().Revision
	w := StartWork{
		Objects: p.Committer.Loaded(), Replayed: p.Committer.Tip().Revision() - from,
		Log: p.Log.Work(), Decisions: p.Decisions.Log().Work(), StoreBytes: p.Log.Usage().Used, For: time.Since(p.startup.begun),
	}
	for _, c := range p.checkpoints.Good() {
		if c.Revision == from {
			w.CheckpointBytes = c.Size
		}
	}
	p.started = w
	p.config.Logger.Debug("the start is done", "for", w.For.Round(time.Millisecond), "objects", w.Objects, "checkpointBytes", w.CheckpointBytes, "replayed", w.Replayed,
		"batches", w.Log.Batches, "events", w.Log.Events, "bytes", w.Log.Bytes, "storeBytes", w.StoreBytes, "decisions", w.Decisions.Events, "decisionsBytes", w.Decisions.Bytes)
}

// StartWork returns what the start has read. The plane must be ready.
func (p *Plane) StartWork() StartWork { return p.started }

func newStartup(logger *slog.Logger, tell func(doing string)) *startup {
	if tell == nil {
		tell = func(string) {}
	}
	s := &startup{logger: logger, tell: tell, begun: time.Now()}
	s.timer = time.AfterFunc(progressAfter, s.log)
	return s
}

func (s *startup) log() {
	s.telling.Lock()
	defer s.telling.Unlock()
	if s.timer == nil {
		return
	}
	doing := s.String()
	s.logger.Warn("still starting; requests are not answered yet", "doing", doing, "for", time.Since(s.begun).Round(time.Second))
	s.tell(doing)
	s.timer.Reset(progressEvery)
}

// String says which step the start is at, and how far that is.
func (s *startup) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress == nil {
		return s.step
	}
	return s.step + ": " + s.progress()
}

// begin notes the step that begins.
func (s *startup) begin(step string) {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	s.step, s.progress = step, nil
	s.mu.Unlock()
	s.tell(step)
}

// count notes that the step counts things.
func (s *startup) count(what string, done func() int64) {
	s.measure(func() string { return fmt.Sprintf("%d %s", done(), what) })
}

// goal notes that the step goes from one number to another.
func (s *startup) goal(what string, from, to uint64, at func() uint64) {
	s.measure(func() string { return fmt.Sprintf("%s %d of %d, from %d on", what, at(), to, from) })
}

func (s *startup) measure(progress func() string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = progress
}

// done stops the messages. It may be called more than once.
func (s *startup) done() {
	s.telling.Lock()
	defer s.telling.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}
