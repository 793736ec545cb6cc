// Package flow is priority and fairness: it classifies requests by the flow schemas of the policy in force, and lets them
// wait for seats of their priority levels, so that no client takes the server from others (KEP-1040).
//
// A [Control] has one queue set for each priority level. The levels are those of the newest policy that a request was
// decided by: a new policy changes them in place, and requests that wait stay in their queues. Requests find their flow
// schema by their own tip's policy, also while requests with the former and the new policy are mixed, and take seats of the
// level of its name. A level that the policy no longer has goes when its last request has ended.
package flow

import (
	"context"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/limits/fairqueue"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/flows"
)

const (
	// seatsPerProcessor is how many seats the server has for each processor, unless [Options] say something else.
	seatsPerProcessor = 100
	// adjustment is how often levels lend and borrow seats.
	adjustment = 10 * time.Second
	// kept is how long a former policy is kept for requests that were pinned to it.
	kept = time.Minute
)

// Options for [New].
type Options struct {
	// Seats is how many seats all priority levels share; 0 or less for 100 for each processor.
	Seats int
	// Cost estimates what a request costs; nil for one seat. A request gets no more seats than its level allows.
	Cost func(c *call.Call) fairqueue.Work
	// Metrics is where metrics are registered; nil for none.
	Metrics prometheus.Registerer
	// Logger gets messages for operators; nil for none.
	Logger *slog.Logger
}

// Control gives seats to requests. It is safe for concurrent use.
type Control struct {
	seats    int
	cost     func(c *call.Call) fairqueue.Work
	logger   *slog.Logger
	metrics  *metrics
	inflight inflight
	refused  refusals

	recent atomic.Pointer[[]*config] // the newest first; read without mu

	mu      sync.Mutex // guards what follows, and changes of recent
	levels  map[string]*level
	series  map[[2]string]*series // by level and schema
	watches map[string]*watches   // by schema
	fair    float64               // the fair fraction
}

// config is the flow schemas of one policy. It is immutable, except for replaced.
type config struct {
	policy   *policy.Policy
	revision uint64
	table    *flows.Table
	schemas  map[*flows.Schema]*schema
	replaced time.Time // when a newer policy took its place; zero for the newest. Guarded by Control.mu.
}

// schema is a flow schema of a config, with what its requests need. It implements [call.Taken].
type schema struct {
	*flows.Schema
	control *Control
	level   *level
	series  *series
	watches *watches
	// The UIDs of the flow schema and its level, as values of headers.
	uid, levelUID []string
}

// New returns a control without a policy.
func New(o Options) *Control {
	if o.Seats <= 0 {
		o.Seats = seatsPerProcessor * runtime.GOMAXPROCS(0)
	}
	if o.Cost == nil {
		o.Cost = func(*call.Call) fairqueue.Work { return fairqueue.Work{Seats: 1} }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Control{seats: o.Seats, cost: o.Cost, logger: o.Logger, levels: map[string]*level{}, series: map[[2]string]*series{}, watches: map[string]*watches{}}
	c.recent.Store(&[]*config{})
	c.metrics = newMetrics()
	if o.Metrics != nil {
		o.Metrics.MustRegister(c.metrics.collectors()...)
		o.Metrics.MustRegister(&gauges{c}, &c.inflight)
	}
	return c
}

// Run moves seats between priority levels by their demand, until the context ends.
func (c *Control) Run(ctx context.Context) error {
	for range steady.Every(ctx, adjustment) {
		c.mu.Lock()
		c.observe()
		c.adjust()
		c.forget()
		c.mu.Unlock()
	}
	return nil
}

// find returns the config of the tip's policy. If it is newer than all others, it comes into force, unless explained is set.
func (c *Control) find(tip *commit.Tip, explained bool) *config {
	of := tip.Policy.Base() // clients bring nothing that classifies requests
	for _, x := range *c.recent.Load() {
		if x.policy == of {
			return x
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	recent := *c.recent.Load()
	for _, x := range recent {
		if x.policy == of {
			return x
		}
	}
	x := &config{policy: of, revision: tip.ActivationRevision(), table: flows.New(&tip.Policy.Form().Flow)}
	switch {
	case explained:
		x.resolve(c, true)
		return x
	case len(recent) == 0 || x.revision > recent[0].revision:
		if len(recent) > 0 {
			recent[0].replaced = time.Now()
		}
		c.define(x.table.Levels())
		x.resolve(c, false)
		recent = append([]*config{x}, recent...)
	default: // a former policy, which some requests are still pinned to
		x.replaced = time.Now()
		x.resolve(c, false)
		recent = append(slices.Clone(recent), x)
	}
	c.recent.Store(&recent)
	c.forget()
	return x
}

// resolve finds what the schemas of a config need. c.mu is held. Schemas of an explained policy only have their headers.
func (x *config) resolve(c *Control, explained bool) {
	x.schemas = map[*flows.Schema]*schema{}
	for _, s := range x.table.Schemas() {
		r := &schema{Schema: s, control: c, uid: []string{s.UID}, levelUID: []string{s.Level.UID}}
		x.schemas[s] = r
		if explained {
			continue
		}
		if r.level = c.levels[s.Level.Name]; r.level == nil { // of a former policy, and gone
			r.level = c.levels[flowcontrol.PriorityLevelConfigurationNameCatchAll]
		}
		if r.watches = c.watches[s.Name]; r.watches == nil {
			r.watches = &watches{open: map[string]int{}}
			c.watches[s.Name] = r.watches
		}
		n := [2]string{r.level.name, s.Name}
		if r.series = c.series[n]; r.series == nil {
			r.series = &series{metrics: c.metrics, level: n[0], schema: n[1]}
			c.series[n] = r.series
		}
	}
}

// forget removes former policies that no request is pinned to any more, and the levels and counters that no policy has and no
// request uses.
// c.mu is held.
func (c *Control) forget() {
	recent := slices.DeleteFunc(slices.Clone(*c.recent.Load()), func(x *config) bool { return !x.replaced.IsZero() && time.Since(x.replaced) > kept })
	used, measured, counted := map[string]bool{}, map[*series]bool{}, map[*watches]bool{}
	for _, x := range recent {
		for _, s := range x.schemas {
			used[s.level.name], measured[s.series], counted[s.watches] = true, true, true
		}
	}
	maps.DeleteFunc(c.series, func(_ [2]string, x *series) bool { return !measured[x] })
	maps.DeleteFunc(c.watches, func(_ string, x *watches) bool { return !counted[x] && x.count() == 0 })
	removed := false
	for name, l := range c.levels {
		if l.draining && !used[name] && l.set.State().Idle() {
			delete(c.levels, name)
			removed = true
		}
	}
	if removed {
		c.divide()
		c.adjust()
	}
	c.recent.Store(&recent)
}
