package turns_test

import (
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/eventlog/turns"
)

// However many writers have ended in the line, an append takes out no more than a transaction of etcd may (128 operations),
// and the next ones take out the rest.
func TestOneAppendTakesOutSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line []turns.Waiter
		for i := range 200 {
			line = append(line, turns.Waiter{Writer: turns.ID{1, byte(i)}, Place: uint64(i + 1)})
		}
		w := turns.New(turns.ID{2}, func() {})
		for appends := 0; len(line) > 0; appends++ {
			for wait := w.Wait(line); wait > 0; wait = w.Wait(line) {
				time.Sleep(wait)
			}
			a := w.Begin()
			if len(a.Skipped) == 0 || len(a.Skipped) > turns.MaxSkipped || appends > 4 {
				t.Fatalf("append %d takes out %d of %d", appends, len(a.Skipped), len(line))
			}
			out := map[turns.ID]bool{}
			for _, id := range a.Skipped {
				out[id] = true
			}
			rest := line[:0:0]
			for _, x := range line {
				if !out[x.Writer] {
					rest = append(rest, x)
				}
			}
			line = rest
			w.End(a, true)
		}
		time.Sleep(time.Minute)
	})
}
