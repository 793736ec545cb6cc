package past

import (
	"container/list"
	"sync"
	"time"
)

// cache keeps what was used last, within a bound. It is safe for concurrent use.
type cache[K comparable, V any] struct {
	bound int
	// always so many are kept, whatever they cost.
	always int
	// idle is after how long without use a value is dropped; never if 0.
	idle time.Duration

	mu      sync.Mutex
	cost    int
	entries map[K]*list.Element
	order   list.List // of *entry[K, V], what was used last in front
}

type entry[K comparable, V any] struct {
	key   K
	value V
	cost  int
	drop  *time.Timer // nil if it may be idle
}

func newCache[K comparable, V any](bound int) *cache[K, V] {
	return &cache[K, V]{bound: bound, entries: map[K]*list.Element{}}
}

func (c *cache[K, V]) get(k K) (value V, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, found := c.entries[k]
	if !found {
		return value, false
	}
	c.order.MoveToFront(e)
	kept := e.Value.(*entry[K, V])
	if kept.drop != nil {
		kept.drop.Reset(c.idle)
	}
	return kept.value, true
}

// add drops what was not used for longest until the rest fits.
func (c *cache[K, V]) add(k K, value V, cost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[k] != nil || cost > c.bound && c.always == 0 {
		return
	}
	added := &entry[K, V]{key: k, value: value, cost: cost}
	e := c.order.PushFront(added)
	c.entries[k] = e
	if c.idle > 0 {
		added.drop = time.AfterFunc(c.idle, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.remove(e)
		})
	}
	for c.cost += cost; c.cost > c.bound && c.order.Len() > c.always; {
		c.remove(c.order.Back())
	}
}

// remove drops a value, if it is there still. mu is held.
func (c *cache[K, V]) remove(e *list.Element) {
	dropped := e.Value.(*entry[K, V])
	if c.entries[dropped.key] != e {
		return
	}
	c.order.Remove(e)
	delete(c.entries, dropped.key)
	c.cost -= dropped.cost
	if dropped.drop != nil {
		dropped.drop.Stop()
	}
}
