package past

import (
	"container/list"
	"sync"
)

// cache keeps what was used last, within a bound. It is safe for concurrent use.
type cache[K comparable, V any] struct {
	bound int

	mu      sync.Mutex
	cost    int
	entries map[K]*list.Element
	order   list.List // of *entry[K, V], what was used last in front
}

type entry[K comparable, V any] struct {
	key   K
	value V
	cost  int
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
	return e.Value.(*entry[K, V]).value, true
}

// add drops what was not used for longest until the rest fits. What does not fit by itself is
// not kept.
func (c *cache[K, V]) add(k K, value V, cost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[k] != nil || cost > c.bound {
		return
	}
	c.entries[k] = c.order.PushFront(&entry[K, V]{k, value, cost})
	for c.cost += cost; c.cost > c.bound; {
		last := c.order.Remove(c.order.Back()).(*entry[K, V])
		delete(c.entries, last.key)
		c.cost -= last.cost
	}
}
