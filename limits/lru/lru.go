// Package lru caches the values that were used last, up to a total cost.
package lru

import (
	"container/list"
	"sync"
	"time"
)

// Cache is a cache with a limited cost. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	// AtLeast is how many values are kept whatever they cost.
	AtLeast int
	// Idle is the time without use after which a value is dropped; 0 means never.
	Idle time.Duration

	limit   int
	mu      sync.Mutex
	cost    int
	entries map[K]*list.Element
	order   list.List // of *entry[K, V], the last used first
}

type entry[K comparable, V any] struct {
	key   K
	value V
	cost  int
	drop  *time.Timer // nil without Idle
}

// New returns an empty cache whose values cost no more than the limit together.
func New[K comparable, V any](limit int) *Cache[K, V] {
	return &Cache[K, V]{limit: limit, entries: map[K]*list.Element{}}
}

// Get returns the value of a key, and marks it as used.
func (c *Cache[K, V]) Get(k K) (value V, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, found := c.entries[k]
	if !found {
		return value, false
	}
	c.order.MoveToFront(e)
	cached := e.Value.(*entry[K, V])
	if cached.drop != nil {
		cached.drop.Reset(c.Idle)
	}
	return cached.value, true
}

// Add sets the value of a key. It drops the least recently used values until the others fit.
func (c *Cache[K, V]) Add(k K, value V, cost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(c.entries[k])
	if cost > c.limit && c.AtLeast == 0 {
		return
	}
	added := &entry[K, V]{key: k, value: value, cost: cost}
	e := c.order.PushFront(added)
	c.entries[k] = e
	if c.Idle > 0 {
		added.drop = time.AfterFunc(c.Idle, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.remove(e)
		})
	}
	for c.cost += cost; c.cost > c.limit && c.order.Len() > c.AtLeast; {
		c.remove(c.order.Back())
	}
}

// Remove drops the value of a key.
func (c *Cache[K, V]) Remove(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(c.entries[k])
}

// Clear drops all values.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.order.Len() > 0 {
		c.remove(c.order.Back())
	}
}

// Len returns the number of values.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len()
}

// remove drops an entry, if the cache still has it. The caller holds mu.
func (c *Cache[K, V]) remove(e *list.Element) {
	if e == nil {
		return
	}
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
