package past

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
)

// longest bounds what is done for several who wait for the same.
const longest = time.Minute

// sharing has things made once for all who want the same at the same time, and only so many at a
// time. It is safe for concurrent use.
type sharing struct {
	turns *semaphore.Weighted

	mu     sync.Mutex
	calls  singleflight.Group
	wanted map[string]*wanted
}

// wanted is by how many something is waited for, and what ends when nobody does.
type wanted struct {
	by   int
	ctx  context.Context
	stop context.CancelFunc
}

func newSharing(atATime int) *sharing {
	return &sharing{turns: semaphore.NewWeighted(int64(atATime)), wanted: map[string]*wanted{}}
}

// once makes something. Who does not wait any longer takes nothing from the others; when nobody
// waits any more it is not made either.
func once[V any](ctx context.Context, s *sharing, key string, make func(context.Context) (V, error)) (value V, err error) {
	w := s.want(ctx, key)
	defer s.leave(key, w)
	made := s.calls.DoChan(key, func() (_ any, err error) {
		defer func() { // nobody else does, in a goroutine that is nobody's
			if v := recover(); v != nil {
				err = fmt.Errorf("past: panic: %v\n%s", v, debug.Stack())
			}
		}()
		ctx, cancel := context.WithTimeout(w.ctx, longest)
		defer cancel()
		if err := s.turns.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		defer s.turns.Release(1)
		return make(ctx)
	})
	select {
	case r := <-made:
		if r.Err != nil {
			return value, r.Err
		}
		return r.Val.(V), nil
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}

func (s *sharing) want(ctx context.Context, key string) *wanted {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.wanted[key]
	if w == nil {
		w = &wanted{}
		w.ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
		s.wanted[key] = w
	}
	w.by++
	return w
}

// leave: what is given up is not for those who come later.
func (s *sharing) leave(key string, w *wanted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.by--; w.by == 0 {
		w.stop()
		delete(s.wanted, key)
		s.calls.Forget(key)
	}
}
