package memory

import (
	"context"
	"runtime/metrics"
	"time"

	"stele.dev/stele/limits/steady"
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
	// slowly is the part of the difference by which the own memory is lowered at a collection while more shares are taken:
	// one in slowly.
	slowly = 16
	// calmFor is after how long without many shares, and without a collection, one is forced if there is a reason.
	calmFor = 15 * time.Second
	// heldPart is the part of the limit that the process may hold as garbage and free memory while it is calm: one in heldPart.
	heldPart = 8
)

// Usage is how much memory the process uses.
type Usage struct {
	// Live is how many bytes of the heap were in use at the end of the last collection.
	Live int64
	// Fixed is how many bytes the runtime uses for stacks and for itself.
	Fixed int64
	// Held is how many bytes of the heap the process holds besides Live: garbage, new objects, and free memory.
	Held int64
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
	for i, heap := range samples[3:] {
		n := int64(heap.Value.Uint64())
		if u.Fixed -= n; i < 3 { // released memory is not held
			u.Held += n
		}
	}
	u.Held = max(0, u.Held-u.Live)
	return u
}

// refresh measures again, if it was not done just now.
func (g *Guard) refresh() {
	if time.Since(g.read) >= every {
		g.measure()
	}
}

// measure computes the budget. The server's own memory is what was in use at the last collection, minus the shares. Shares
// are estimates: so while many are taken, the own memory is raised at once, and lowered slowly.
func (g *Guard) measure() Usage {
	u := g.usage()
	g.read = time.Now()
	if u.Cycles != g.cycles || g.budget == 0 {
		g.live = u.Live + u.Fixed
		own := max(0, g.live-g.peak)
		g.unsure = !g.few(g.peak)
		switch {
		case own > g.own || !g.unsure:
			g.own = own
		default:
			g.own -= (g.own - own) / slowly
		}
		g.cycles, g.peak, g.calm = u.Cycles, g.all, time.Now()
	}
	g.budget = max(g.limit*used/100-g.own, least*g.maxBody)
	return u
}

// few reports whether so much, without watches, is little of the budget.
func (g *Guard) few(all int64) bool { return (all-g.taken[Watches])*quiet <= g.budget }

// Run gives memory back to the operating system when the process does little, until the context ends. A process that
// allocates nothing collects nothing: after a load, garbage would stay, and the budget would be too small.
func (g *Guard) Run(ctx context.Context) error {
	for range steady.Every(ctx, calmFor/3) {
		if g.shouldCollect() {
			g.collect()
		}
	}
	return nil
}

// shouldCollect reports whether the process has been calm for long, and holds much garbage, or its own memory is not known.
func (g *Guard) shouldCollect() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.measure()
	if !g.few(g.all) {
		g.calm = time.Now()
	}
	if time.Since(g.calm) < calmFor || !g.unsure && u.Held <= g.limit/heldPart {
		return false
	}
	g.peak = g.all // what was given back before is garbage
	return true
}
