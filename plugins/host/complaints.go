package host

import "time"

const (
	complainEvery = time.Minute // about the same
	complaintsMax = 16          // that are remembered: what an error says may never be the same
)

// complaints say what is worth a line: what has not been said for a minute. The zero value has said nothing. One
// goroutine uses it.
type complaints struct{ said map[string]*complaint }

type complaint struct {
	at    time.Time
	since int // how often it would have been said, and was not
}

// worth tells whether something is to be said now, and how often it was not since it was last.
func (c *complaints) worth(text string, now time.Time) (before int, ok bool) {
	last := c.said[text]
	if last != nil && now.Sub(last.at) < complainEvery {
		last.since++
		return 0, false
	}
	if last != nil {
		before = last.since
	}
	if c.said == nil || len(c.said) >= complaintsMax && last == nil {
		c.said = map[string]*complaint{}
	}
	c.said[text] = &complaint{at: now}
	return before, true
}
