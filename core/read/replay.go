package read

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/past"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
)

const (
	// replayBytes bounds what all watches together hold of history that is being sent, as far
	// as each of them needs no more than leastChunk.
	replayBytes = 32 << 20
	// leastChunk is what a watch may read at once however many others do.
	leastChunk = 32 << 10
)

// replays is what watches share that read history. It is safe for concurrent use.
type Replays struct {
	turns *semaphore.Weighted // at reading a chunk, in the order in which they were asked for
	held  atomic.Int64        // bytes of chunks that are being sent
}

func newReplays() *Replays {
	return &Replays{turns: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))}
}

// Hold counts n bytes of history that are being sent, or, if n is negative, that have been.
func (s *Replays) Hold(n int) { s.held.Add(int64(n)) }

// Held returns how many bytes of history are being sent.
func (s *Replays) Held() int64 { return s.held.Load() }

// share is how large a chunk may be: the fuller it is, the less. A client that does not read
// holds its chunk for long, and must not keep others from theirs.
func (s *Replays) Share() int { return max(leastChunk, int(replayBytes-s.held.Load())/8) }

// atOnce is how long a turn lasts that is not over by itself.
const atOnce = 10 * time.Millisecond

// inTurns yields what is read of history, and leaves what is done with it to who has a turn: with
// others who do the same, and watches, for a while each. Nothing may be sent meanwhile: clients are
// slow.
func (s *Replays) InTurns(ctx context.Context, changes iter.Seq2[*history.Change, error]) iter.Seq2[*history.Change, error] {
	return s.Begin().Through(ctx, changes)
}

// replay is what one request reads of history, and its turn at that. It belongs to one goroutine.
type Replay struct {
	turns *semaphore.Weighted
	since time.Time
	held  bool
}

func (s *Replays) Begin() *Replay { return &Replay{turns: s.turns} }

func (t *Replay) take(ctx context.Context) error {
	err := t.turns.Acquire(ctx, 1)
	t.since, t.held = time.Now(), err == nil
	return err
}

func (t *Replay) end() {
	if t.held {
		t.turns.Release(1)
		t.held = false
	}
}

// through is inTurns, of this request.
func (t *Replay) Through(ctx context.Context, changes iter.Seq2[*history.Change, error]) iter.Seq2[*history.Change, error] {
	return func(yield func(*history.Change, error) bool) {
		if err := t.take(ctx); err != nil {
			yield(nil, err)
			return
		}
		defer t.end()
		for c, err := range changes {
			if !yield(c, err) {
				return
			}
			if t.held && time.Since(t.since) < atOnce {
				continue
			}
			t.end()
			err := ctx.Err()
			if err == nil {
				err = t.take(ctx)
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// aside does what may take long and reads no history: others have the turn meanwhile. Without a replay, there is no turn.
func (t *Replay) Aside(ctx context.Context, do func()) {
	if t == nil || !t.held {
		do()
		return
	}
	t.end()
	do()
	_ = t.take(ctx) // without one, the next change is not read
}

// joined is the source of a watch of stored objects. It reads history as long as the recent
// changes in memory do not go back far enough, and then goes on with those; if that loses its
// place, because the client is slow, with history again, from where it was.
//
// Invariant: everything up to place has been taken, and nothing behind it.
type joined struct {
	ctx      context.Context // of the watch
	rd       *Reader
	resource schema.GroupResource
	sel      objects.Selection
	place    objects.Place    // while live is nil
	live     *objects.Watcher // nil as long as history is read
	held     int              // bytes of the chunk that was taken last
}

// join begins a watch of what follows a revision of this history, which is not above the tip.
func (rd *Reader) join(ctx context.Context, r schema.GroupResource, sel objects.Selection, after uint64) (*joined, error) {
	j := &joined{ctx: ctx, rd: rd, resource: r, sel: sel, place: objects.Place{Revision: after}}
	_, err := j.goLive()
	return j, err
}

// goLive goes over to memory, if that goes back far enough; else it returns from which revision
// on it does.
func (j *joined) goLive() (from uint64, err error) {
	live, err := j.rd.Committer.Objects().Watch(j.resource, j.sel, j.place.Revision)
	var expired *objects.ExpiredError
	if errors.As(err, &expired) {
		return expired.Oldest, nil
	}
	j.live = live
	return 0, err
}

// Stop ends the watch.
func (j *joined) Stop() {
	j.release()
	j.leave()
}

// Ready is sent a value when Take may have something to return.
func (j *joined) Ready() <-chan struct{} {
	if j.live == nil {
		return nil // the context has ended, or Take says that there is more
	}
	return j.live.Ready()
}

// Take implements source. Once the context of the watch has ended it only returns what is in
// memory. [objects.ErrExpired], or a Status, if what comes next is not in the log any more.
func (j *joined) Take() (events []objects.Event, bookmark uint64, more bool, err error) {
	j.release()
	if j.live != nil {
		events, bookmark, more, err = j.live.Take()
		if !errors.Is(err, objects.ErrExpired) {
			return events, bookmark, more, err
		}
		j.place = j.live.Place()
		j.leave()
	}
	events, err = j.read()
	if err != nil && j.ctx.Err() != nil {
		return nil, j.place.Revision, false, nil
	}
	return events, j.place.Revision, true, err
}

// read reads a chunk of history, unless it can do with memory.
func (j *joined) read() ([]objects.Event, error) {
	upto := j.place.Revision + 1 // the rest of it
	if !j.place.Partly {
		var err error
		if upto, err = j.goLive(); err != nil || j.live != nil {
			return nil, err
		}
	}
	if oldest := j.rd.History.Oldest(); j.place.Revision < oldest {
		return nil, &objects.ExpiredError{Oldest: oldest}
	}
	tip := j.rd.Committer.Tip()
	if tip.Revision() < upto { // it is about to be published
		var err error
		if tip, err = j.rd.Committer.Settle(j.ctx); err != nil {
			return nil, err
		}
	}
	if err := j.rd.History.Reach(j.ctx, upto); err != nil {
		return nil, err
	}
	if err := j.rd.Replays.turns.Acquire(j.ctx, 1); err != nil {
		return nil, err
	}
	defer j.rd.Replays.turns.Release(1)
	chunk, err := j.rd.Past.Chunk(j.ctx, tip, past.Replay{Resource: j.resource, Selection: j.sel, From: j.place, UpTo: upto, Bytes: j.rd.Replays.Share()})
	if err != nil {
		return nil, err
	}
	j.place, j.held = chunk.Place, chunk.Bytes
	j.rd.Replays.Hold(j.held)
	return chunk.Events, nil
}

// release: the chunk that was taken last has been sent.
func (j *joined) release() {
	j.rd.Replays.Hold(-j.held)
	j.held = 0
}

// leave ends the watch of memory.
func (j *joined) leave() {
	if j.live != nil {
		j.live.Stop()
		j.live = nil
	}
}

// lawAt is what a tip was at a revision that is not above it, with no objects but namespaces:
// all that is needed to render what the policy said.
func (rd *Reader) lawAt(ctx context.Context, tip *commit.Tip, revision uint64) (*commit.Tip, error) {
	if revision == tip.Revision() {
		return tip, nil
	}
	then := *tip // as long as the policy is the same, nothing is asked of history
	then.Head.Revision = revision
	if revision < tip.PolicyRevision() {
		was, err := rd.Past.Tip(ctx, tip, revision)
		if err != nil {
			return nil, err
		}
		then = *was
	}
	var err error
	then.Objects, err = rd.Past.Objects(ctx, tip, commit.Namespaces, "", revision)
	return &then, err
}
