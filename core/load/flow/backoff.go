package flow

import (
	"sync"
	"time"
)

// maxRetryAfter is the greatest Retry-After, in seconds.
const maxRetryAfter = 32

// backoff computes the Retry-After of the refusals of a level, as kube-apiserver does: it doubles while many requests are
// refused, and falls by a second when few are. It is evaluated in the first refusal of each second.
type backoff struct {
	mu      sync.Mutex
	after   int64         // seconds; 0 before the first refusal
	raised  int64         // the second in which it was doubled last
	history []secondCount // the newest last
}

// secondCount is how many requests were refused in a second.
type secondCount struct{ unix, refused int64 }

// current returns the Retry-After in seconds.
func (b *backoff) current() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(b.after, 1)
}

// refused counts a refusal and returns the Retry-After in seconds.
func (b *backoff) refused(at time.Time) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.after = max(b.after, 1)
	now := at.Unix()
	n := len(b.history)
	if n > 0 && b.history[n-1].unix > now+1 { // the clock was set back; without that, a second of difference is of concurrent requests
		b.history, b.raised, n = nil, now, 0
	}
	if n > 0 && b.history[n-1].unix >= now {
		b.history[n-1].refused++
		return b.after
	}
	b.evaluate(now)
	b.history = append(b.history, secondCount{now, 1})
	return b.after
}

// evaluate changes the Retry-After by the refusals of the last Retry-After seconds.
func (b *backoff) evaluate(now int64) {
	for len(b.history) > 0 && now-b.history[0].unix > maxRetryAfter {
		b.history = b.history[1:]
	}
	count := int64(0)
	for _, s := range b.history {
		if now-s.unix <= b.after {
			count += s.refused
		}
	}
	switch {
	case now-b.raised >= b.after && count >= 3*b.after:
		b.after, b.raised = min(2*b.after, maxRetryAfter), now
	case count < b.after && b.after > 1:
		b.after--
	}
}
