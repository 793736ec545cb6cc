package host

import "time"

const (
	repeatAfter = time.Minute // when the same text may be logged again
	repeatsMax  = 16          // texts that are remembered: each error may have another text
)

// repeats suppresses repeated log messages: the same text is logged once a minute. The zero value is ready for use. It is
// not safe for concurrent use.
type repeats struct{ logged map[string]*repeated }

type repeated struct {
	at         time.Time // when it was last logged
	suppressed int       // how often it was suppressed since
}

// allow reports whether a text may be logged now, and how often it was suppressed before.
func (r *repeats) allow(text string, now time.Time) (suppressed int, ok bool) {
	last := r.logged[text]
	if last != nil && now.Sub(last.at) < repeatAfter {
		last.suppressed++
		return 0, false
	}
	if last != nil {
		suppressed = last.suppressed
	}
	if r.logged == nil || len(r.logged) >= repeatsMax && last == nil {
		r.logged = map[string]*repeated{}
	}
	r.logged[text] = &repeated{at: now}
	return suppressed, true
}
