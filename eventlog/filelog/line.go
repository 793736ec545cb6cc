package filelog

import (
	"context"
	"slices"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/turns"
)

// line has the writers that wait to append, and the newest batches. The backend is exclusive, so that only tests have
// several writers. The backend's mu guards it.
type line struct {
	waiting []eventlog.Waiter // never changed in place
	place   uint64            // the last one
	heard   []eventlog.Stored
	changed chan struct{} // closed by the next news
}

// heardBatches is how many of the newest batches are told as news.
const heardBatches = 4

// lose puts the writer of a proposal that was not applied into the line.
func (l *line) lose(p eventlog.Proposal) {
	if p.Writer != (eventlog.ID{}) && !slices.ContainsFunc(l.waiting, func(w eventlog.Waiter) bool { return w.Writer == p.Writer }) {
		l.add(p)
		l.tell()
	}
}

// win takes in an append.
func (l *line) win(p eventlog.Proposal) {
	l.remove(append(p.Skipped, p.Writer)...)
	if p.Stays {
		l.add(p)
	}
	if p.Writer == (eventlog.ID{}) {
		return // the only process that writes has the batch
	}
	l.heard = append(l.heard[max(0, len(l.heard)+1-heardBatches):len(l.heard):len(l.heard)], eventlog.Stored{First: p.At, Value: slices.Clone(p.Value)})
	l.tell()
}

func (l *line) add(p eventlog.Proposal) {
	l.place++
	l.waiting = append(slices.Clip(l.waiting), eventlog.Waiter{Writer: p.Writer, RoundTrip: p.RoundTrip, Place: l.place})
}

func (l *line) remove(writers ...turns.ID) {
	if len(l.waiting) > 0 {
		l.waiting = slices.DeleteFunc(slices.Clone(l.waiting), func(w eventlog.Waiter) bool { return slices.Contains(writers, w.Writer) })
	}
}

func (l *line) tell() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Leave implements [eventlog.Backend].
func (b *Backend) Leave(_ context.Context, writer eventlog.ID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.line.remove(writer)
	b.line.tell()
	return nil
}

// News implements [eventlog.Backend].
func (b *Backend) News(from uint64) eventlog.News {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := eventlog.News{Line: b.line.waiting, Changed: b.line.changed}
	for i, s := range b.line.heard {
		if s.First == from {
			n.Batches = b.line.heard[i:len(b.line.heard):len(b.line.heard)]
			break
		}
	}
	return n
}
