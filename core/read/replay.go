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
	// replayBytes bounds the history in memory that all watches are sending. Each watch may exceed it by leastChunk.
	replayBytes = 32 << 20
	// leastChunk is the number of bytes that a watch may always read at once.
	leastChunk = 32 << 10
)

// Replays bounds the work and the memory of all requests that read history. It is safe for concurrent use.
type Replays struct {
	turns *semaphore.Weighted // turns at reading history, in order of request
	held  atomic.Int64        // bytes of chunks that are being sent
}

func newReplays() *Replays {
	return &Replays{turns: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))}
}

// Hold counts n more bytes of history in memory that are being sent. A negative n counts bytes that have been sent.
func (s *Replays) Hold(n int) { s.held.Add(int64(n)) }

// Held returns how many bytes of history are being sent.
func (s *Replays) Held() int64 { return s.held.Load() }

// Share returns how many bytes a watch may read at once: less, the more are being sent. So a client that reads
// slowly, and holds its chunk for long, does not keep others from reading.
func (s *Replays) Share() int { return max(leastChunk, int(replayBytes-s.held.Load())/8) }

// atOnce is how long a request that reads more history keeps its turn.
const atOnce = 10 * time.Millisecond

// InTurns yields changes from the history. The loop over them runs in turns with other readers of history, for a
// while each. The loop must not write to a client, because clients may be slow.
func (s *Replays) InTurns(ctx context.Context, changes iter.Seq2[*history.Change, error]) iter.Seq2[*history.Change, error] {
	return s.Begin().Through(ctx, changes)
}

// Replay is the reading of history by one request, with its turn. It belongs to one goroutine.
type Replay struct {
	turns *semaphore.Weighted
	since time.Time
	held  bool
}

// Begin returns a replay without a turn.
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

// Through is InTurns for this replay.
func (t *Replay) Through(ctx context.Context, changes iter.Seq2[*history.Change, error]) iter.Seq2[*history.Change, error] {
	return Through(ctx, t, changes)
}

// Through is [Replay.Through] for anything that is read from a log.
func Through[T any](ctx context.Context, t *Replay, all iter.Seq2[*T, error]) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		if err := t.take(ctx); err != nil {
			yield(nil, err)
			return
		}
		defer t.end()
		for x, err := range all {
			if !yield(x, err) {
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

// Aside gives up the turn while do runs, which may take long and reads no history. A nil replay has no turn.
func (t *Replay) Aside(ctx context.Context, do func()) {
	if t == nil || !t.held {
		do()
		return
	}
	t.end()
	do()
	_ = t.take(ctx) // on an error, Through reads no further change
}

// joined is the source of events for a watch of stored objects. It reads history until the recent changes in memory
// go back far enough, and then follows memory. If the client is so slow that memory no longer has its place, it reads
// history again, from that place.
//
// Invariant: all events up to place have been taken, and none after it.
type joined struct {
	ctx      context.Context // of the watch
	rd       *Reader
	resource schema.GroupResource
	sel      objects.Selection
	place    objects.Place    // valid while live is nil
	live     *objects.Watcher // nil while history is read
	held     int              // bytes of the chunk that was taken last
}

// join starts a watch of the events after a revision, which must not be newer than the tip.
func (rd *Reader) join(ctx context.Context, r schema.GroupResource, sel objects.Selection, after uint64) (*joined, error) {
	j := &joined{ctx: ctx, rd: rd, resource: r, sel: sel, place: objects.Place{Revision: after}}
	_, err := j.goLive()
	return j, err
}

// goLive follows memory if that goes back far enough. Otherwise it returns the first revision from which memory does.
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
		return nil // the context has ended, or Take has reported more
	}
	return j.live.Ready()
}

// Take implements Source. Once the watch's context has ended, it returns only events in memory. The error is
// [objects.ErrExpired], or a Status, if the log no longer has the next events.
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

// read reads a chunk of history, unless memory goes back far enough.
func (j *joined) read() ([]objects.Event, error) {
	upto := j.place.Revision + 1 // the rest of a revision that was read in part
	if !j.place.Partly {
		var err error
		if upto, err = j.goLive(); err != nil || j.live != nil {
			return nil, err
		}
	}
	if oldest := j.rd.History.OldestOf(j.resource); j.place.Revision < oldest {
		return nil, &objects.ExpiredError{Oldest: oldest}
	}
	tip := j.rd.Committer.Tip()
	if tip.Revision() < upto { // the revision is about to be published
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

// release frees the chunk that was taken last, because it has been sent.
func (j *joined) release() {
	j.rd.Replays.Hold(-j.held)
	j.held = 0
}

// leave stops following memory.
func (j *joined) leave() {
	if j.live != nil {
		j.live.Stop()
		j.live = nil
	}
}

// tipAt returns the tip as it was at a revision, which must not be newer. It has the objects of policyAt only.
func (rd *Reader) tipAt(ctx context.Context, tip *commit.Tip, r schema.GroupResource, revision uint64) (*commit.Tip, error) {
	if revision == tip.Revision() {
		return tip, nil
	}
	if revision < tip.PolicyRevision() {
		return rd.policyAt(ctx, tip, r, revision)
	}
	then := *tip // with the same policy, only these objects are read from history
	then.Head.Revision = revision
	var err error
	then.Objects, err = rd.underRendered(ctx, tip, r, revision)
	return &then, err
}
