package host

import "time"

// cache keeps answers for as long as they may be kept. Its two halves are of equal size: when the younger is
// full the older is forgotten, and what was asked for since has moved into the younger. It is guarded by who has it.
type cache struct {
	young, old map[string]kept
	bytes      int // of young
}

type kept struct {
	answer Answer
	until  time.Time
}

const (
	halfEntries = 4096
	halfBytes   = 4 << 20
	keptBytes   = 128 // of an entry, besides its texts
)

func (c *cache) get(key []byte, now time.Time) (Answer, bool) {
	k, found := c.young[string(key)]
	if !found {
		if k, found = c.old[string(key)]; found && now.Before(k.until) {
			c.put(string(key), k)
		}
	}
	if !found || !now.Before(k.until) {
		return Answer{}, false
	}
	k.answer.Cached = true
	return k.answer, true
}

func (c *cache) put(key string, k kept) {
	size := len(key) + len(k.answer.Reason) + len(k.answer.Detail) + keptBytes
	if c.young == nil || len(c.young) >= halfEntries || c.bytes+size > halfBytes {
		c.old, c.young, c.bytes = c.young, map[string]kept{}, 0
	}
	c.bytes += size
	c.young[key] = k
}
