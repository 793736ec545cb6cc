package commit_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/memlog"
)

// While the log does not tell the outcome of an append, proposals whose callers have gone are not kept: they have the
// objects of writes, and that may last for hours.
func TestWithdrawnProposalsAreNotKept(t *testing.T) {
	var store memlog.Store
	var lose atomic.Bool
	sent := make(chan struct{}, 1)
	c := replicaOf(t, store.Open(func(op memlog.Op) memlog.Fault {
		lost := op == memlog.Append && lose.Load()
		if lost {
			select {
			case sent <- struct{}{}:
			default:
			}
		}
		return memlog.Fault{LoseRequest: lost}
	}))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	run := c.Run
	running.Go(func() { _ = run(ctx) })
	lose.Store(true)
	var freed atomic.Int64
	propose := func(ctx context.Context, name string) error {
		p := &commit.Proposal{Entry: create(t, name)}
		runtime.AddCleanup(p, func(int) { freed.Add(1) }, 0)
		_, _, err := c.Commit(ctx, p)
		return err
	}
	waits, giveUp := context.WithCancel(ctx)
	go func() {
		<-sent // from now on nobody knows whether it was appended
		giveUp()
	}()
	if err := propose(waits, "first"); !errors.Is(err, status.ErrUndecided) {
		t.Fatal(err)
	}
	const n = 100
	for i := range n {
		waits, giveUp := context.WithTimeout(ctx, 5*time.Millisecond)
		if err := propose(waits, fmt.Sprint("w", i)); !errors.Is(err, status.ErrNotSent) {
			t.Fatal(err)
		}
		giveUp()
	}
	for begun := time.Now(); freed.Load() < n-5 && time.Since(begun) < time.Minute; {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	if got := freed.Load(); got < n-5 {
		t.Errorf("%d of %d withdrawn proposals were freed", got, n)
	}
	lose.Store(false)
	if _, _, err := c.Commit(ctx, &commit.Proposal{Entry: create(t, "last")}); err != nil {
		t.Error(err)
	}
	stop()
	running.Wait()
}
