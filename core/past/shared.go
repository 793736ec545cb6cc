package past

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
	"stele.dev/stele/limits/flight"
)

// longest limits the time of shared work.
const longest = time.Minute

// shared does slow work once for all callers that want the same result, and limits how much of it is done at once. It
// is safe for concurrent use.
type shared[K comparable, V any] struct {
	flight.Group[K, V]
	turns *semaphore.Weighted
}

func newShared[K comparable, V any](atOnce int) *shared[K, V] {
	return &shared[K, V]{turns: semaphore.NewWeighted(int64(atOnce))}
}

// do returns the result of work. The work is cancelled when no caller waits.
func (s *shared[K, V]) do(ctx context.Context, key K, work func(context.Context) (V, error)) (V, error) {
	return s.Do(ctx, key, func(ctx context.Context) (value V, err error) {
		ctx, cancel := context.WithTimeout(ctx, longest)
		defer cancel()
		if err := s.turns.Acquire(ctx, 1); err != nil {
			return value, err
		}
		defer s.turns.Release(1)
		return work(ctx)
	})
}
