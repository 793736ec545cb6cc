package objects

import (
	"context"
	"sync/atomic"
	"time"
)

// wave paces the changes that are offered to many watchers. A wave wakes the watchers that its changes concern. The next one waits until
// all of them have taken theirs: they write what was published meanwhile at once, and not change by change, which would cost each of them
// a wake-up, a record of TLS and a system call. The busier the server is, the more they write at once. A slow client delays the others
// once, by at most slowestTaker.
//
// Its methods are safe for concurrent use, but begin and end are for one goroutine.
type wave struct {
	// state has the number of the wave in its upper half, and in the lower one how many watchers have not taken its changes, and one
	// more from begin to end.
	state atomic.Uint64
	taken chan struct{} // capacity 1: all have taken
}

const (
	// fewWatchers do not wait for each other.
	fewWatchers = 16
	// slowestTaker is how long a wave waits for a watcher.
	slowestTaker = 5 * time.Millisecond
)

func newWave() *wave { return &wave{taken: make(chan struct{}, 1)} }

func (v *wave) begin() {
	select {
	case <-v.taken:
	default:
	}
	v.state.Store((v.state.Load()>>32+1)<<32 | 1)
}

// woken counts a watcher of this wave, and returns its number.
func (v *wave) woken() uint32 { return uint32(v.state.Add(1) >> 32) }

// took says that a watcher has taken what it was woken for in a wave.
func (v *wave) took(in uint32) {
	for {
		state := v.state.Load()
		if uint32(state>>32) != in {
			return // of an earlier wave
		}
		if !v.state.CompareAndSwap(state, state-1) {
			continue
		}
		if uint32(state) == 1 {
			select {
			case v.taken <- struct{}{}:
			default: // the last watcher of an earlier wave came here after this wave began; a wave may end early, and no watcher may wait
			}
		}
		return
	}
}

// end waits until most have taken their changes, or for a time.
func (v *wave) end(ctx context.Context) {
	if left := uint32(v.state.Add(^uint64(0))); left <= fewWatchers {
		return
	}
	slow := time.NewTimer(slowestTaker)
	defer slow.Stop()
	select {
	case <-v.taken:
	case <-slow.C:
	case <-ctx.Done():
	}
}
