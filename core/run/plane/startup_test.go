package plane

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// No request is answered before a start is done, so a long one logs what it is doing.
func TestALongStartLogsItsStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		s := newStartup(slog.New(slog.NewTextHandler(&said, nil)), nil)
		s.begin("reading the log")
		time.Sleep(26 * time.Second)
		s.begin("opening the history")
		time.Sleep(10 * time.Second)
		s.done()
		time.Sleep(time.Minute)
		s.done()
		for what, want := range map[string]int{`doing="reading the log" for=25s`: 1, `doing="reading the log"`: 3, `doing="opening the history" for=35s`: 1, "still starting": 4} {
			if n := strings.Count(said.String(), what); n != want {
				t.Errorf("%q was said %d times, not %d:\n%s", what, n, want, &said)
			}
		}
	})
}

// Each request that comes too early is told the step.
func TestRequestsDoNotWaitForTheServiceManager(t *testing.T) {
	told := make(chan string)
	s := newStartup(slog.New(slog.DiscardHandler), func(doing string) { told <- doing })
	ended := make(chan struct{})
	go func() { defer close(ended); s.begin("reading the log") }()
	for s.String() != "reading the log" && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if got := <-told; got != "reading the log" {
		t.Errorf("%q is told", got)
	}
	<-ended
	s.done()
}
