package breaker_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/limits/breaker"
)

func tell(c *breaker.Circuit, results string) {
	for _, r := range results {
		c.Done(false, map[rune]breaker.Outcome{'+': breaker.Succeeded, '-': breaker.Failed, '0': breaker.Unknown}[r])
	}
}

func allowed(c *breaker.Circuit) bool {
	_, ok := c.Allow()
	return ok
}

func newTestCircuit() *breaker.Circuit { return breaker.NewCircuit(func(breaker.State) {}) }

func TestWhenTheCircuitOpens(t *testing.T) {
	for results, want := range map[string]breaker.State{
		"":                             breaker.Closed,
		"----":                         breaker.Closed,
		"-----":                        breaker.Open,
		"----+----+----":               breaker.Closed,
		"00000000":                     breaker.Closed,
		"----0-":                       breaker.Open, // who gives up says nothing
		strings.Repeat("-+", 15):       breaker.Closed,
		strings.Repeat("-+", 16):       breaker.Open,
		strings.Repeat("-+++", 100):    breaker.Closed,
		strings.Repeat("+", 100) + "-": breaker.Closed,
	} {
		b := newTestCircuit()
		tell(b, results)
		if is := b.State(); is != want {
			t.Errorf("%q: %d, want %d", results, is, want)
		}
		if allowed(b) != (want == breaker.Closed) {
			t.Errorf("%q: allowed %v", results, want != breaker.Closed)
		}
	}
}

func TestTheCircuitTriesOneQuestionAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestCircuit()
		tell(b, "-----")
		for _, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			time.Sleep(pause*time.Second - time.Nanosecond)
			if allowed(b) {
				t.Fatalf("asked before %d s", pause)
			}
			time.Sleep(time.Nanosecond)
			if !allowed(b) || allowed(b) {
				t.Fatalf("not one question after %d s", pause)
			}
			b.Done(true, breaker.Failed)
		}
		time.Sleep(30 * time.Second)
		if !allowed(b) {
			t.Fatal("not asked")
		}
		b.Done(true, breaker.Unknown)
		if !allowed(b) {
			t.Fatal("a question that was given up is no try")
		}
		b.Done(true, breaker.Succeeded)
		if b.State() != breaker.Closed {
			t.Fatal("not closed")
		}
		tell(b, strings.Repeat("+", 32)+"-----")
		time.Sleep(time.Second)
		if !allowed(b) {
			t.Fatal("the pause is as long as before, though it was well")
		}
		b.Done(true, breaker.Failed)
		b.Retry()
		if !allowed(b) {
			t.Fatal("a plugin that was started anew is not asked")
		}
	})
}
