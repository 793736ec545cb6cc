package flow

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"stele.dev/stele/limits/fairqueue"

	"stele.dev/stele/policy/flows"
)

// level is a priority level with its queues and seats. It stays the same when a new policy changes it.
type level struct {
	name    string
	exempt  bool
	set     *fairqueue.Set
	backoff backoff
	// watchesRefused counts the refusals that set does not.
	watchesRefused atomic.Int64

	// Guarded by Control.mu:
	definition *flows.Level
	draining   bool // the newest policy does not have it
	SeatLevel
}

func newLevel(l *flows.Level) *level {
	x := &level{name: l.Name, exempt: l.Exempt, set: fairqueue.New(fairqueue.Config{Exempt: l.Exempt}), definition: l}
	x.Exempt = l.Exempt
	return x
}

// perRequest returns the maximum of seats of one request; 0 for none. Control.mu is held.
func (l *level) perRequest() int {
	if l.exempt {
		return 0
	}
	return l.SeatLevel.PerRequest()
}

// config returns the configuration of the level's queues and seats.
func (l *level) config() fairqueue.Config {
	c := fairqueue.Config{Seats: l.Current, PerRequest: l.perRequest(), Exempt: l.exempt}
	if q := l.definition.Queuing; q != nil {
		c.Queues, c.HandSize, c.QueueLength = q.Queues, q.HandSize, q.QueueLengthLimit
	}
	return c
}

// define makes the levels those of a new policy. c.mu is held.
func (c *Control) define(levels []*flows.Level) {
	for _, l := range c.levels {
		l.draining = true
	}
	for _, l := range levels {
		x := c.levels[l.Name]
		if x == nil {
			x = newLevel(l)
			c.levels[l.Name] = x
		}
		x.definition, x.draining = l, false
	}
	c.divide()
	c.adjust()
	for _, l := range c.levels {
		l.set.Configure(l.config())
	}
}

// divide divides the seats of the server by the shares of the levels, also of those that are draining: their requests still
// need some. c.mu is held.
func (c *Control) divide() {
	levels := c.ordered()
	shares := make([]SeatShares, len(levels))
	for i, l := range levels {
		d := l.definition
		shares[i] = SeatShares{Shares: d.NominalConcurrencyShares, LendablePercent: d.LendablePercent, BorrowingLimitPercent: d.BorrowingLimitPercent}
	}
	for i, limits := range Divide(c.seats, shares) {
		l := levels[i]
		if l.SeatLimits == (SeatLimits{}) && !l.exempt {
			l.Demand = limits.Unknown()
		}
		l.SeatLimits = limits
	}
}

// observe notes the demand of the levels since the last call. c.mu is held.
func (c *Control) observe() {
	for _, l := range c.levels {
		if d := l.set.Demand(); d.Duration > 0 {
			l.Demand.Observe(float64(d.Max), d.Average, d.Deviation)
		}
	}
}

// adjust lends and borrows seats by the demand of the levels. c.mu is held.
func (c *Control) adjust() {
	levels := c.ordered()
	claims := make([]*SeatLevel, len(levels))
	for i, l := range levels {
		claims[i] = &l.SeatLevel
	}
	fair, err := Adjust(claims)
	if err != nil {
		c.logger.Error("the seats of priority levels cannot be adjusted, and stay as they are", "error", err)
		return
	}
	c.fair = fair
	for _, l := range levels {
		l.set.SetSeats(l.Current, l.perRequest())
	}
}

// ordered returns the levels by name. c.mu is held.
func (c *Control) ordered() []*level {
	return slices.SortedFunc(maps.Values(c.levels), func(a, b *level) int { return strings.Compare(a.name, b.name) })
}
