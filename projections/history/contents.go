package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/lru"
)

const (
	// cacheBytes limits the events that stay in memory for other readers.
	cacheBytes = 8 << 20
	// Limits of reading ahead: changes, and bytes in memory.
	aheadChanges = 256
	aheadBytes   = 16 << 20
	// readers is how many goroutines read ahead, and backAtOnce how many batches each asks for at once.
	readers    = 8
	backAtOnce = 32
)

// contents reads events from the log. It is safe for concurrent use.
type contents struct {
	log   eventlog.Reader
	cache *lru.Cache[uint64, *eventlog.Event] // by a revision of the event
	// perBatch is about how many revisions a batch has: those of the last one that was read.
	perBatch *atomic.Uint64
	// forgotten reports whether an error says that the log does not reach back to what was read.
	forgotten func(error) bool
}

func newContents(log eventlog.Reader, forgotten func(error) bool) contents {
	c := contents{log: log, forgotten: forgotten, cache: lru.New[uint64, *eventlog.Event](cacheBytes), perBatch: new(atomic.Uint64)}
	c.perBatch.Store(1)
	return c
}

// events are events that have been read, by a revision that was asked for. A nil event is not in the log any
// more. A revision that is absent has not been read.
type events map[uint64]*eventlog.Event

// event returns the event of a revision; nil if the log does not have it any more.
func (c *contents) event(ctx context.Context, revision uint64) (*eventlog.Event, error) {
	if e, found := c.cache.Get(revision); found {
		return e, nil
	}
	found := events{}
	err := c.read(ctx, []uint64{revision}, func(revision uint64, e *eventlog.Event, _ int) bool {
		found[revision] = e
		return true
	})
	return found[revision], err
}

// readAhead reads the events of revisions, in any order, as far as the limits allow.
func (c *contents) readAhead(ctx context.Context, revisions []uint64) (events, error) {
	found := make(events, len(revisions))
	var missing []uint64
	for _, r := range revisions {
		if e, ok := c.cache.Get(r); ok {
			found[r] = e
		} else {
			missing = append(missing, r)
		}
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	var mu sync.Mutex
	total := 0
	add := func(revision uint64, e *eventlog.Event, size int) bool {
		mu.Lock()
		defer mu.Unlock()
		found[revision] = e
		total += size
		return total < aheadBytes
	}
	parts := min(readers, c.batches(missing)/4)
	if parts <= 1 {
		return found, c.read(ctx, missing, add)
	}
	var all sync.WaitGroup
	errs := make([]error, parts)
	for i := range parts {
		part := missing[i*len(missing)/parts : (i+1)*len(missing)/parts]
		all.Go(func() { errs[i] = c.read(ctx, part, add) })
	}
	all.Wait()
	return found, errors.Join(errs...)
}

// batches returns about how many batches ascending revisions are in.
func (c *contents) batches(revisions []uint64) int {
	per, n, last := c.perBatch.Load(), 0, uint64(0)
	for _, r := range revisions {
		if n == 0 || r >= last+per {
			n, last = n+1, r
		}
	}
	return n
}

// read reads the events of ascending revisions, the newest first, until add returns false. The size that add
// gets is about how much memory the event takes; 0 if it had the event before.
func (c *contents) read(ctx context.Context, revisions []uint64, add func(revision uint64, e *eventlog.Event, size int) bool) error {
	var last *eventlog.Event
	for len(revisions) > 0 {
		newest := revisions[len(revisions)-1]
		batches, err := c.log.Back(ctx, newest, c.atOnce(revisions))
		if c.forgotten(err) {
			batches, err = nil, nil
		}
		if err != nil {
			return fmt.Errorf("history: read revision %d: %w", newest, err)
		}
		if len(batches) == 0 { // nor is there anything older
			for _, r := range revisions {
				add(r, nil, 0)
			}
			return nil
		}
		for _, b := range batches {
			c.perBatch.Store(max(1, b.Revisions))
			for n := len(revisions); n > 0 && revisions[n-1] >= b.First; n = len(revisions) {
				r := revisions[n-1]
				revisions = revisions[:n-1]
				e, size := eventOf(b, r), 0
				if e != nil && e != last { // a bulk has many revisions
					size, last = sizeOf(e), e
					c.cache.Add(r, e, size)
				}
				if !add(r, e, size) {
					return nil
				}
			}
		}
	}
	return nil
}

// atOnce returns how many batches to ask for, back from the newest of ascending revisions: as many as probably
// have one of them, with few others between.
func (c *contents) atOnce(revisions []uint64) int {
	per, n := c.perBatch.Load(), 1
	newest := revisions[len(revisions)-1]
	for i := 1; i < len(revisions); i++ {
		need := int(min((newest-revisions[len(revisions)-1-i])/per, backAtOnce)) + 1
		if need > backAtOnce || need > 2*(i+1) {
			break
		}
		n = need
	}
	return n
}

// eventOf returns the event of a batch that has a revision; nil if there is none.
func eventOf(b *eventlog.Batch, revision uint64) *eventlog.Event {
	i, found := slices.BinarySearchFunc(b.Events, revision, func(e *eventlog.Event, revision uint64) int {
		switch {
		case revision < e.Revision:
			return 1
		case revision > e.Last():
			return -1
		default:
			return 0
		}
	})
	if !found {
		return nil
	}
	return b.Events[i]
}

// sizeOf returns about how much memory an event takes.
func sizeOf(e *eventlog.Event) int {
	size := 2*proto.Size(e.Meta) + 256
	for _, c := range e.Contents {
		size += len(c)
	}
	return size
}
