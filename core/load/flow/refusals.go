package flow

import (
	"strings"
	"sync"
	"time"

	"stele.dev/stele/limits/fairqueue"
)

const (
	// maxRefused is how many flows with refusals are remembered.
	maxRefused = 1000
	// remembered is how long they are remembered after their last refusal.
	remembered = 10 * time.Minute
)

// Reasons are the reasons why requests are refused.
var Reasons = [...]string{fairqueue.QueueFull, fairqueue.ConcurrencyLimit, fairqueue.TimeOut, fairqueue.Cancelled, WatchLimit}

// Counts are numbers of refusals, in the order of [Reasons].
type Counts [len(Reasons)]int64

// Total returns their sum.
func (c Counts) Total() (n int64) {
	for _, x := range c {
		n += x
	}
	return n
}

func (c *Counts) add(reason string) {
	for i, r := range Reasons {
		if r == reason {
			c[i]++
		}
	}
}

// refusals remembers which flows had requests refused.
type refusals struct {
	mu    sync.Mutex
	flows map[flowName]*refusal
}

type flowName struct{ schema, distinguisher string }

// refusal is the refused requests of one flow.
type refusal struct {
	counts      Counts
	first, last time.Time
}

func (r *refusals) add(schema, distinguisher, reason string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.flows[flowName{schema, distinguisher}]
	if x == nil || now.Sub(x.last) > remembered {
		if r.flows == nil {
			r.flows = map[flowName]*refusal{}
		}
		if len(r.flows) >= maxRefused {
			r.evict()
		}
		x = &refusal{first: now}
		r.flows[flowName{schema, strings.Clone(distinguisher)}] = x
	}
	x.counts.add(reason)
	x.last = now
}

// evict removes one of the older flows: the oldest of a few.
func (r *refusals) evict() {
	var oldest flowName
	var last time.Time
	seen := 0
	for n, x := range r.flows {
		if seen == 0 || x.last.Before(last) {
			oldest, last = n, x.last
		}
		if seen++; seen == 8 {
			break
		}
	}
	delete(r.flows, oldest)
}

// all returns copies of what is remembered.
func (r *refusals) all(now time.Time) map[flowName]refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[flowName]refusal, len(r.flows))
	for n, x := range r.flows {
		if now.Sub(x.last) > remembered {
			delete(r.flows, n)
			continue
		}
		all[n] = *x
	}
	return all
}
