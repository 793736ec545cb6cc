package history

import (
	"container/list"
	"sync"
)

// cacheBytes is the maximum size of the cache of blocks.
const cacheBytes = 8 << 20

// cache holds the most recently used blocks, up to a total size. It is safe for concurrent use.
type cache struct {
	mu     sync.Mutex
	room   int // free bytes
	blocks map[uint32]*list.Element
	used   *list.List // of *cached, the most recently used first
}

type cached struct {
	number uint32
	block
}

func newCache(bytes int) *cache {
	return &cache{room: bytes, blocks: map[uint32]*list.Element{}, used: list.New()}
}

func (c *cache) get(number uint32) (block, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.blocks[number]
	if !ok {
		return block{}, false
	}
	c.used.MoveToFront(e)
	return e.Value.(*cached).block, true
}

func (c *cache) put(number uint32, b block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks[number] != nil {
		return
	}
	c.blocks[number] = c.used.PushFront(&cached{number, b})
	for c.room -= b.size(); c.room < 0; {
		oldest := c.used.Remove(c.used.Back()).(*cached)
		delete(c.blocks, oldest.number)
		c.room += oldest.size()
	}
}

// size returns about how many bytes the block takes in memory.
func (b *block) size() int { return cap(b.data) + 4*cap(b.starts) + 256 }
