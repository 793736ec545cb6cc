package host

import (
	"time"

	"stele.dev/stele/limits/lru"
)

const (
	cacheBytes = 8 << 20
	// entryBytes is the least that an answer counts, so that there are not very many small ones.
	entryBytes = 1 << 10
)

// cache keeps answers until they expire. It is safe for concurrent use.
type cache struct{ answers *lru.Cache[key, cached] }

type cached struct {
	answer Answer
	until  time.Time
}

func newCache() cache { return cache{lru.New[key, cached](cacheBytes)} }

// get returns an answer that has not expired.
func (c cache) get(k key, now time.Time) (Answer, bool) {
	a, found := c.answers.Get(k)
	if !found || !now.Before(a.until) {
		return Answer{}, false
	}
	a.answer.Cached = true
	return a.answer, true
}

// put keeps an answer until it expires.
func (c cache) put(k key, a Answer, until time.Time) {
	c.answers.Add(k, cached{a, until}, max(entryBytes, len(a.Reason)+len(a.Detail)+entryBytes/8))
}
