package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"time"

	"stele.dev/stele/eventlog"
)

// view is the history up to a change. It is immutable.
type view struct {
	*generation
	head   eventlog.Head
	last   seq
	blocks uint32 // number of blocks in the file
	tail   block  // the records after them, perhaps more than last
	runs   []run
	epochs []Epoch
	clocks eventlog.ClockSets
}

func (g *generation) view(last seq) *view {
	return &view{generation: g, head: g.head, last: last, blocks: g.written.Blocks, tail: g.tail, runs: g.runs, epochs: g.epochs, clocks: g.clocks}
}

// time returns the log time of a change, given the time in its record.
func (v *view) time(s seq, written time.Time) time.Time {
	if len(v.clocks) == 0 {
		return written
	}
	return v.clocks.Time(v.revision(s), written)
}

// upTo returns the last change up to a revision; 0 if there is none.
func (v *view) upTo(revision uint64) seq {
	i := sort.Search(len(v.runs), func(i int) bool { return v.runs[i].revision > revision }) - 1
	if i < 0 {
		return 0
	}
	last := v.last
	if i+1 < len(v.runs) {
		last = min(last, v.runs[i+1].first-1)
	}
	return seq(min(uint64(last), uint64(v.runs[i].first)+revision-v.runs[i].revision))
}

// seq returns the change of a revision, if there is one.
func (v *view) seq(revision uint64) (seq, bool) {
	s := v.upTo(revision)
	return s, s != 0 && v.revision(s) == revision
}

func (v *view) revision(s seq) uint64 { return revisionOf(v.runs, s) }

func revisionOf(runs []run, s seq) uint64 {
	r := runs[sort.Search(len(runs), func(i int) bool { return runs[i].first > s })-1]
	return r.revision + uint64(s-r.first)
}

// blockOf returns the number of the block that has a change, which is not in the tail.
func (v *view) blockOf(s seq) uint32 {
	return uint32(sort.Search(int(v.blocks), func(i int) bool { return v.generation.blocks.get(uint32(i)).first > s })) - 1
}

// block returns block i: from the tail, the cache, or the file. If the file is damaged, it makes the block
// again from the log.
func (s *Store) block(ctx context.Context, v *view, i uint32) (block, error) {
	if i == v.blocks {
		return v.tail, nil
	}
	if b, ok := v.cache.Get(i); ok {
		return b, nil
	}
	if err := ctx.Err(); err != nil {
		return block{}, context.Cause(ctx)
	}
	b, err := v.readBlock(i)
	if errors.Is(err, os.ErrClosed) {
		return block{}, err
	}
	if err != nil {
		first, last := v.generation.blocks.get(i).first, v.generation.blocks.get(i+1).first-1
		s.o.Logger.Warn("a block of the history cannot be read; its changes are read from the log", "revisions", fmt.Sprintf("%d-%d", v.revision(first), v.revision(last)), "error", err)
		if b, err = s.recall(ctx, v, first, last); err != nil {
			return block{}, fmt.Errorf("history: %w", err)
		}
	}
	v.cache.Add(i, b, b.size())
	return b, nil
}

// recalledAtOnce is how many batches recall reads from the log at once.
const recalledAtOnce = 16

// recall makes the block with the changes from first to last again from the log.
func (s *Store) recall(ctx context.Context, v *view, first, last seq) (block, error) {
	from, to := v.revision(first), v.revision(last)
	var events []*eventlog.Event // the newest first
	for at := to; ; {
		batches, err := s.o.Log.Back(ctx, at, recalledAtOnce)
		if err != nil {
			return block{}, err
		}
		for _, b := range batches {
			for _, e := range slices.Backward(b.Events) {
				events = append(events, e)
			}
		}
		if n := len(batches); n == 0 || batches[n-1].First <= from {
			break
		} else {
			at = batches[n-1].First - 1
		}
	}
	slices.Reverse(events)
	b := block{first: first}
	for e, i := range eachChange(events) {
		if r := e.Revision + uint64(i); from <= r && r <= to {
			if err := b.add(e, i); err != nil {
				return block{}, err
			}
		}
	}
	if b.after() != last+1 {
		return block{}, fmt.Errorf("the log has %d of %d changes of revisions %d-%d", len(b.starts), last-first+1, from, to)
	}
	return b, nil
}
