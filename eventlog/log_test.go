package eventlog_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logtest"
	"stele.dev/stele/eventlog/memlog"
)

func open(t testing.TB, b eventlog.Backend) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(t.Context(), b, eventlog.Options{Software: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// tipOf reads the whole log and returns its tip.
func tipOf(t testing.TB, log *eventlog.Log) (eventlog.Head, []*eventlog.Batch) {
	t.Helper()
	var all []*eventlog.Batch
	at := log.Start()
	for {
		more, err := log.CatchUp(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if len(more) == 0 {
			return at, all
		}
		all = append(all, more...)
		at = more[len(more)-1].Head()
	}
}

func draft(t testing.TB, names ...string) *eventlog.Draft {
	var entries []*eventlog.Entry
	for _, name := range names {
		entries = append(entries, logtest.Entry(t, name))
	}
	return eventlog.NewDraft(entries)
}

func names(batches []*eventlog.Batch) (names []string) {
	for _, b := range batches {
		for _, e := range b.Events {
			if e.Meta.GetObject() != nil {
				names = append(names, fmt.Sprintf("%d %s", e.Revision, e.Meta.GetObject().GetName()))
			}
		}
	}
	return names
}

// Appends fail in every way in which a network can fail. Each must be in the log exactly once afterwards.
func TestAppendIsSettledByAppendingAgain(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault memlog.Fault
	}{
		{"the request is lost", memlog.Fault{LoseRequest: true}},
		{"the answer is lost", memlog.Fault{LoseAnswer: true}},
		{"the request arrives after the next try", memlog.Fault{Linger: true, Request: 50 * time.Millisecond}},
		{"the answer is lost, slowly", memlog.Fault{LoseAnswer: true, Request: time.Second, Answer: time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var store memlog.Store
				open(t, store.Open(nil))
				left := 0
				log := open(t, store.Open(func(op memlog.Op) memlog.Fault {
					if op == memlog.Append && left > 0 {
						left--
						return tc.fault
					}
					return memlog.Fault{}
				}))
				tip, _ := tipOf(t, log)
				for i := range 5 {
					left = 2 // each append fails twice
					won, newer, err := log.Append(t.Context(), tip, draft(t, fmt.Sprint("a", i), fmt.Sprint("b", i)))
					if won == nil || len(newer) > 0 || err != nil {
						t.Fatalf("Append = %v, %v, %v", won, newer, err)
					}
					if left != 0 {
						t.Fatalf("%d faults did not happen", left)
					}
					tip = won.Head()
				}
				time.Sleep(time.Minute) // whatever lingers has arrived
				_, batches := tipOf(t, open(t, store.Open(nil)))
				want := []string{"2 a0", "3 b0", "4 a1", "5 b1", "6 a2", "7 b2", "8 a3", "9 b3", "10 a4", "11 b4"}
				if got := names(batches); !slices.Equal(got, want) {
					t.Errorf("log has %v, want %v", got, want)
				}
			})
		})
	}
}

// Another writer's batch follows a lost request: the append must report the conflict, even if its first
// attempt arrives late.
func TestAppendThatLostAfterAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		other := open(t, store.Open(nil))
		tip, _ := tipOf(t, other)
		var once atomic.Bool
		log := open(t, store.Open(func(op memlog.Op) memlog.Fault {
			if op != memlog.Append || once.Swap(true) {
				return memlog.Fault{}
			}
			if _, _, err := other.Append(t.Context(), tip, draft(t, "other")); err != nil {
				t.Error(err)
			}
			return memlog.Fault{Linger: true, Request: time.Second}
		}))
		won, newer, err := log.Append(t.Context(), tip, draft(t, "mine"))
		if won != nil || err != nil || !slices.Equal(names(newer), []string{"2 other"}) {
			t.Fatalf("Append = %v, %v, %v", won, names(newer), err)
		}
		time.Sleep(time.Minute)
		if _, batches := tipOf(t, log); !slices.Equal(names(batches), []string{"2 other"}) {
			t.Errorf("log has %v", names(batches))
		}
	})
}

func TestAppendReportsWhatItDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		tip, _ := tipOf(t, open(t, store.Open(nil)))
		log := open(t, store.Open(func(op memlog.Op) memlog.Fault {
			return memlog.Fault{LoseAnswer: op == memlog.Append}
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := log.Append(ctx, tip, draft(t, "x"))
		if !errors.Is(err, eventlog.ErrUnknownOutcome) || eventlog.Refused(err) {
			t.Errorf("Append = %v, want ErrUnknownOutcome", err)
		}
	})
}

func TestAppendReportsRefusals(t *testing.T) {
	for _, refusal := range []error{eventlog.ErrFull, eventlog.ErrUnavailable, eventlog.ErrTooLarge} {
		var store memlog.Store
		tip, _ := tipOf(t, open(t, store.Open(nil)))
		log := open(t, store.Open(func(op memlog.Op) (f memlog.Fault) {
			if op == memlog.Append {
				f.Refuse = refusal
			}
			return f
		}))
		if _, _, err := log.Append(t.Context(), tip, draft(t, "x")); !errors.Is(err, refusal) || !eventlog.Refused(err) {
			t.Errorf("Append = %v, want %v", err, refusal)
		}
	}
	var store memlog.Store
	store.MaxValue = 1000
	log := open(t, store.Open(nil))
	tip, _ := tipOf(t, log)
	noise := make([]byte, 4096)
	rand.NewChaCha8([32]byte{}).Read(noise)
	if _, _, err := log.Append(t.Context(), tip, draft(t, hex.EncodeToString(noise))); !errors.Is(err, eventlog.ErrTooLarge) {
		t.Errorf("Append of a large event = %v", err)
	}
	// It is small when compressed, but every reader would refuse it.
	if _, _, err := open(t, new(memlog.Store).Open(nil)).Append(t.Context(), eventlog.Head{}, draft(t, strings.Repeat("x", 65<<20))); !errors.Is(err, eventlog.ErrTooLarge) {
		t.Errorf("Append of an event larger than readers take = %v", err)
	}
	if won, _, err := log.Append(t.Context(), tip, draft(t, "small")); won == nil || err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestLogTimeNeverGoesBack(t *testing.T) {
	var store memlog.Store
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	log, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	tip, _ := tipOf(t, log)
	for i, step := range []time.Duration{time.Second, -time.Hour, time.Second, 2 * time.Hour, -24 * time.Hour} {
		now = now.Add(step)
		if i == 3 { // another process, which has only read
			if log, err = eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{Clock: clock}); err != nil {
				t.Fatal(err)
			}
			tipOf(t, log)
		}
		won, _, err := log.Append(t.Context(), tip, draft(t, "x"))
		if err != nil {
			t.Fatal(err)
		}
		tip = won.Head()
	}
	_, batches := tipOf(t, log)
	for i, b := range batches[1:] {
		if b.Time.Before(batches[i].Time) {
			t.Errorf("batch at %d has time %v, the one before %v", b.First, b.Time, batches[i].Time)
		}
	}
	if last := batches[len(batches)-1]; !last.Clock.Equal(now) {
		t.Errorf("raw clock %v, want %v", last.Clock, now)
	}
}

func TestAnotherHistoryStopsTheReader(t *testing.T) {
	for _, tc := range []struct {
		name   string
		tamper func(head []byte, b []eventlog.Stored) ([]byte, []eventlog.Stored)
	}{
		{"emptied", func([]byte, []eventlog.Stored) ([]byte, []eventlog.Stored) { return nil, nil }},
		{"rolled back", func(_ []byte, b []eventlog.Stored) ([]byte, []eventlog.Stored) {
			batch, err := eventlog.DecodeBatch(b[2].First, b[2].Value)
			if err != nil {
				panic(err)
			}
			return batch.Head().Encode(), b[:3]
		}},
		{"replaced", func([]byte, []eventlog.Stored) ([]byte, []eventlog.Stored) {
			var other memlog.Store
			log, _ := eventlog.Open(context.Background(), other.Open(nil), eventlog.Options{})
			first, _ := log.CatchUp(context.Background(), log.Start())
			return first[0].Head().Encode(), other.Batches()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var store memlog.Store
			log := open(t, store.Open(nil))
			tip, _ := tipOf(t, log)
			for range 5 {
				won, _, err := log.Append(t.Context(), tip, draft(t, "x"))
				if err != nil {
					t.Fatal(err)
				}
				tip = won.Head()
			}
			store.Tamper(tc.tamper)
			if _, err := log.CatchUp(t.Context(), tip); !errors.Is(err, eventlog.ErrDiverged) || !eventlog.IsFatal(err) {
				t.Errorf("CatchUp = %v, want ErrDiverged", err)
			}
			if _, _, err := log.Append(t.Context(), tip, draft(t, "y")); !errors.Is(err, eventlog.ErrDiverged) {
				t.Errorf("Append = %v, want ErrDiverged", err)
			}
		})
	}
}

// If any bit of any batch is flipped, a reader of the whole log must notice, unless the flip does not
// change what is read: compression is outside the hashes, and has unused bits.
func TestNoFlippedBitChangesWhatIsRead(t *testing.T) {
	var store memlog.Store
	log := open(t, store.Open(nil))
	tip, _ := tipOf(t, log)
	for i := range 3 {
		won, _, err := log.Append(t.Context(), tip, draft(t, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		tip = won.Head()
	}
	_, intact := tipOf(t, log)
	whole := store.Batches()
	for i := range whole {
		for bit := range 8 * len(whole[i].Value) {
			var damaged memlog.Store
			damaged.Tamper(func([]byte, []eventlog.Stored) ([]byte, []eventlog.Stored) {
				b := slices.Clone(whole)
				b[i].Value = slices.Clone(b[i].Value)
				b[i].Value[bit/8] ^= 1 << (bit % 8)
				return tip.Encode(), b
			})
			if read, err := readAll(damaged.Open(nil)); err == nil && !cmp.Equal(read, intact, batchOptions) {
				t.Errorf("batch at %d, bit %d: not noticed\n%s", whole[i].First, bit, cmp.Diff(intact, read, batchOptions))
			}
		}
	}
}

var batchOptions = cmp.Options{protocmp.Transform(), cmpopts.IgnoreUnexported(eventlog.Batch{})}

func readAll(b eventlog.Backend) (batches []*eventlog.Batch, err error) {
	ctx := context.Background()
	log, err := eventlog.Open(ctx, b, eventlog.Options{})
	if err != nil {
		return nil, err
	}
	for at := log.Start(); ; at = batches[len(batches)-1].Head() {
		more, err := log.CatchUp(ctx, at)
		if err != nil || len(more) == 0 {
			return batches, err
		}
		batches = append(batches, more...)
	}
}

func TestMissingBatchIsNoticed(t *testing.T) {
	var store memlog.Store
	log := open(t, store.Open(nil))
	tip, _ := tipOf(t, log)
	for range 4 {
		won, _, err := log.Append(t.Context(), tip, draft(t, "x"))
		if err != nil {
			t.Fatal(err)
		}
		tip = won.Head()
	}
	whole := store.Batches()
	for i := range whole {
		var damaged memlog.Store
		damaged.Tamper(func([]byte, []eventlog.Stored) ([]byte, []eventlog.Stored) {
			return tip.Encode(), slices.Delete(slices.Clone(whole), i, i+1)
		})
		if _, err := readAll(damaged.Open(nil)); err == nil {
			t.Errorf("without the batch at %d: not noticed", whole[i].First)
		}
	}
}

func TestBackReadsTheNewestFirst(t *testing.T) {
	var store memlog.Store
	log := open(t, store.Open(nil))
	tip, _ := tipOf(t, log)
	for i := range 4 {
		won, _, err := log.Append(t.Context(), tip, draft(t, fmt.Sprint("a", i), fmt.Sprint("b", i)))
		if err != nil {
			t.Fatal(err)
		}
		tip = won.Head()
	}
	batches, err := log.Back(t.Context(), 5, 2) // revision 5 is the second of its batch
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(batches), []string{"4 a1", "5 b1", "2 a0", "3 b0"}; !slices.Equal(got, want) {
		t.Errorf("Back = %v, want %v", got, want)
	}
}

// An epoch that would issue a revision twice, or declare impossible revisions lost, must be refused before
// it is proposed.
func TestEpochsThatMakeNoSense(t *testing.T) {
	var store memlog.Store
	log := open(t, store.Open(nil))
	tip, _ := tipOf(t, log)
	won, _, err := log.Append(t.Context(), tip, draft(t, "a", "b", "c"))
	if err != nil {
		t.Fatal(err)
	}
	tip = won.Head() // revision 4
	other := tip
	other.Log[0]++
	for name, tc := range map[string]struct {
		after          eventlog.Head
		lostFrom, next uint64
	}{
		"it starts at the tip":                 {tip, 4, 4},
		"it starts before the tip":             {tip, 2, 3},
		"the tip itself is lost":               {tip, 4, 9},
		"what is lost begins behind the epoch": {tip, 10, 9},
		"nothing is said of what is lost":      {tip, 0, 9},
		"another log":                          {other, 5, 9},
		"there is no log yet":                  {log.Start(), 1, 9},
	} {
		if started, newer, err := log.StartEpoch(t.Context(), tc.after, tc.lostFrom, tc.next); err == nil || started != nil || newer != nil {
			t.Errorf("%s: %v, %v, %v", name, started, newer, err)
		}
	}
	if n := len(store.Batches()); n != 2 {
		t.Errorf("the log has %d batches, want 2", n)
	}
}

// An epoch must start exactly once, however often its request or the answer is lost. A writer at the old
// tip must get it.
func TestEpochIsSettledByAppendingAgain(t *testing.T) {
	for name, fault := range map[string]memlog.Fault{
		"the request is lost":                    {LoseRequest: true},
		"the answer is lost":                     {LoseAnswer: true},
		"the request arrives after the next try": {Linger: true, Request: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var store memlog.Store
				writer := open(t, store.Open(nil))
				left := 2
				log := open(t, store.Open(func(op memlog.Op) memlog.Fault {
					if op == memlog.Append && left > 0 {
						left--
						return fault
					}
					return memlog.Fault{}
				}))
				tip, _ := tipOf(t, log)
				started, newer, err := log.StartEpoch(t.Context(), tip, 2, 100)
				if err != nil || started == nil || newer != nil {
					t.Fatalf("StartEpoch = %v, %v, %v", started, newer, err)
				}
				time.Sleep(time.Minute) // whatever lingers has arrived
				won, newer, err := writer.Append(t.Context(), tip, draft(t, "late"))
				if err != nil || won != nil || len(newer) != 1 || newer[0].Head() != started.Head() {
					t.Errorf("Append at the old tip = %v, %v, %v", won, newer, err)
				}
				if at, _ := tipOf(t, open(t, store.Open(nil))); at != started.Head() {
					t.Errorf("the log is at %v, want %v", at, started.Head())
				}
			})
		})
	}
}
