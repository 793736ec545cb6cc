// Package flow is priority and fairness: it classifies requests by the flow schemas of the policy in force, and lets them
// wait for seats of their priority levels, so that no client takes the server from others (KEP-1040).
package flow

import (
	"context"
	"hash/maphash"
	"log/slog"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/flow/fairqueue"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/flows"
)

// seatsPerProcessor is how many seats the server has for each processor, unless [Options] say something else.
const seatsPerProcessor = 100

// Options for [New].
type Options struct {
	// Seats is how many seats all priority levels share; 0 for 100 for each processor.
	Seats int
	// Cost estimates what a request costs; nil for one seat.
	Cost func(c *call.Call) fairqueue.Work
	// Metrics is where metrics are registered; nil for none.
	Metrics prometheus.Registerer
	// Logger gets messages for operators; nil for none.
	Logger *slog.Logger
}

// Control gives seats to requests. It is safe for concurrent use.
type Control struct {
	seats int
	cost  func(c *call.Call) fairqueue.Work
	seed  maphash.Seed

	mu     sync.Mutex
	policy *policy.Policy
	table  *flows.Table
	levels map[string]*fairqueue.Set
}

// New returns a control without a policy.
func New(o Options) *Control {
	if o.Seats == 0 {
		o.Seats = seatsPerProcessor * runtime.GOMAXPROCS(0)
	}
	if o.Cost == nil {
		o.Cost = func(*call.Call) fairqueue.Work { return fairqueue.Work{Seats: 1} }
	}
	return &Control{seats: o.Seats, cost: o.Cost, seed: maphash.MakeSeed(), levels: map[string]*fairqueue.Set{}}
}

// Run moves seats between priority levels, by their demand, until the context ends.
func (c *Control) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// tableOf returns the table of a policy, and gives its levels their seats if it is another policy than before.
func (c *Control) tableOf(p *policy.Policy) (*flows.Table, map[string]*fairqueue.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.policy != p {
		c.policy, c.table = p, flows.New(&p.Form().Flow)
		c.levels = map[string]*fairqueue.Set{}
		for _, l := range c.table.Levels() {
			c.levels[l.Name] = fairqueue.New(fairqueue.Config{Seats: c.seats, Queues: 64, HandSize: 6, QueueLength: 50, Exempt: l.Exempt})
		}
	}
	return c.table, c.levels
}

// Classify sets the flow of a request, and its response headers.
func (c *Control) Classify(r *call.Call) {
	table, _ := c.tableOf(r.Tip.Policy)
	i := r.Info
	q := policy.Request{User: r.User.GetName(), Groups: r.User.GetGroups(), Verb: i.Verb, IsResource: i.IsResourceRequest,
		Group: i.APIGroup, Resource: i.Resource, Subresource: i.Subresource, Namespace: i.Namespace, Path: i.Path}
	r.Flow.Schema = table.Classify(&q)
	r.Flow.Distinguisher = r.Flow.Schema.Distinguish(&q)
}

// Take classifies a request and takes seats for it, see [call.Call.Flow]. It may wait. It returns an error with code 429
// if there are no seats for the request.
func (c *Control) Take(ctx context.Context, r *call.Call) error {
	c.Classify(r)
	_, levels := c.tableOf(r.Tip.Policy)
	s := r.Flow.Schema
	f := fairqueue.Flow{Schema: s.Name, Distinguisher: r.Flow.Distinguisher}
	t := &fairqueue.Ticket{}
	if err := levels[s.Level.Name].Take(ctx, t, f, c.cost(r), 0, nil); err != nil {
		return status.TooManyRequests("too many requests, please try again later")
	}
	r.Flow.Release = t.Release
	return nil
}
