// Package batches works on many items with all processors.
package batches

import (
	"context"
	"iter"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// atOnce is the number of items that a worker takes at a time.
const atOnce = 128

// Do has items worked on by all processors, in batches, and returns the result of each worker. It ends with the
// first error of an item or of the work. A panic of the work is one of the caller.
func Do[T, R any](ctx context.Context, items iter.Seq2[T, error], newResult func() R, work func(ctx context.Context, batch []T, to R) error) ([]R, error) {
	batches := make(chan []T)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(guarded(func() error {
		defer close(batches)
		var batch []T
		send := func() error {
			select {
			case batches <- batch:
				batch = nil
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		for item, err := range items {
			if err != nil {
				return err
			}
			if batch = append(batch, item); len(batch) == atOnce {
				if err := send(); err != nil {
					return err
				}
			}
		}
		return send()
	}))
	results := make([]R, max(1, runtime.GOMAXPROCS(0)))
	for i := range results {
		results[i] = newResult()
		group.Go(guarded(func() error {
			for batch := range batches {
				if err := work(ctx, batch, results[i]); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	if err := group.Wait(); err != nil {
		repanic(err)
		return nil, err
	}
	return results, nil
}

// AllGood returns items that cannot fail.
func AllGood[T any](items iter.Seq[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}
