package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"stele.dev/stele/limits/breaker"
	"stele.dev/stele/plugins/authorizerpb"
)

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 30 * time.Second
	settled      = 30 * time.Second // after which a crash is no longer one of a row
	unhealthy    = 3                // failures in a row after which a plugin is started anew
	drainTimeout = 10 * time.Second
)

var errStopped = errors.New("it has been stopped")

// plugin is a program with a configuration, and keeps a process of it running. Bindings that mean the
// same share it.
type plugin struct {
	host     *Host
	key      string
	spec     Spec // as for the process: timeouts and policies are the bindings' own
	log      *slog.Logger
	limit    *limiter // of what it prints, whichever of its processes
	failures limiter  // of what is logged of its answers
	state    atomic.Pointer[state]
	kick     chan struct{} // a start is wanted without waiting
	room     *room
	circuit  *circuit
	cancel   context.CancelFunc
	ended    chan struct{}
	says     atomic.Pointer[authorizerpb.DescribeResponse] // of itself, once a process of it did

	// Guarded by the host.
	users  int
	checks int         // those of the users that only want to know whether it starts
	spare  *time.Timer // until it ends, when it has no users
}

// state says whether a plugin can be asked.
type state struct {
	up *instance
	// down says why it can't; if that is nil too, it is being started, and worth waiting for.
	down    error
	tries   int           // how many starts there were
	changed chan struct{} // closed by the next state
}

func (p *plugin) output(stream string) *lines {
	return &lines{log: p.log, stream: stream, most: slog.LevelError, limit: p.limit}
}

// goPlugin is where go-plugin says what it does. What came of that the host says itself: go-plugin takes every end of a process for an error.
func (p *plugin) goPlugin() *lines {
	return &lines{log: p.log, stream: "go-plugin", level: slog.LevelDebug, most: slog.LevelDebug, limit: p.limit}
}

// become sets the state. Only the plugin's own goroutine does.
func (p *plugin) become(s *state) {
	s.changed = make(chan struct{})
	if old := p.state.Swap(s); old != nil {
		close(old.changed)
	}
}

// ready waits for a plugin that is being started.
func (p *plugin) ready(ctx context.Context) (*instance, error) {
	for {
		s := p.state.Load()
		if s.up != nil || s.down != nil {
			return s.up, s.down
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return nil, errors.New("it is being started")
		}
	}
}

// attempt waits for a plugin that runs, or for a start to have failed since it was called.
func (p *plugin) attempt(ctx context.Context) error {
	since, called := 0, true
	for {
		s := p.state.Load()
		switch {
		case s.up != nil:
			return nil
		case errors.Is(s.down, errStopped) || s.down != nil && !called && s.tries > since:
			return s.down
		case called && s.down != nil:
			since = s.tries
			select {
			case p.kick <- struct{}{}:
			default:
			}
		case called:
			since = s.tries - 1
		}
		called = false
		select {
		case <-s.changed:
		case <-ctx.Done():
			return fmt.Errorf("it is being started: %w", ctx.Err())
		}
	}
}

// supervise keeps a process running until ctx is done.
func (p *plugin) supervise(ctx context.Context) {
	defer close(p.ended)
	var said complaints
	wait := time.Duration(0)
	for tries := 1; ; tries++ {
		i, err := p.newInstance(ctx)
		if err == nil {
			p.circuit.retry()
			up := p.host.metrics.up.WithLabelValues(p.spec.Name)
			up.Inc() // before anybody learns of it, as they may read the metric
			p.become(&state{up: i, tries: tries})
			since := time.Now()
			err = p.watch(ctx, i)
			up.Dec()
			if time.Since(since) >= settled {
				wait = 0
			}
			if wait == 0 && ctx.Err() == nil {
				p.become(&state{tries: tries}) // the first crash for long: who asks waits for the next start
			} else {
				p.become(&state{down: err, tries: tries})
			}
			i.end()
		} else {
			p.become(&state{down: err, tries: tries})
		}
		if ctx.Err() != nil {
			p.become(&state{down: errStopped, tries: tries})
			return
		}
		wait = min(max(2*wait, firstBackoff), lastBackoff)
		jittered := wait/2 + rand.N(wait/2+1)
		p.complain(&said, err, jittered)
		select {
		case <-time.After(jittered):
		case <-p.kick:
		case <-ctx.Done():
			p.become(&state{down: errStopped, tries: tries})
			return
		}
		p.host.metrics.restarts.WithLabelValues(p.spec.Name).Inc()
	}
}

// complain says why a plugin cannot be asked: it is for operators, unless nobody but a check wanted to know.
func (p *plugin) complain(said *complaints, err error, restart time.Duration) {
	level, message := slog.LevelInfo, "a plugin cannot be used"
	if p.host.binds(p) {
		level, message = slog.LevelError, "a plugin cannot be asked"
	}
	before, ok := said.worth(message+err.Error(), time.Now())
	if !ok {
		return
	}
	attrs := []any{"error", err, "restart", restart}
	if before > 0 {
		attrs = append(attrs, "before", before)
	}
	p.log.Log(context.Background(), level, message, attrs...)
}

// watch returns why a process cannot be used any more.
func (p *plugin) watch(ctx context.Context, i *instance) error {
	tick := time.NewTicker(p.host.options.HealthInterval)
	defer tick.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return errStopped
		case <-i.process.done:
			return i.process.ended()
		case <-i.lost:
			select { // which is mostly because it exited, and then that is the news
			case <-i.process.done:
				return i.process.ended()
			case <-time.After(100 * time.Millisecond):
				return errors.New("the connection to it broke")
			}
		case <-tick.C:
		}
		check, cancel := context.WithTimeout(ctx, p.host.options.HealthTimeout)
		err := i.healthy(check)
		late := check.Err() != nil
		cancel()
		// Who answers questions is only too busy to say that it is well. What it says is heeded.
		if answered := i.answered.Swap(false); err == nil || late && answered {
			failures = 0
		} else if failures++; failures >= unhealthy {
			return fmt.Errorf("its health could not be asked for %d times: %w", failures, err)
		}
	}
}

// drain ends a plugin that nobody needs, after the questions that are in flight.
func (p *plugin) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	p.room.left(ctx)
	p.cancel()
	<-p.ended
}

// health says why a plugin cannot be asked.
func (p *plugin) health() error {
	switch s := p.state.Load(); {
	case s.down != nil:
		return s.down
	case s.up == nil:
		return errors.New("it is being started")
	case p.circuit.state() == breaker.Open:
		return errors.New("it doesn't answer in time: questions are not asked for a while")
	}
	return nil
}
