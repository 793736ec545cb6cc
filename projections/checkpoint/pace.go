package checkpoint

import (
	"context"
	"time"

	"stele.dev/stele/limits/steady"
)

// Pace bounds the share of a processor that background work takes: after each piece of work it rests for Pace times as
// long as the work took. 0 is as fast as possible.
type Pace int

// Background is the pace of work for which nobody waits: a fifth of one processor.
const Background Pace = 4

// maxRest bounds one rest: a machine that stood still for a while is no reason to stand still for longer.
const maxRest = 100 * time.Millisecond

// stopwatch paces one piece of work. It is for one goroutine.
type stopwatch struct {
	ctx   context.Context
	pace  Pace
	since time.Time
}

func (p Pace) start(ctx context.Context) *stopwatch {
	return &stopwatch{ctx: ctx, pace: p, since: time.Now()}
}

// pause rests, and returns an error if the context has ended.
func (s *stopwatch) pause() error {
	if s.pace > 0 {
		_ = steady.Wait(s.ctx, min(maxRest, time.Duration(s.pace)*time.Since(s.since)))
		s.since = time.Now()
	}
	return s.ctx.Err()
}

// Rests returns a function that work at this pace calls after each piece. It is for one goroutine.
func (p Pace) Rests(ctx context.Context) func() error { return p.start(ctx).pause }
