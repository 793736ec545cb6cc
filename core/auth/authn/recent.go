// This file remembers hashes that were used within the last hour, in a table of fixed size, without locks and without
// allocations. It may forget one early: if there are many, or in a race.

package authn

import (
	"sync/atomic"
	"time"
)

const (
	// sets and ways are the size of a Table.
	sets, ways = 4 << 10, 4
	// minutes is how long a hash is recent.
	minutes = 60
)

// RecentHashes has the hashes that were used last, up to an hour ago. Its zero value is empty. Each entry is a hash, without its last
// 16 bits, and the minute of its use. It is safe for concurrent use.
type RecentHashes [sets][ways]atomic.Uint64

const minuteBits = 1<<16 - 1

func minuteOf(now time.Time) uint64 { return uint64(now.Unix()/60) & minuteBits }

// Has reports whether a hash is recent.
func (t *RecentHashes) Has(hash uint64, now time.Time) bool {
	minute := minuteOf(now)
	for i := range t[hash%sets] {
		e := t[hash%sets][i].Load()
		if e != 0 && e&^minuteBits == hash&^minuteBits && (minute-e)&minuteBits <= minutes {
			return true
		}
	}
	return false
}

// Add notes the use of a hash.
func (t *RecentHashes) Add(hash uint64, now time.Time) {
	minute := minuteOf(now)
	set := &t[hash%sets]
	oldest, age := 0, uint64(0)
	for i := range set {
		e := set[i].Load()
		if e&^minuteBits == hash&^minuteBits {
			if e&minuteBits != minute {
				set[i].Store(hash&^minuteBits | minute)
			}
			return
		}
		since := (minute - e) & minuteBits
		if e == 0 {
			since = minuteBits
		}
		if since > age {
			oldest, age = i, since
		}
	}
	set[oldest].Store(hash&^minuteBits | minute)
}

// Remove forgets a hash.
func (t *RecentHashes) Remove(hash uint64) {
	set := &t[hash%sets]
	for i := range set {
		if e := set[i].Load(); e != 0 && e&^minuteBits == hash&^minuteBits {
			set[i].Store(0)
		}
	}
}
