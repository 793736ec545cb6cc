package memory

import (
	"math"
	"runtime"
	"slices"
	"time"
)

const (
	// decodingFactor is the memory of the largest decoded body for which there is always room, as a multiple of its size.
	decodingFactor = 10
	// smallPart is the part of the budget that only small shares may take: one in smallPart.
	smallPart = 16
	// smallShare is the size up to which shares are small.
	smallShare = 128 << 10
	// sweepEvery is how often a collection is forced, at most, while requests wait and states of the past take much of the
	// budget.
	sweepEvery = 2 * time.Second
)

// shareLimit returns how much of the budget shares of a kind, and of the kinds before it, may take together. Later kinds may take
// more than earlier ones, so that a request that holds shares of earlier kinds can go on.
func (g *Guard) shareLimit(k Kind, n int64) int64 {
	whole := g.budget
	if n > smallShare {
		whole -= g.budget / smallPart
	}
	part := g.budget / 16
	decoding := whole - 2*part
	reading := decoding - min(decodingFactor*g.maxBody, decoding/2)
	switch k {
	case Answers:
		return whole
	case Past:
		return whole - part
	case Decoding:
		return decoding
	case Reading:
		return reading
	case Questions:
		return reading - part
	}
	// Watches stay for long. They leave room for a few bodies, and for each other's buffers.
	watches := min(g.budget/2, reading-2*part-3*g.maxBody)
	switch k {
	case Arriving:
		return watches + 2*part
	case Buffers:
		return watches + part
	}
	return watches
}

// allows reports whether there is room for a share beside those of its kind and of earlier kinds.
func (g *Guard) allows(k Kind, n int64) bool {
	upTo := n
	for j := range k + 1 {
		upTo += g.counted(j, n)
	}
	return upTo <= g.shareLimit(k, n)
}

// counted returns what shares of a kind have taken. If more watches were opened when the budget was larger, they count as
// the part that watches may take, so that the others keep theirs.
func (g *Guard) counted(k Kind, n int64) int64 {
	if k == Watches {
		return min(g.taken[k], max(g.shareLimit(k, n), 0))
	}
	return g.taken[k]
}

// fits reports whether there is room for a share, whoever waits. For one body that is decoded alone, the bodies that are read do
// not count: otherwise they could take the room for which they wait, when a body takes much more than its length.
func (g *Guard) fits(k Kind, n int64) bool {
	spared := int64(0) // what small shares have taken of their own part
	if n > smallShare {
		if g.crowded(k, n) {
			return false
		}
		spared = min(g.small, g.budget/smallPart)
	}
	alone := k == Decoding && g.taken[Decoding] == 0
	upTo := -spared
	for j := range kinds {
		if alone && (j == Arriving || j == Reading) {
			continue
		}
		if upTo += g.counted(j, n); j >= k && upTo+n > g.shareLimit(j, n) {
			return false
		}
	}
	return true
}

// crowdedPart is the part of the budget that large shares take together near the limit, unless one alone is larger: one in
// crowdedPart.
const crowdedPart = 8

// crowded reports whether a large share must wait for others because memory in use is near the limit: the shares were
// estimated too low, or the limit is. Bodies that are read and events are not estimated, so they neither wait nor count.
// Shares of earlier kinds do not count either: the request may hold some of them itself.
func (g *Guard) crowded(k Kind, n int64) bool {
	if k == Reading || k <= Arriving || g.live <= g.limit/10*9 || g.limit <= least*g.maxBody {
		return false
	}
	taken := int64(0)
	for j := k; j < kinds; j++ {
		if j != Reading {
			taken += g.large[j]
		}
	}
	return taken > 0 && taken+n > g.budget/crowdedPart
}

// othersPart is the part of what an owner holds for which there must still be room beside it: one in othersPart. Others find that
// room at once, whatever the owner waits for. It follows the dynamic thresholds of Choudhury and Hahne (1998).
const othersPart = 4

// fitsTurn reports whether there is room for a share beside what its owner leaves to others. The first share of an owner
// leaves nothing to them.
func (g *Guard) fitsTurn(k Kind, owner string, n int64) bool {
	if held := g.held[k][owner]; held > 0 && !g.fits(k, n+(held+n)/othersPart) {
		return false
	}
	return g.fits(k, n)
}

// next returns the request whose turn it is: of the owner who holds least, the one that came first; nil if none waits.
func (g *Guard) next(k Kind) (first *waiter) {
	least := int64(math.MaxInt64)
	for _, w := range g.waiting[k] {
		if held := g.held[k][w.owner]; held < least {
			if first, least = w, held; held == 0 {
				break
			}
		}
	}
	return first
}

// hold notes that an owner holds n bytes more.
func (g *Guard) hold(k Kind, owner string, n int64) {
	if owner == "" {
		return
	}
	if g.held[k] == nil {
		g.held[k] = map[string]int64{}
	}
	if g.held[k][owner] += n; g.held[k][owner] == 0 {
		delete(g.held[k], owner)
	}
}

// mayOvertake reports whether a small share is granted although larger ones wait. It may overtake the first of them for as
// many bytes as that waits for. From then on, small shares have a part of the budget for themselves.
func (g *Guard) mayOvertake(k Kind, first *waiter, owner string, n int64) bool {
	if first == nil || n > smallShare || !g.fitsTurn(k, owner, n) {
		return false
	}
	if first.n <= smallShare {
		return false // they wait for each other in their order
	}
	if first.overtaken += n; first.overtaken <= first.n {
		return true
	}
	return g.small+n <= g.budget/smallPart
}

func (g *Guard) add(k Kind, n int64) {
	g.taken[k] += n
	g.all += n
	if g.peak = max(g.peak, g.all); n <= smallShare && k > Arriving {
		g.small += n
	}
	if n > smallShare {
		g.large[k] += n
	}
}

func (g *Guard) free(k Kind, n int64) {
	g.drop(k, n)
	g.grant()
}

// drop subtracts a share, and grants nothing.
func (g *Guard) drop(k Kind, n int64) {
	g.taken[k] -= n
	g.all -= n
	if n <= smallShare && k > Arriving {
		g.small -= n
	}
	if n > smallShare {
		g.large[k] -= n
	}
}

// grant grants shares to requests that wait, to those of later kinds first: they hold most, and end soonest.
func (g *Guard) grant() {
	for k := int(kinds) - 1; k >= 0; k-- {
		k := Kind(k)
		next := g.next(k)
		for next != nil && g.fitsTurn(k, next.owner, next.n) {
			g.pick(k, next)
			next = g.next(k)
		}
		for i := 0; i < len(g.waiting[k]); {
			if w := g.waiting[k][i]; g.mayOvertake(k, next, w.owner, w.n) {
				g.pick(k, w)
			} else {
				i++
			}
		}
	}
}

// pick grants the share of a waiting request.
func (g *Guard) pick(k Kind, w *waiter) {
	i := slices.Index(g.waiting[k], w)
	g.waiting[k] = slices.Delete(g.waiting[k], i, i+1)
	g.add(k, w.n)
	g.hold(k, w.owner, w.n)
	close(w.granted)
}

// leave removes a request that no longer waits.
func (g *Guard) leave(k Kind, w *waiter) {
	if i := slices.Index(g.waiting[k], w); i >= 0 {
		g.waiting[k] = slices.Delete(g.waiting[k], i, i+1)
	}
	g.grant()
}

// arm makes sure that the budget is computed anew soon, and again while requests wait.
func (g *Guard) arm() {
	if g.armed {
		return
	}
	g.armed = true
	time.AfterFunc(again, func() {
		g.mu.Lock()
		past := g.taken[Past] > 0
		sweep := (g.taken[Past] > g.budget/quiet || len(g.waiting[Past]) > 0) && past && time.Since(g.swept) > sweepEvery
		if sweep {
			g.swept = time.Now()
		}
		g.mu.Unlock()
		if past {
			g.reclaim()
		}
		if sweep {
			runtime.GC() // a state of the past gives its share back when it is collected
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.armed = false
		g.refresh()
		g.grant()
		for k := range g.waiting {
			if len(g.waiting[k]) > 0 {
				g.arm()
				return
			}
		}
	})
}
