package cputime_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"stele.dev/stele/limits/cputime"
)

// recorder is a test that notes whether it has failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestWorkCountsAndWaitingDoesNot(t *testing.T) {
	const limit = 50 * time.Millisecond
	waits, works := &recorder{TB: t}, &recorder{TB: t}
	cputime.Within(waits, limit, func() { time.Sleep(2 * limit) })
	if waits.failed {
		t.Error("a test that waits fails")
	}
	cputime.Within(works, limit, func() {
		block := make([]byte, 1<<20)
		for range 1000 { // a gigabyte, for which no processor needs less than the limit
			sha256.Sum256(block)
		}
	})
	if !works.failed {
		t.Error("a test that works does not fail")
	}
}
