package logtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"stele.dev/stele/eventlog"
)

// Archive is an archive in memory, for tests. Its zero value is empty and ready for use; it is safe for
// concurrent use.
type Archive struct {
	// AtOnce is how many batches After returns at once; 10 if 0.
	AtOnce int

	mu        sync.Mutex
	batches   []*eventlog.Batch // without those that are forgotten
	tip       eventlog.Head
	forgotten eventlog.Head // position after the newest forgotten batch
}

var _ eventlog.Archive = (*Archive)(nil)

// Seal takes over the batches of a log that end at revision upto or earlier.
func (a *Archive) Seal(ctx context.Context, log *eventlog.Log, upto uint64) error {
	at := a.Tip()
	if at == (eventlog.Head{}) {
		at = log.Start()
	}
	for {
		batches, err := log.CatchUp(ctx, at)
		if err != nil || len(batches) == 0 {
			return err
		}
		for _, b := range batches {
			if b.Last() > upto {
				return nil
			}
			if b.Previous != at.Hash {
				return fmt.Errorf("logtest: %v is not followed by %v", at, b.Head())
			}
			at = b.Head()
			a.mu.Lock()
			a.batches, a.tip = append(a.batches, b), at
			a.mu.Unlock()
		}
	}
}

// Forget forgets the batches that end at revision upto or earlier.
func (a *Archive) Forget(upto uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.batches) > 0 && a.batches[0].Last() <= upto {
		a.forgotten, a.batches = a.batches[0].Head(), slices.Clone(a.batches[1:])
	}
}

// Tip implements [eventlog.Archive].
func (a *Archive) Tip() eventlog.Head {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tip
}

// After implements [eventlog.Archive].
func (a *Archive) After(_ context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if after.Revision < a.forgotten.Revision {
		return nil, &eventlog.ForgottenError{Oldest: a.forgotten}
	}
	i := a.indexBehind(after.Revision)
	if i == len(a.batches) {
		return nil, fmt.Errorf("logtest: the archive ends at %v, it has nothing after %v", a.tip, after)
	}
	if a.batches[i].Previous != after.Hash {
		return nil, fmt.Errorf("%w: the archive does not know %v", eventlog.ErrDiverged, after)
	}
	n := a.AtOnce
	n = cmp.Or(n, 10)
	return slices.Clone(a.batches[i:min(len(a.batches), i+n)]), nil
}

// Back implements [eventlog.Archive].
func (a *Archive) Back(_ context.Context, from uint64, max int) ([]*eventlog.Batch, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.indexBehind(from)
	if i == 0 {
		return nil, &eventlog.ForgottenError{Oldest: a.forgotten}
	}
	back := slices.Clone(a.batches[i-min(i, max) : i])
	slices.Reverse(back)
	return back, nil
}

// indexBehind returns the index of the first batch that begins behind a revision.
func (a *Archive) indexBehind(revision uint64) int {
	i, _ := slices.BinarySearchFunc(a.batches, revision, func(b *eventlog.Batch, r uint64) int {
		if b.First <= r {
			return -1
		}
		return 1
	})
	return i
}
