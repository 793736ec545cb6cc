package etcdlog

import (
	"context"
	"fmt"
	"time"
)

const (
	// waitingEvery is how often a start logs that it still waits.
	waitingEvery = 10 * time.Second
	// stalledAfter is how long etcd may make no progress while it starts. A single member elects itself
	// within milliseconds.
	stalledAfter = time.Minute
)

// starting is an etcd server that is starting.
type starting interface {
	ReadyNotify() <-chan struct{}
	Term() uint64
	CommittedIndex() uint64
	AppliedIndex() uint64
}

// ready waits until etcd has elected itself and applied its log. It returns an error if a channel has
// one, or if etcd made no progress for stalledAfter.
func ready(ctx context.Context, o EmbedOptions, etcd starting, failed <-chan error, fatal <-chan error) error {
	type progress struct{ term, committed, applied uint64 }
	last, moved := progress{}, time.Now()
	for {
		select {
		case <-etcd.ReadyNotify():
			return nil
		case err := <-fatal:
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
			return fmt.Errorf("etcd made no progress for %v: it is in term %d, and has applied %d of %d entries; start again, and if that fails too, restore the folder from a backup",
				stalled.Round(time.Second), last.term, last.applied, last.committed)
		}
		o.Log.Warn("etcd is not ready yet", "folder", o.Dir, "term", last.term, "applied", last.applied, "committed", last.committed)
	}
}
