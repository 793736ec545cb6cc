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

// allowed is the maximum memory per event.
const allowed = 48

func TestMemoryOfAnEvent(t *testing.T) {
	for _, c := range []struct {
		name    string
		events  uint64
		payload int
	}{
		{"new objects, the table just grown", 420_000, 10},
		{"new objects", 300_000, 10},
		{"one in a block, the table just grown", 53_000, 17_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &factory{events: c.events, objects: c.events, payload: c.payload}
			before := heap()
			s := run(t, t.TempDir(), f, f.head(0))
			s.reach(t, f.events)
			each := float64(heap()-before) / float64(f.events)
			t.Logf("%.1f bytes of memory for each event", each)
			if each > allowed {
				t.Errorf("%.1f bytes of memory for each event, at most %d are allowed", each, allowed)
			}
			if c, err := s.At(t.Context(), f.events); err != nil || c == nil { // it is in use until here
				t.Error(c, err)
			}
		})
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
	f := &factory{events: 300, objects: 1, payload: 1 << 20}
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
