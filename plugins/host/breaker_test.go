package host

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/limits/breaker"
)

func tell(c *circuit, results string) {
	for _, r := range results {
		c.done(false, map[rune]breaker.Outcome{'+': breaker.Succeeded, '-': breaker.Failed, '0': breaker.Unknown}[r])
	}
}

func allowed(c *circuit) bool {
	_, ok := c.allow()
	return ok
}

func newTestCircuit() *circuit { return newCircuit(func(breaker.State) {}) }

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
		if is := b.state(); is != want {
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
			b.done(true, breaker.Failed)
		}
		time.Sleep(30 * time.Second)
		if !allowed(b) {
			t.Fatal("not asked")
		}
		b.done(true, breaker.Unknown)
		if !allowed(b) {
			t.Fatal("a question that was given up is no try")
		}
		b.done(true, breaker.Succeeded)
		if b.state() != breaker.Closed {
			t.Fatal("not closed")
		}
		tell(b, strings.Repeat("+", 32)+"-----")
		time.Sleep(time.Second)
		if !allowed(b) {
			t.Fatal("the pause is as long as before, though it was well")
		}
		b.done(true, breaker.Failed)
		b.retry()
		if !allowed(b) {
			t.Fatal("a plugin that was started anew is not asked")
		}
	})
}

func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		handler := slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
		l := &lines{log: slog.New(handler), stream: "stderr", limit: &limiter{}}
		write := func(text string) string {
			log.Reset()
			_, _ = l.Write([]byte(text))
			return log.String()
		}
		equal := func(got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%.200q, want %.200q", got, want)
			}
		}
		equal(write("one\ntw"), "level=INFO msg=one stream=stderr\n")
		equal(write("o\n\n \n"), "level=INFO msg=two stream=stderr\n")
		equal(write("\xff\n"), "level=INFO msg=\"\uFFFD\" stream=stderr\n")
		write(strings.Repeat("x", 10<<20))
		equal(write("\n"), "level=INFO msg="+strings.Repeat("x", lineBytes)+" stream=stderr cut=true\n")
		if len(l.partial) > lineBytes {
			t.Errorf("%d bytes are kept", len(l.partial))
		}
		time.Sleep(time.Second)
		for i := range 1000 {
			write(fmt.Sprint(i, "\n"))
		}
		time.Sleep(time.Second)
		equal(write("again\n"), "level=INFO msg=again stream=stderr dropped=950\n")
		equal(write("panic: oh\n\ngoroutine 1\n"), "level=ERROR msg=\"panic: oh\" stream=stderr\nlevel=ERROR msg=\"goroutine 1\" stream=stderr\n")
		equal(l.lastLine(), "panic: oh")
	})
}
