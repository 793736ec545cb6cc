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
)

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 30 * time.Second
	settled      = 30 * time.Second // a process that ran this long resets the backoff
	unhealthy    = 3                // failed health checks in a row after which a plugin is restarted
	drainTimeout = 10 * time.Second
)

var errStopped = errors.New("it has been stopped")

// plugin is a program with a configuration, of which it keeps one process running. Bindings with the same program,
// configuration and secrets share it.
type plugin struct {
	host     *Host
	key      string
	spec     Spec // without what each binding has for itself, such as timeouts
	log      *slog.Logger
	limit    *limiter // of the output of all its processes
	failures limiter  // of log records about its answers
	state    atomic.Pointer[state]
	kick     chan struct{} // asks for a restart without the backoff
	room     *room
	circuit  *breaker.Circuit
	cancel   context.CancelFunc
	ended    chan struct{}               // closed when supervise has returned
	says     atomic.Pointer[Description] // the last description of itself

	// Guarded by the host's lock.
	users  int
	checks int         // users that only check whether it starts
	spare  *time.Timer // retires the plugin; set while it has no users
}

// state says whether a plugin can be asked. If up and down are nil, it is starting, and callers wait.
type state struct {
	up      *instance
	down    error         // why it cannot be asked
	tries   int           // number of starts so far
	changed chan struct{} // closed when another state follows
}

func (p *plugin) output(stream string) *lines {
	return &lines{log: p.log, stream: stream, most: slog.LevelError, limit: p.limit}
}

// goPlugin returns a writer for go-plugin's own log, at level Debug: go-plugin logs every end of a process as an error,
// and the host logs what matters.
func (p *plugin) goPlugin() *lines {
	return &lines{log: p.log, stream: "go-plugin", level: slog.LevelDebug, most: slog.LevelDebug, limit: p.limit}
}

// become sets the state. Only the goroutine of supervise may call it.
func (p *plugin) become(s *state) {
	s.changed = make(chan struct{})
	if old := p.state.Swap(s); old != nil {
		close(old.changed)
	}
}

// ready waits while the plugin is starting. It returns the running instance, or why there is none.
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

// attempt waits until the plugin runs, or until a start fails that began after the call.
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
	var logged repeats
	wait := time.Duration(0)
	for tries := 1; ; tries++ {
		i, err := p.newInstance(ctx)
		if err == nil {
			p.circuit.Retry()
			up := p.host.metrics.up.WithLabelValues(p.spec.Name)
			up.Inc() // before become, as those who wait may read the metric
			p.become(&state{up: i, tries: tries})
			since := time.Now()
			err = p.watch(ctx, i)
			up.Dec()
			if time.Since(since) >= settled {
				wait = 0
			}
			if wait == 0 && ctx.Err() == nil {
				p.become(&state{tries: tries}) // the first crash for a while: callers wait for the next start
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
		p.logFailure(&logged, err, jittered)
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

// logFailure logs why a plugin cannot be asked: as an error, or as information if only a check needs the plugin.
func (p *plugin) logFailure(logged *repeats, err error, restart time.Duration) {
	level, message := slog.LevelInfo, "a plugin cannot be used"
	if p.host.binds(p) {
		level, message = slog.LevelError, "a plugin cannot be asked"
	}
	before, ok := logged.allow(message+err.Error(), time.Now())
	if !ok {
		return
	}
	attrs := []any{"error", err, "restart", restart}
	if before > 0 {
		attrs = append(attrs, "before", before)
	}
	p.log.Log(context.Background(), level, message, attrs...)
}

// watch waits until a process can no longer be used, and returns why.
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
			select { // mostly because it exited
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
		// A plugin that answers questions may be too busy for a health check. Any answer to one counts.
		if answered := i.answered.Swap(false); err == nil || late && answered {
			failures = 0
		} else if failures++; failures >= unhealthy {
			return fmt.Errorf("%d health checks in a row failed: %w", failures, err)
		}
	}
}

// drain ends a plugin after it has answered the questions in flight.
func (p *plugin) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	p.room.awaitEmpty(ctx)
	p.cancel()
	<-p.ended
}

// health returns why a plugin cannot be asked for all services that a policy uses; nil if it can.
func (p *plugin) health(uses Services) error {
	switch s := p.state.Load(); {
	case s.down != nil:
		return s.down
	case s.up == nil:
		return errors.New("it is being started")
	case p.circuit.State() == breaker.Open:
		return errors.New("it does not answer in time; the circuit breaker is open")
	default:
		return s.up.has.lacking(uses)
	}
}
