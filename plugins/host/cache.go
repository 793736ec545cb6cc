package host

import "time"

// cache caches answers until they expire. It has two halves of equal size: when the young half is full it becomes the old
// one, and the former old half is dropped. A hit in the old half moves the entry to the young one. The cache is not safe
// for concurrent use.
type cache struct {
	young, old map[string]entry
	bytes      int // total size of young
}

type entry struct {
	answer  Answer
	expires time.Time
}

const (
	halfEntries = 4096
	halfBytes   = 4 << 20
	entryBytes  = 128 // size of an entry without its texts
)

func (c *cache) get(key []byte, now time.Time) (Answer, bool) {
	e, found := c.young[string(key)]
	if !found {
		if e, found = c.old[string(key)]; found && now.Before(e.expires) {
			c.put(string(key), e)
		}
	}
	if !found || !now.Before(e.expires) {
		return Answer{}, false
	}
	e.answer.Cached = true
	return e.answer, true
}

func (c *cache) put(key string, e entry) {
	size := len(key) + len(e.answer.Reason) + len(e.answer.Detail) + entryBytes
	if c.young == nil || len(c.young) >= halfEntries || c.bytes+size > halfBytes {
		c.old, c.young, c.bytes = c.young, map[string]entry{}, 0
	}
	c.bytes += size
	c.young[key] = e
}
