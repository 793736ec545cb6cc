//go:build !race

// The race detector uses memory itself, and takes minutes for this many events.

package history_test

import (
	"runtime"
	"testing"

	"stele.dev/stele/projections/history"
)

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// allowed is the maximum memory of the index, whatever the number of events: it is bounded by the memory of
// Pebble and by the scopes that stay in memory.
const allowed = 24 << 20

func TestMemoryDoesNotGrowWithTheLog(t *testing.T) {
	f := &factory{events: 250_000, objects: 250_000, payload: 10}
	before := heap()
	s := run(t, t.TempDir(), f, f.head(0))
	s.reach(t, f.events)
	grown := int64(heap() - before)
	t.Logf("%d bytes of memory after %d events", grown, f.events)
	if grown > allowed {
		t.Errorf("%d bytes of memory, at most %d are allowed", grown, allowed)
	}
	if c, err := s.At(t.Context(), f.events); err != nil || c == nil { // it is in use until here
		t.Error(c, err)
	}
}

// Data that was read must not stay in memory.
func TestMemoryOfReading(t *testing.T) {
	f := &factory{events: 20_000, objects: 20_000, payload: 2000}
	s := run(t, t.TempDir(), f, f.head(0))
	s.reach(t, f.events)
	before := heap()
	n := 0
	for _, err := range s.After(t.Context(), history.Filter{}, 0, f.events) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if grown := int64(heap()) - int64(before); n != 20_000 || grown > 10<<20 {
		t.Errorf("%d changes were read, and %d bytes stay in memory", n, grown)
	}
}

// Reading ahead is limited by memory, not by the size in the file.
func TestMemoryOfReadingAhead(t *testing.T) {
	f := &factory{events: 300, objects: 1, payload: 1 << 20, batch: 1}
	s := run(t, t.TempDir(), f, f.head(0))
	s.reach(t, f.events)
	before := heap()
	n := 0
	for _, err := range s.After(t.Context(), history.Filter{}, 0, f.events) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 130 { // the first of the next many
			if grown := int64(heap()) - int64(before); grown > 48<<20 {
				t.Errorf("for the next change %d bytes were read", grown)
			}
		}
	}
	if n != 300 {
		t.Errorf("%d changes were read", n)
	}
}
