package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logtest"
	"stele.dev/stele/eventlog/memlog"
)

// tiers is a log whose older batches are in an archive and not in the store.
type tiers struct {
	t       testing.TB
	store   *memlog.Store
	log     *eventlog.Log
	archive *logtest.Archive
	tip     eventlog.Head
	batches []*eventlog.Batch // all
}

// newTiers returns a log with n batches, of which the archive has those up to revision `sealed`, and the store
// the first one and those after revision `trimmed`.
func newTiers(t testing.TB, n int, sealed, trimmed uint64) *tiers {
	t.Helper()
	x := &tiers{t: t, store: &memlog.Store{MaxBatches: 3}, archive: &logtest.Archive{AtOnce: 2}}
	x.log = open(t, x.store.Open(nil))
	x.tip, x.batches = tipOf(t, x.log)
	for i := 2; i <= n; i++ {
		x.write(fmt.Sprint(i))
	}
	x.trim(sealed, trimmed)
	return x
}

func (x *tiers) write(names ...string) {
	x.t.Helper()
	won, _, err := x.log.Append(x.t.Context(), x.tip, draft(x.t, names...))
	if err != nil || won == nil {
		x.t.Fatal(won, err)
	}
	x.tip, x.batches = won.Head(), append(x.batches, won)
}

func (x *tiers) trim(sealed, trimmed uint64) {
	x.t.Helper()
	x.log.SetArchive(x.archive)
	if err := x.archive.Seal(x.t.Context(), x.log, sealed); err != nil {
		x.t.Fatal(err)
	}
	if err := x.log.Trim(x.t.Context(), trimmed); err != nil {
		x.t.Fatal(err)
	}
}

// fresh returns the log as another process opens it, with the archive.
func (x *tiers) fresh() *eventlog.Log {
	log := open(x.t, x.store.Open(nil))
	log.SetArchive(x.archive)
	return log
}

func heads(batches []*eventlog.Batch) (heads []eventlog.Head) {
	for _, b := range batches {
		heads = append(heads, b.Head())
	}
	return heads
}

// agrees compares a log, read from each of its positions forward, and back from each revision in steps of every
// size, with what was written.
func (x *tiers) agrees(log *eventlog.Log) {
	x.t.Helper()
	for i := range x.batches {
		at, got := log.Start(), []*eventlog.Batch(nil)
		if i > 0 {
			at = x.batches[i-1].Head()
		}
		for len(got) < len(x.batches)-i {
			more, err := log.Next(x.t.Context(), at)
			if err != nil {
				x.t.Fatalf("after batch %d: %v", i, err)
			}
			got, at = append(got, more...), more[len(more)-1].Head()
		}
		if !slices.Equal(heads(got), heads(x.batches[i:])) {
			x.t.Errorf("after batch %d: %v, want %v", i, heads(got), heads(x.batches[i:]))
		}
	}
	for from := range x.tip.Revision + 3 {
		var want []*eventlog.Batch
		for _, b := range slices.Backward(x.batches) {
			if b.First <= from {
				want = append(want, b)
			}
		}
		for max := 1; max <= len(x.batches)+1; max++ {
			got, err := log.Back(x.t.Context(), from, max)
			if want := want[:min(max, len(want))]; err != nil || !slices.Equal(heads(got), heads(want)) {
				x.t.Errorf("up to %d back from %d: %v, %v, want %v", max, from, heads(got), err, heads(want))
			}
		}
	}
}

func TestALogOverTwoTiersReadsAsOne(t *testing.T) {
	for _, tc := range []struct{ sealed, trimmed uint64 }{{0, 0}, {1, 0}, {1, 1}, {5, 0}, {5, 3}, {5, 5}, {9, 9}, {12, 2}, {12, 12}} {
		t.Run(fmt.Sprintf("sealed up to %d, trimmed up to %d", tc.sealed, tc.trimmed), func(t *testing.T) {
			x := newTiers(t, 12, tc.sealed, tc.trimmed)
			x.agrees(x.log)
			x.agrees(x.fresh())
			x.write("a", "b", "c")
			x.write("d")
			x.agrees(x.log)
		})
	}
}

// Revisions that an epoch has lost may be in either tier, and between them.
func TestAnEpochAtTheBorderOfTheTiers(t *testing.T) {
	for sealed := range uint64(13) {
		x := newTiers(t, 5, 0, 0)
		started, _, err := x.log.StartEpoch(t.Context(), x.tip, 6, 9)
		if err != nil {
			t.Fatal(err)
		}
		x.tip, x.batches = started.Head(), append(x.batches, started)
		x.write("10")
		x.write("11")
		x.trim(sealed, min(sealed, x.archiveTip()))
		x.agrees(x.fresh())
	}
}

func (x *tiers) archiveTip() uint64 {
	if err := x.archive.Seal(x.t.Context(), x.log, 0); err != nil {
		x.t.Fatal(err)
	}
	return x.archive.Tip().Revision
}

// Random writes, seals and trims: every reader sees one log after each.
func TestRandomSealsAndTrims(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	x := newTiers(t, 1, 0, 0)
	x.log.SetArchive(x.archive)
	for range 40 {
		switch rng.IntN(4) {
		case 0:
			if err := x.archive.Seal(t.Context(), x.log, rng.Uint64N(x.tip.Revision+2)); err != nil {
				t.Fatal(err)
			}
		case 1:
			if err := x.log.Trim(t.Context(), rng.Uint64N(x.archive.Tip().Revision+1)); err != nil {
				t.Fatal(err)
			}
		default:
			x.write(slices.Repeat([]string{"x"}, 1+rng.IntN(3))...)
		}
		x.agrees(x.fresh())
	}
}

// The archive may take over batches between the moment at which a reader looks at its tip and the moment at
// which it reads the store.
func TestBatchesThatMoveWhileTheyAreRead(t *testing.T) {
	for _, read := range []struct {
		name string
		op   memlog.Op
		do   func(*tiers, *eventlog.Log) ([]*eventlog.Batch, error)
		want func(*tiers) []*eventlog.Batch
	}{
		{"forward", memlog.Read, func(x *tiers, log *eventlog.Log) ([]*eventlog.Batch, error) {
			return log.CatchUp(x.t.Context(), x.batches[3].Head())
		}, func(x *tiers) []*eventlog.Batch { return x.batches[4:6] }},
		{"back", memlog.ReadBack, func(x *tiers, log *eventlog.Log) ([]*eventlog.Batch, error) {
			return log.Back(x.t.Context(), 9, 8)
		}, func(x *tiers) []*eventlog.Batch { b := slices.Clone(x.batches[1:9]); slices.Reverse(b); return b }},
		{"back from a revision that was trimmed", memlog.ReadBack, func(x *tiers, log *eventlog.Log) ([]*eventlog.Batch, error) {
			return log.Back(x.t.Context(), 6, 1)
		}, func(x *tiers) []*eventlog.Batch { return x.batches[5:6] }},
	} {
		t.Run(read.name, func(t *testing.T) {
			x := newTiers(t, 10, 3, 3)
			moved := false
			log := open(t, x.store.Open(func(op memlog.Op) memlog.Fault {
				if op == read.op && !moved && x.tip.Revision == 11 {
					moved = true
					x.trim(8, 8)
				}
				return memlog.Fault{}
			}))
			log.SetArchive(x.archive)
			x.write("11")
			got, err := read.do(x, log)
			if want := read.want(x); err != nil || !slices.Equal(heads(got), heads(want)) || !moved {
				t.Errorf("%v, %v, want %v", heads(got), err, heads(want))
			}
		})
	}
}

// The jump from the first batch to the oldest one in the store must never be followed.
func TestTrimmedBatchesWithoutTheirArchive(t *testing.T) {
	x := newTiers(t, 12, 8, 8)
	x.archive = &logtest.Archive{}
	log := x.fresh() // with an archive that is empty
	first := x.batches[0].Head()
	missing := func(what string, err error, from, to uint64) {
		t.Helper()
		var m *eventlog.MissingError
		if !errors.As(err, &m) || m.From != from || m.To != to || !eventlog.IsFatal(err) || !strings.Contains(err.Error(), fmt.Sprintf("%d to %d are missing", from, to)) {
			t.Errorf("%s: %v, want revisions %d to %d missing", what, err, from, to)
		}
	}
	for _, log := range []*eventlog.Log{log, open(t, x.store.Open(nil))} { // with an empty archive, and with none
		_, err := log.CatchUp(t.Context(), log.Start())
		missing("from the start", err, 2, 8)
		_, err = log.CatchUp(t.Context(), first)
		missing("after the first batch", err, 2, 8)
		_, err = log.Next(t.Context(), x.batches[4].Head())
		missing("after a trimmed batch", err, 6, 8)
		for _, from := range []uint64{2, 5, 8} {
			_, err = log.Back(t.Context(), from, 1)
			missing(fmt.Sprint("back from ", from), err, 2, 8)
		}
		_, err = log.Back(t.Context(), 11, 4)
		missing("back over the gap", err, 2, 8)
		if got, err := log.Back(t.Context(), 11, 3); err != nil || !slices.Equal(names(got), []string{"11 11", "10 10", "9 9"}) {
			t.Errorf("back up to the gap: %v, %v", names(got), err)
		}
		if got, err := log.CatchUp(t.Context(), x.batches[7].Head()); err != nil || len(got) == 0 || got[0].First != 9 {
			t.Errorf("after the gap: %v, %v", got, err)
		}
	}
	older := newTiers(t, 12, 0, 0)
	if err := x.archive.Seal(t.Context(), older.log, 5); err != nil { // of another log
		t.Fatal(err)
	}
	if _, err := log.CatchUp(t.Context(), log.Start()); !errors.Is(err, eventlog.ErrDiverged) {
		t.Errorf("with the archive of another log: %v", err)
	}
}

// An archive that ends before the oldest batch of the store, for example one from a backup.
func TestAnArchiveThatIsTooOld(t *testing.T) {
	x := newTiers(t, 12, 5, 5)
	old := x.archive
	x.archive = &logtest.Archive{}
	if err := x.archive.Seal(t.Context(), x.log, 9); err != nil {
		t.Fatal(err)
	}
	x.trim(9, 9)
	x.archive = old
	log := x.fresh()
	var m *eventlog.MissingError
	if _, err := log.CatchUp(t.Context(), old.Tip()); !errors.As(err, &m) || m.From != 6 || m.To != 9 {
		t.Errorf("after the archive: %v", err)
	}
	if _, err := log.Back(t.Context(), 8, 1); !errors.As(err, &m) || m.From != 6 || m.To != 9 {
		t.Errorf("back from behind the archive: %v", err)
	}
	if got, err := log.Back(t.Context(), 4, 9); err != nil || len(got) != 4 {
		t.Errorf("back from within the archive: %v, %v", got, err)
	}
}

func TestOnlyWhatTheArchiveHasIsTrimmed(t *testing.T) {
	x := newTiers(t, 12, 6, 0)
	whole := len(x.store.Batches())
	other := newTiers(t, 12, 8, 0)
	for _, tc := range []struct {
		name    string
		archive eventlog.Archive
		upto    uint64
	}{
		{"no archive", nil, 3},
		{"an empty archive", &logtest.Archive{}, 3},
		{"behind the archive's tip", x.archive, 7},
		{"the archive of another log", other.archive, 3},
	} {
		log := open(t, x.store.Open(nil))
		if tc.archive != nil {
			log.SetArchive(tc.archive)
		}
		if err := log.Trim(t.Context(), tc.upto); err == nil || len(x.store.Batches()) != whole {
			t.Errorf("%s: %v, and %d of %d batches are left", tc.name, err, len(x.store.Batches()), whole)
		}
	}
}

func TestAForgottenPast(t *testing.T) {
	x := newTiers(t, 12, 8, 8)
	x.archive.Forget(4)
	log := x.fresh()
	forgotten := func(what string, err error) {
		t.Helper()
		var f *eventlog.ForgottenError
		if !errors.As(err, &f) || f.Oldest != x.batches[3].Head() || !eventlog.IsFatal(err) || !strings.Contains(err.Error(), "before revision 5 ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := log.CatchUp(t.Context(), log.Start())
	forgotten("from the start", err)
	_, err = log.Next(t.Context(), x.batches[2].Head())
	forgotten("from a forgotten position", err)
	_, err = log.Back(t.Context(), 4, 1)
	forgotten("back from a forgotten revision", err)
	if got, err := log.Back(t.Context(), 10, 20); err != nil || len(got) != 6 {
		t.Errorf("back to the oldest that is kept: %v, %v", names(got), err)
	}
	if got, err := log.CatchUp(t.Context(), x.batches[3].Head()); err != nil || len(got) == 0 || got[0].First != 5 {
		t.Errorf("from the oldest position that is kept: %v, %v", names(got), err)
	}
	x.archive.Forget(8) // all of it
	if got, err := log.Back(t.Context(), 10, 20); err != nil || len(got) != 2 {
		t.Errorf("back, when the archive has forgotten all: %v, %v", names(got), err)
	}
}

// A binary search for a time passes over what is forgotten, and over the border of the tiers.
func TestLastBeforeOverTwoTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTiers(t, 1, 0, 0)
		for i := 2; i <= 12; i++ {
			time.Sleep(time.Minute)
			x.write(fmt.Sprint(i))
		}
		x.trim(8, 8)
		search := func(log *eventlog.Log, limit int) uint64 {
			last, err := eventlog.LastBefore(t.Context(), log, nil, 1, x.tip.Revision, x.batches[limit-1].Time)
			if err != nil {
				t.Fatal(err)
			}
			return last
		}
		for limit := 1; limit <= 12; limit++ {
			if got := search(x.fresh(), limit); got != uint64(limit-1) {
				t.Errorf("before revision %d: %d", limit, got)
			}
		}
		x.archive.Forget(4)
		for limit := 1; limit <= 12; limit++ {
			want := uint64(limit - 1)
			if want <= 4 {
				want = 0
			}
			if got := search(x.fresh(), limit); got != want {
				t.Errorf("before revision %d, when 1 to 4 are forgotten: %d, want %d", limit, got, want)
			}
		}
	})
}

// A process that has not read the log itself must not append an earlier time than it has: it knows the time of
// its tip from a checkpoint or from the archive.
func TestLogTimeDoesNotGoBackOverTwoTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTiers(t, 6, 6, 6)
		newest := x.batches[len(x.batches)-1]
		behind := func() time.Time { return newest.Time.Add(-time.Hour) }
		for name, learn := range map[string]func(*eventlog.Log) error{
			"from a checkpoint": func(log *eventlog.Log) error { log.Resume(newest.Head(), newest.Time); return nil },
			"from the archive": func(log *eventlog.Log) error {
				_, err := log.CatchUp(t.Context(), x.batches[len(x.batches)-2].Head())
				return err
			},
		} {
			log, err := eventlog.Open(t.Context(), x.store.Open(nil), eventlog.Options{Clock: behind})
			if err != nil {
				t.Fatal(err)
			}
			log.SetArchive(x.archive)
			if err := learn(log); err != nil {
				t.Fatal(err)
			}
			if ahead := log.Ahead(); ahead < time.Hour {
				t.Errorf("%s: log time is known to be ahead by %v", name, ahead)
			}
			won, _, err := log.Append(t.Context(), x.tip, draft(t, name))
			if err != nil || won == nil || won.Time.Before(newest.Time) {
				t.Errorf("%s: %v, %v; the log's time was %v", name, won, err, newest.Time)
			}
			x.tip = won.Head()
			newest = won
			x.batches = append(x.batches, won)
			x.trim(won.Last(), won.Last())
		}
	})
}

// An append whose answer is lost is repeated. If its batch has moved to the archive meanwhile, it is found there.
func TestAnUnknownOutcomeThatHasMovedToTheArchive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, name := range []string{"append", "epoch"} {
			x := newTiers(t, 4, 4, 4)
			lost := false
			log := open(t, x.store.Open(func(op memlog.Op) memlog.Fault {
				if op != memlog.Append {
					return memlog.Fault{}
				}
				if !lost {
					lost = true
					return memlog.Fault{LoseAnswer: true}
				}
				at, err := x.log.CatchUp(context.Background(), x.tip)
				if err != nil || len(at) == 0 {
					t.Error(at, err)
					return memlog.Fault{}
				}
				x.tip = at[len(at)-1].Head()
				for i := range 4 {
					x.write(fmt.Sprint("later ", i))
				}
				x.trim(x.tip.Revision-1, x.tip.Revision-1)
				return memlog.Fault{}
			}))
			log.SetArchive(x.archive)
			before := x.tip
			var won *eventlog.Batch
			var err error
			if name == "epoch" {
				won, _, err = log.StartEpoch(t.Context(), before, 5, 20)
			} else {
				won, _, err = log.Append(t.Context(), before, draft(t, "mine"))
			}
			if err != nil || won == nil || won.Previous != before.Hash {
				t.Errorf("%s: %v, %v", name, won, err)
			}
		}
	})
}
