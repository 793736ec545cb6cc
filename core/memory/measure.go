package memory

import (
	"runtime/metrics"
	"time"
)

const (
	// every is how often the process's memory is measured, at most.
	every = 100 * time.Millisecond
	// used is the part of the limit that may be in use after a collection, in percent. The rest is for what becomes garbage
	// before the next collection: with less, the process would spend its time in collections.
	used = 70
	// least is the smallest budget, as a multiple of the largest body.
	least = 16
	// quiet is the part of the budget that shares may take for the server's own memory to be known well: one in quiet.
	quiet = 8
)

// Usage is how much memory the process uses.
type Usage struct {
	// Live is how many bytes of the heap were in use at the end of the last collection.
	Live int64
	// Fixed is how many bytes the runtime uses for stacks and for itself.
	Fixed int64
	// Cycles is the number of collections.
	Cycles uint64
}

// Measure returns the usage of this process. It does not stop the process.
func Measure() Usage {
	samples := [...]metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}, {Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples[:])
	u := Usage{Live: int64(samples[0].Value.Uint64()), Cycles: samples[1].Value.Uint64(), Fixed: int64(samples[2].Value.Uint64())}
	for _, heap := range samples[3:] {
		u.Fixed -= int64(heap.Value.Uint64())
	}
	return u
}

// refresh measures again, if it was not done just now.
func (g *Guard) refresh() {
	if time.Since(g.read) >= every {
		g.measure()
	}
}

// measure computes the budget. The server's own memory is what was in use at the last collection, minus the shares. Shares
// are estimates: so while many are taken, the own memory may be raised, and not lowered.
func (g *Guard) measure() {
	u := g.usage()
	g.read = time.Now()
	if u.Cycles != g.cycles || g.budget == 0 {
		g.live = u.Live + u.Fixed
		own := g.live - g.peak
		if own > g.own || (g.peak-g.taken[Watches])*quiet <= g.budget {
			g.own = max(0, own)
		}
		g.cycles, g.peak = u.Cycles, g.all
	}
	g.budget = max(g.limit*used/100-g.own, least*g.maxBody)
}
