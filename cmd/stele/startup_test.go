package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Nobody is answered before a start is over, so a long one says itself what it is doing.
func TestALongStartSaysWhatItDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		s := newStartup(slog.New(slog.NewTextHandler(&said, nil)))
		s.does("reading the log")
		time.Sleep(25 * time.Second)
		s.does("opening the history")
		time.Sleep(10 * time.Second)
		s.over()
		time.Sleep(time.Minute)
		s.over()
		for what, want := range map[string]int{`doing="reading the log" for=20s`: 1, `doing="reading the log"`: 2, `doing="opening the history" for=30s`: 1, "still starting": 3} {
			if n := strings.Count(said.String(), what); n != want {
				t.Errorf("%q was said %d times, not %d:\n%s", what, n, want, &said)
			}
		}
	})
}
