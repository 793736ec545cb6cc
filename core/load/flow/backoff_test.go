package flow

import (
	"testing"
	"time"
)

// The clock of the machine may be set back: then clients would be told the same for so long.
func TestRetryAfterDoesNotFollowAClockThatIsSetBack(t *testing.T) {
	var b backoff
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	for range 10 {
		b.refused(at(0))
	}
	if got := b.refused(at(1)); got != 2 {
		t.Fatalf("Retry-After %d, want 2", got)
	}
	// Without its monotonic reading, a time is what the clock shows: an hour earlier.
	for s := range 40 {
		b.refused(at(2 + s).Round(0).Add(-time.Hour))
	}
	if got := b.current(); got != 1 {
		t.Errorf("Retry-After is still %d after 40 seconds with few refusals", got)
	}
}
