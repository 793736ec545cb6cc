package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
)

func open(t testing.TB, dir string, log eventlog.ID) *archive.Archive {
	t.Helper()
	a, err := archive.Open(archive.Options{Dir: dir, Log: log, SegmentRevisions: 50})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func seal(t testing.TB, a *archive.Archive, w *author) {
	t.Helper()
	if _, err := a.Seal(t.Context(), w.log, w.tip); err != nil {
		t.Fatal(err)
	}
}

// sameBatches compares batches with the oracle's, except for their size in a store.
func sameBatches(t testing.TB, got, want []*eventlog.Batch) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if g, w := got[i], want[i]; !sameBatch(g, w) {
			t.Fatalf("batch %d is\n%s\nwant\n%s", i, show(g), show(w))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d batches, want %d", len(got), len(want))
	}
}

func sameBatch(a, b *eventlog.Batch) bool {
	x, y := *a, *b
	same := slices.EqualFunc(x.Events, y.Events, func(a, b *eventlog.Event) bool {
		return a.Revision == b.Revision && a.Time.Equal(b.Time) && proto.Equal(a.Meta, b.Meta) &&
			slices.EqualFunc(a.Contents, b.Contents, func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) })
	})
	return same && x.Head() == y.Head() && x.First == y.First && x.Previous == y.Previous && x.Writer == y.Writer &&
		x.Nonce == y.Nonce && x.Time.Equal(y.Time) && x.Clock.Equal(y.Clock)
}

func show(b *eventlog.Batch) string {
	text := fmt.Sprintf("%v, previous %v, at %v\n", b.Head(), b.Previous, b.Time)
	for _, e := range b.Events {
		text += fmt.Sprintf("%d %v %.100q\n", e.Revision, e.Meta, e.Contents)
	}
	return text
}

// read returns all batches of an archive behind a position.
func read(t testing.TB, a *archive.Archive, at eventlog.Head) (all []*eventlog.Batch) {
	t.Helper()
	for at.Revision < a.Tip().Revision {
		batches, err := a.After(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, batches...)
		at = all[len(all)-1].Head()
	}
	return all
}

// upTo returns the batches of the oracle that an archive has.
func upTo(w *author, a *archive.Archive) []*eventlog.Batch {
	i := slices.IndexFunc(w.batches, func(b *eventlog.Batch) bool { return b.Head() == a.Tip() })
	return w.batches[:i+1]
}

// agrees compares the archive, read from every position and back from every revision, with the oracle.
func agrees(t testing.TB, a *archive.Archive, w *author) {
	t.Helper()
	want := upTo(w, a)
	sameBatches(t, read(t, a, w.log.Start()), want)
	for i := 0; i < len(want)-1; i += 1 + w.IntN(20) {
		batches, err := a.After(t.Context(), want[i].Head())
		if err != nil {
			t.Fatal(err)
		}
		sameBatches(t, batches[:1], want[i+1:i+2])
	}
	for range 20 {
		i, max := w.IntN(len(want)), 1+w.IntN(5)
		from := want[i].First + w.Uint64N(want[i].Revisions)
		batches, err := a.Back(t.Context(), from, max)
		if err != nil {
			t.Fatal(err)
		}
		back := slices.Clone(want[max0(i+1-max) : i+1])
		slices.Reverse(back)
		sameBatches(t, batches, back)
	}
}

func max0(i int) int { return max(0, i) }

func TestAnArchiveHasWhatTheLogHas(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newAuthor(t, seed)
			dir := t.TempDir()
			a := open(t, dir, w.log.ID())
			if a.Tip() != (eventlog.Head{}) || a.Oldest() != w.log.Start() {
				t.Errorf("an empty archive is at %v, from %v on", a.Tip(), a.Oldest())
			}
			for range 5 {
				sealed := w.tip.Revision
				w.writes(60)
				if w.IntN(2) == 0 {
					w.erase(3, sealed)
				}
				seal(t, a, w)
				if w.IntN(2) == 0 {
					a = open(t, dir, w.log.ID())
				}
			}
			if len(a.Segments()) < 5 {
				t.Fatalf("only %d segments", len(a.Segments()))
			}
			agrees(t, a, w)
			agrees(t, open(t, dir, w.log.ID()), w)
		})
	}
}

func TestSegmentsSayWhatIsInThem(t *testing.T) {
	w := newAuthor(t, 1)
	w.writes(300)
	a := open(t, t.TempDir(), w.log.ID())
	seal(t, a, w)
	var batches, events uint64
	var sets eventlog.ClockSets
	epochs := 0
	at := w.log.Start()
	for i, s := range a.Segments() {
		if s.Before != at || s.Ordinal != batches {
			t.Errorf("segment %d is after %v with ordinal %d; want %v, %d", i, s.Before, s.Ordinal, at, batches)
		}
		at = s.After
		batches += s.Batches
		events += s.Events
		sets = append(sets, s.ClockSets...)
		epochs += len(s.Epochs)
	}
	var wantEvents uint64
	var wantSets eventlog.ClockSets
	wantEpochs := 0
	for _, b := range upTo(w, a) {
		wantEvents += uint64(len(b.Events))
		wantSets = wantSets.After(b)
		if b.Events[0].Meta.GetEpochStarted() != nil {
			wantEpochs++
		}
	}
	if at != a.Tip() || batches != uint64(len(upTo(w, a))) || events != wantEvents || epochs != wantEpochs || !slices.Equal(sets, wantSets) {
		t.Errorf("%d batches, %d events, %d epochs, %v up to %v; want %d, %d, %d, %v up to %v",
			batches, events, epochs, sets, at, len(upTo(w, a)), wantEvents, wantEpochs, wantSets, a.Tip())
	}
}

// Two replicas seal in different steps, and one of them starts again in between.
func TestReplicasMakeTheSameFiles(t *testing.T) {
	w := newAuthor(t, 3)
	one, other := t.TempDir(), t.TempDir()
	a := open(t, one, w.log.ID())
	for range 10 {
		w.writes(40)
		seal(t, a, w)
		seal(t, open(t, other, w.log.ID()), w)
	}
	files := contents(t, one)
	if diff := cmp.Diff(files, contents(t, other)); diff != "" {
		t.Error(diff)
	}
	if len(files) < 10 {
		t.Errorf("only %d files", len(files))
	}
}

// contents returns the files of a folder, without temporary ones.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".tmp" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

func TestAPositionThatIsNotOfTheLog(t *testing.T) {
	w := newAuthor(t, 4)
	w.writes(200)
	a := open(t, t.TempDir(), w.log.ID())
	seal(t, a, w)
	for _, b := range upTo(w, a)[:len(upTo(w, a))-1] {
		other := b.Head()
		other.Hash[3] ^= 1
		if _, err := a.After(t.Context(), other); !errors.Is(err, eventlog.ErrDiverged) {
			t.Fatalf("after %v: %v", other, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.After(ctx, w.log.Start()); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}
