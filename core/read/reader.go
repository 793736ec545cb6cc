// Package read answers reads of stored objects, of the present and of the past: get, list and watch. A [Reader]
// pins the tip that an answer is made from, decides how far back a user may look, and lets those that read the history
// take turns; virtual resources use it, too.
package read

import (
	"log/slog"
	"sync/atomic"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/surface"
	"stele.dev/stele/projections/history"
)

// Options for [New].
type Options struct {
	Committer *commit.Committer
	History   *history.Store
	Past      *past.Past
	Surface   *surface.Service
	// Version is the program's, on which the form of answers may depend.
	Version string
	// Watching counts a watch that begins; the result ends it.
	Watching func(*call.Call) (done func())
	Logger   *slog.Logger
}

// Reader answers reads. It is safe for concurrent use.
type Reader struct {
	Options
	Replays  *Replays
	asking   chan struct{} // full while asksAtOnce streams ask a new policy whether they may go on
	draining chan struct{} // closed once streams are to end
	drained  atomic.Bool
}

// New returns a reader.
func New(o Options) *Reader {
	return &Reader{Options: o, Replays: newReplays(), asking: make(chan struct{}, asksAtOnce), draining: make(chan struct{})}
}

// Drain ends all watches, each with a bookmark if its client takes any. Other reads go on as before.
func (rd *Reader) Drain() {
	if !rd.drained.Swap(true) {
		close(rd.draining)
	}
}

// Draining is closed once streams are to end.
func (rd *Reader) Draining() <-chan struct{} { return rd.draining }
