// Package read answers get, list and watch of stored objects, at present and at past revisions. A [Reader] pins the
// tip that answers a request, checks how far back the user may read, and bounds the work of reading history. Virtual
// resources use it, too.
package read

import (
	"log/slog"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/read/views"
	"stele.dev/stele/core/serve/nonresource"
	"stele.dev/stele/limits/lru"
	"stele.dev/stele/limits/memory"
	"stele.dev/stele/projections/history"
)

// Options for [New].
type Options struct {
	Committer *commit.Committer
	History   *history.Store
	Past      *past.Past
	// Views has the rows of views.
	Views   *views.Service
	Surface *nonresource.Service
	// Version is the program's version. It is part of ETags, because a new version may render answers differently.
	Version string
	// Watching counts a running watch until done is called. sent counts an event of so many bytes.
	Watching func(*call.Call) (sent func(bytes int), done func())
	// Memory is the budget for answers and watches.
	Memory *memory.Guard
	Logger *slog.Logger
}

// Reader answers reads. It is safe for concurrent use.
type Reader struct {
	Options
	Replays *Replays
	// converted has objects in other versions than they are stored in.
	converted *lru.Cache[shown, []byte]
	asking    chan struct{} // has a value for each stream that is being authorized again; full at asksAtOnce
	*departure
}

// New returns a reader.
func New(o Options) *Reader {
	return &Reader{Options: o, Replays: newReplays(), converted: lru.New[shown, []byte](convertedBytes), asking: make(chan struct{}, asksAtOnce), departure: newDeparture()}
}
