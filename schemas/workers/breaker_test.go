package workers

import (
	"strconv"
	"testing"
	"time"

	"stele.dev/stele/limits/breaker"
)

// story runs a script against refusals, one second per character: '-' is no attempt, 'x' fails if
// admitted, '.' succeeds. It returns the script with 'r' for each refused attempt.
func story(b *refusals, start time.Time, script string) (admitted string) {
	for i, c := range script {
		now := start.Add(time.Duration(i) * time.Second)
		if c == '-' {
			admitted += "-"
			continue
		}
		_, trial, ok := b.admit("it", now)
		if !ok {
			admitted += "r"
			continue
		}
		admitted += string(c)
		o := breaker.Succeeded
		if c == 'x' {
			o = breaker.Failed
		}
		b.report("it", trial, o, now)
	}
	return admitted
}

func TestTheBreakerOpensAndCloses(t *testing.T) {
	for _, test := range []struct {
		name, happens, admitted string
	}{
		{"what succeeds is admitted", "......", "......"},
		{"a failure or two", "x.x...", "x.x..."},
		{"success in between does not count", "x.x.x-.", "x.x.x-."},
		{"it is refused for a second", "xxx.", "xxx."},
		{"each trial that fails doubles the wait", "xxxxxxxxxxxxxxxxxxx", "xxxxrxrrrxrrrrrrrxr"},
		{"a trial that succeeds ends it", "xxxxr.......", "xxxxr......."},
		{"what failed long ago does not count", "xx" + dashes(61) + "x..", "xx" + dashes(61) + "x.."},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := story(newRefusals(3), time.Now(), test.happens); got != test.admitted {
				t.Errorf("admitted is %s, want %s", got, test.admitted)
			}
		})
	}
}

func dashes(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = '-'
	}
	return string(b)
}

func TestTheBreakerWaitsAMinuteAtMost(t *testing.T) {
	b, now := newRefusals(1), time.Now()
	for range 100 {
		wait, trial, ok := b.admit("it", now)
		if wait > time.Minute {
			t.Fatalf("it is refused for %v", wait)
		}
		if now = now.Add(wait); ok {
			b.report("it", trial, breaker.Failed, now)
		}
	}
}

func TestTheBreakerTriesOnce(t *testing.T) {
	b, now := newRefusals(1), time.Now()
	b.report("it", false, breaker.Failed, now)
	now = now.Add(time.Second)
	if _, trial, ok := b.admit("it", now); !ok || !trial {
		t.Fatal("it is not tried")
	}
	if _, _, ok := b.admit("it", now); ok {
		t.Error("it is tried twice at once")
	}
	b.report("it", true, breaker.Unknown, now)
	if _, trial, ok := b.admit("it", now); !ok || !trial {
		t.Error("a trial that came to nothing is not made up for")
	}
}

func TestTheBreakerForgets(t *testing.T) {
	b, now := newRefusals(1), time.Now()
	for i := range 1000 {
		now = now.Add(time.Second)
		b.report(strconv.Itoa(i), false, breaker.Failed, now)
	}
	if n := len(b.failed); n > 200 {
		t.Errorf("it remembers %d failures", n)
	}
}
