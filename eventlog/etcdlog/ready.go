package etcdlog

import (
	"context"
	"fmt"
	"time"
)

const (
	// waitingEvery is how often a start says that it still waits.
	waitingEvery = 10 * time.Second
	// stalledAfter is for how long etcd may make no progress towards being ready. With
	// nobody else to vote it needs some milliseconds.
	stalledAfter = time.Minute
)

// starting is an etcd server that has been started.
type starting interface {
	ReadyNotify() <-chan struct{}
	Term() uint64
	CommittedIndex() uint64
	AppliedIndex() uint64
}

// ready waits until etcd has elected itself and has applied its log, until one of the
// channels says why it will not, or until it has made no progress for too long.
func ready(ctx context.Context, o EmbedOptions, etcd starting, failed <-chan error, said <-chan error) error {
	type progress struct{ term, committed, applied uint64 }
	last, moved := progress{}, time.Now()
	for {
		select {
		case <-etcd.ReadyNotify():
			return nil
		case err := <-said:
			return err
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(waitingEvery):
		}
		if now := (progress{etcd.Term(), etcd.CommittedIndex(), etcd.AppliedIndex()}); now != last {
			last, moved = now, time.Now()
		}
		stalled := time.Since(moved)
		if stalled >= stalledAfter {
			return fmt.Errorf("etcd made no progress for %v: it is in term %d, and has applied %d of %d entries; restore the folder from a backup if another start says the same",
				stalled.Round(time.Second), last.term, last.applied, last.committed)
		}
		o.Log.Warn("etcd is not ready yet", "folder", o.Dir, "term", last.term, "applied", last.applied, "committed", last.committed)
	}
}
