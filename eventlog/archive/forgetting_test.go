package archive_test

import (
	"errors"
	"fmt"
	"testing"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/segment"
)

// forget rewrites a segment by random decisions, and returns what the oracle expects of it afterwards.
func forget(t testing.TB, a *archive.Archive, w *author, info segment.Info, batches []*eventlog.Batch) []*eventlog.Batch {
	t.Helper()
	decisions := map[uint64]segment.Keep{}
	var want []*eventlog.Batch
	keepAll, run := w.IntN(3) == 0, w.IntN(4) == 0
	for _, b := range batches {
		if b.Last() <= info.Before.Revision || b.Last() > info.Last {
			want = append(want, b)
			continue
		}
		if w.IntN(5) == 0 {
			run = !run
		}
		left := *b
		left.Events = nil
		nothing := b.Last() != info.Last
		for _, e := range b.Events {
			keep := segment.All
			switch {
			case run:
				keep = segment.Nothing
			case keepAll:
			case e.Meta.GetObject().GetResource() == "leases":
				keep = segment.Metadata
			case w.IntN(4) == 0:
				keep = segment.Keep(w.IntN(3))
			}
			decisions[e.Revision] = keep
			nothing = nothing && keep == segment.Nothing
			copied := *e
			if keep != segment.All {
				copied.Contents = make([][]byte, len(e.Contents))
			}
			left.Events = append(left.Events, &copied)
		}
		if !nothing {
			want = append(want, &left)
		}
	}
	before := a.Segments()
	freed, err := a.Rewrite(t.Context(), info.First, func(b *eventlog.Batch, e *eventlog.Event) segment.Keep {
		keep, known := decisions[e.Revision]
		if !known {
			t.Errorf("asked about revision %d of the batch at %d", e.Revision, b.First)
		}
		return keep
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range a.Segments() {
		if s.First == info.First && before[i].Size()-s.Size() != freed {
			t.Errorf("freed %d bytes of %d, now %d", freed, before[i].Size(), s.Size())
		}
	}
	return want
}

func TestWhatIsForgottenIsGoneAndTheRestStays(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newAuthor(t, 100+seed)
			w.writes(200)
			dir := t.TempDir()
			a := open(t, dir, w.log.ID())
			seal(t, a, w)
			want := upTo(w, a)
			before := a.Segments()
			for range 8 {
				infos := a.Segments()
				want = forget(t, a, w, infos[w.IntN(len(infos))], want)
			}
			for _, a := range []*archive.Archive{a, open(t, dir, w.log.ID())} {
				if errs := a.Verify(t.Context()); len(errs) > 0 {
					t.Fatal(errs)
				}
				sameBatches(t, readKept(t, a), want)
				for _, b := range want {
					back, err := a.Back(t.Context(), b.Last(), 1)
					if err != nil {
						t.Fatal(err)
					}
					sameBatches(t, back, []*eventlog.Batch{b})
				}
				sameTree(t, before, a.Segments())
			}
		})
	}
}

// readKept returns all batches that an archive keeps.
func readKept(t testing.TB, a *archive.Archive) []*eventlog.Batch {
	t.Helper()
	return read(t, a, a.Oldest())
}

// sameTree checks that what a segment says about all its batches has not changed.
func sameTree(t testing.TB, before, after []segment.Info) {
	t.Helper()
	for i, b := range before {
		a := after[i]
		if a.Before != b.Before || a.After != b.After || a.Ordinal != b.Ordinal || a.Batches != b.Batches || a.Events != b.Events ||
			fmt.Sprint(a.Tree, a.Epochs, a.ClockSets) != fmt.Sprint(b.Tree, b.Epochs, b.ClockSets) {
			t.Errorf("segment %d is %+v, was %+v", i, a, b)
		}
	}
}

func TestMetadataSaysWhatIsForgotten(t *testing.T) {
	w := newAuthor(t, 40)
	w.writes(200)
	a := open(t, t.TempDir(), w.log.ID())
	seal(t, a, w)
	all := upTo(w, a)
	want := all
	for _, info := range a.Segments() {
		want = forget(t, a, w, info, want)
	}
	var got []*eventlog.Batch
	ordinal, at := uint64(0), w.log.Start()
	for item, err := range a.Metadata(t.Context(), a.Oldest().Revision) {
		if err != nil {
			t.Fatal(err)
		}
		if ordinal == 0 {
			at, ordinal = a.Oldest(), item.Ordinal
		}
		if item.Ordinal != ordinal {
			t.Fatalf("ordinal %d, want %d", item.Ordinal, ordinal)
		}
		if item.Gap != nil {
			if item.Gap.Before != at || item.Gap.Batches == 0 {
				t.Fatalf("gap %+v after %v", item.Gap, at)
			}
			at = item.Gap.After
			ordinal += item.Gap.Batches
			continue
		}
		if item.Batch.Previous != at.Hash {
			t.Fatalf("batch %v after %v", item.Batch.Head(), at)
		}
		at = item.Batch.Head()
		ordinal++
		got = append(got, item.Batch)
	}
	if at != a.Tip() || ordinal != uint64(len(all)) {
		t.Errorf("it ends at %v with %d batches, want %v with %d", at, ordinal, a.Tip(), len(all))
	}
	bare := make([]*eventlog.Batch, len(want))
	for i, b := range want {
		copied := *b
		copied.Events = nil
		for _, e := range b.Events {
			copied.Events = append(copied.Events, &eventlog.Event{Revision: e.Revision, Time: e.Time, Meta: e.Meta, Contents: make([][]byte, len(e.Contents))})
		}
		bare[i] = &copied
	}
	sameBatches(t, got, bare)
}

func TestDroppedSegmentsAreForgotten(t *testing.T) {
	w := newAuthor(t, 41)
	w.writes(300)
	dir := t.TempDir()
	a := open(t, dir, w.log.ID())
	seal(t, a, w)
	infos := a.Segments()
	if err := a.Drop(t.Context(), infos[2].Last+3); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*archive.Archive{a, open(t, dir, w.log.ID())} {
		if a.Oldest() != infos[3].Before || len(a.Segments()) != len(infos)-3 {
			t.Errorf("the archive begins after %v with %d segments", a.Oldest(), len(a.Segments()))
		}
		var forgotten *eventlog.ForgottenError
		if _, err := a.After(t.Context(), w.log.Start()); !errors.As(err, &forgotten) || forgotten.Oldest != a.Oldest() {
			t.Errorf("after the start: %v", err)
		}
		if _, err := a.Back(t.Context(), infos[2].Last, 3); !errors.As(err, &forgotten) {
			t.Errorf("back from what was dropped: %v", err)
		}
		if b, err := a.After(t.Context(), a.Oldest()); err != nil || b[0].Previous != a.Oldest().Hash {
			t.Errorf("after the oldest position: %v, %v", b, err)
		}
		if b, err := a.Back(t.Context(), infos[3].First, 5); err != nil || len(b) != 1 {
			t.Errorf("back from the oldest batch: %v, %v", b, err)
		}
		if len(a.Damaged()) > 0 {
			t.Error(a.Damaged())
		}
	}
	if err := a.Drop(t.Context(), 1<<62); err != nil || len(a.Segments()) != 1 || a.Tip() != infos[len(infos)-1].After {
		t.Errorf("dropping all: %v, %d segments are left, up to %v", err, len(a.Segments()), a.Tip())
	}
}
