package eventlog_test

import (
	"testing"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
)

// wall is a clock that tests can set, together with a clock of elapsed time.
type wall struct {
	elapsed time.Duration
	set     time.Duration
}

var newYear = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *wall) open(t *testing.T, store *memlog.Store) (*eventlog.Log, eventlog.Head) {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{
		Clock:   func() time.Time { return newYear.Add(w.elapsed + w.set) },
		Elapsed: func() time.Duration { return w.elapsed },
	})
	if err != nil {
		t.Fatal(err)
	}
	tip, _ := tipOf(t, log)
	return log, tip
}

func write(t *testing.T, log *eventlog.Log, after eventlog.Head) *eventlog.Batch {
	t.Helper()
	won, _, err := log.Append(t.Context(), after, draft(t, "x"))
	if err != nil || won == nil {
		t.Fatal(won, err)
	}
	return won
}

func TestAClockThatJumpsAheadIsNotBelievedAtOnce(t *testing.T) {
	var store memlog.Store
	w := &wall{}
	log, tip := w.open(t, &store)
	w.elapsed, w.set = time.Minute, 365*24*time.Hour
	b := write(t, log, tip)
	if want := newYear.Add(time.Minute); !b.Time.Equal(want) {
		t.Errorf("a minute after the jump log time is %v, want %v", b.Time, want)
	}
	if want := newYear.Add(time.Minute + w.set); !b.Clock.Equal(want) {
		t.Errorf("the clock is recorded as %v, want %v", b.Clock, want)
	}
	if got := log.Jumped(); got != w.set {
		t.Errorf("the jump is of %v, want %v", got, w.set)
	}
	w.elapsed, w.set = 2*time.Minute, 0
	if b = write(t, log, b.Head()); !b.Time.Equal(newYear.Add(2*time.Minute)) || log.Jumped() != 0 {
		t.Errorf("once the clock is right again log time is %v, the jump of %v", b.Time, log.Jumped())
	}
}

func TestAClockThatStaysAheadIsBelieved(t *testing.T) {
	var store memlog.Store
	w := &wall{}
	log, tip := w.open(t, &store)
	w.set = 8 * time.Hour // a machine that was suspended
	log.Now()
	w.elapsed = 11 * time.Minute
	if b, want := write(t, log, tip), newYear.Add(w.set+w.elapsed); !b.Time.Equal(want) {
		t.Errorf("log time is %v, want %v", b.Time, want)
	}
}

func TestLogTimeIsSetBack(t *testing.T) {
	var store memlog.Store
	w := &wall{}
	log, tip := w.open(t, &store)
	before := write(t, log, tip)
	w.set = 365 * 24 * time.Hour
	log, tip = w.open(t, &store) // a start with the clock a year ahead
	ahead := write(t, log, tip)
	w.set, w.elapsed = 0, time.Hour
	if got := log.Ahead(); got != 365*24*time.Hour-time.Hour {
		t.Fatalf("log time is ahead by %v", got)
	}
	set, newer, err := log.SetClock(t.Context(), ahead.Head())
	if err != nil || set == nil || newer != nil {
		t.Fatal(set, newer, err)
	}
	after := write(t, log, set.Head())
	if want := newYear.Add(time.Hour); !after.Time.Equal(want) || log.Ahead() != 0 {
		t.Errorf("afterwards log time is %v and ahead by %v, want %v", after.Time, log.Ahead(), want)
	}

	// In a fold of the log, no revision has an earlier time than the one before.
	var sets eventlog.ClockSets
	_, batches := tipOf(t, log)
	for _, b := range batches {
		sets = sets.After(b)
	}
	for b, want := range map[*eventlog.Batch]time.Time{before: newYear, ahead: set.Time, set: set.Time, after: after.Time} {
		if got := sets.Time(b.First, b.Time); !got.Equal(want) {
			t.Errorf("revision %d is of %v, want %v", b.First, got, want)
		}
	}
	last, err := eventlog.LastBefore(t.Context(), log, sets, 1, after.Last(), set.Time)
	if err != nil || last != before.Last() {
		t.Errorf("the last revision before %v is %d, %v, want %d", set.Time, last, err, before.Last())
	}

	// A process that starts later continues from there, too.
	log, tip = w.open(t, &store)
	if b := write(t, log, tip); !b.Time.Equal(newYear.Add(time.Hour)) {
		t.Errorf("another process writes at %v", b.Time)
	}
}

func TestLogTimeIsSetBackAtTheTipOnly(t *testing.T) {
	var store memlog.Store
	w := &wall{set: time.Hour}
	log, tip := w.open(t, &store)
	other, _ := w.open(t, &store)
	write(t, other, tip)
	w.set = 0
	if set, newer, err := log.SetClock(t.Context(), tip); set != nil || len(newer) != 1 || err != nil {
		t.Errorf("behind the tip: %v, %v, %v", set, newer, err)
	}
}
