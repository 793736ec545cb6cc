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
type cache[A any] struct{ answers *lru.Cache[key, cached[A]] }

type cached[A any] struct {
	answer A
	until  time.Time
}

func newCache[A any]() cache[A] { return cache[A]{lru.New[key, cached[A]](cacheBytes)} }

// get returns an answer that has not expired.
func (c cache[A]) get(k key, now time.Time) (answer A, found bool) {
	a, found := c.answers.Get(k)
	if !found || !now.Before(a.until) {
		return answer, false
	}
	return a.answer, true
}

// put keeps an answer, whose texts have a size, until it expires.
func (c cache[A]) put(k key, a A, size int, until time.Time) {
	c.answers.Add(k, cached[A]{a, until}, max(entryBytes, size+entryBytes/8))
}
