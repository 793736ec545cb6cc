package proof_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/proof"
	"stele.dev/stele/eventlog/segment"
)

// sealed puts the older batches of a log into segments, and returns the log's source over both.
func sealed(t *testing.T, log *eventlog.Log, tip eventlog.Head) (*archive.Archive, proof.Source) {
	t.Helper()
	a, err := archive.Open(archive.Options{Dir: t.TempDir(), Log: log.ID(), SegmentRevisions: 100})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := a.Seal(t.Context(), log, tip); err != nil || n < 3 {
		t.Fatalf("%d segments, %v", n, err)
	}
	return a, proof.NewSource(log, a)
}

// tipOf returns the position at the end of a log.
func tipOf(t *testing.T, log *eventlog.Log) eventlog.Head {
	t.Helper()
	at := log.Start()
	for {
		batches, err := log.CatchUp(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if len(batches) == 0 {
			return at
		}
		at = batches[len(batches)-1].Head()
	}
}

func TestProofsFromSegmentsAreThoseOfTheLog(t *testing.T) {
	const batches = 200
	log, events := randomLog(t, 20, batches)
	_, source := sealed(t, log, tipOf(t, log))
	whole, split := proof.NewTree(proof.NewSource(log, nil), log.ID()), proof.NewTree(source, log.ID())
	for _, size := range []uint64{1, 2, 37, 64, 100, 128, 150, 199, 200} {
		if want, got := headOf(t, whole, size), headOf(t, split, size); got != want {
			t.Fatalf("the head of size %d is %+v, from segments %+v", size, want, got)
		}
		for i := 0; i < len(events) && events[i].Last() <= headOf(t, whole, size).Revision; i += 7 {
			want, err := whole.Inclusion(t.Context(), events[i].Revision, size, true)
			if err != nil {
				t.Fatal(err)
			}
			got, err := split.Inclusion(t.Context(), events[i].Revision, size, true)
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Encode()) != string(want.Encode()) {
				t.Fatalf("revision %d, size %d: the proof is\n%s\nfrom segments\n%s", events[i].Revision, size, want.Encode(), got.Encode())
			}
		}
		for from := uint64(1); from <= size; from += 13 {
			checkConsistency(t, split, from, size)
		}
	}
}

func TestATreeGoesOnWhenSegmentsAreSealed(t *testing.T) {
	log, events := randomLog(t, 21, 200)
	a, source := sealed(t, log, eventlog.Head{Log: log.ID(), Revision: 350})
	tree := proof.NewTree(source, log.ID())
	before := headOf(t, tree, 0)
	if _, err := a.Seal(t.Context(), log, tipOf(t, log)); err != nil {
		t.Fatal(err)
	}
	if after := headOf(t, tree, 0); after != before {
		t.Errorf("the head was %+v, and is %+v", before, after)
	}
	p, err := tree.Inclusion(t.Context(), events[len(events)-1].Revision, 0, false)
	if _, err := parsed(t, p, err).Verify(before); err != nil {
		t.Error(err)
	}
}

// Batches that retention has removed leave their hashes: what is beside them is proven as before.
func TestProofsBesideWhatIsForgotten(t *testing.T) {
	log, events := randomLog(t, 22, 200)
	a, source := sealed(t, log, tipOf(t, log))
	tree := proof.NewTree(source, log.ID())
	before := headOf(t, tree, 0)
	forgotten := func(revision uint64) bool { return revision > 1 && revision%100 > 20 && revision%100 < 80 }
	for _, info := range a.Segments() {
		_, err := a.Rewrite(t.Context(), info.First, func(b *eventlog.Batch, e *eventlog.Event) segment.Keep {
			if forgotten(b.First) {
				return segment.Nothing
			}
			return segment.Metadata
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	reopened, err := archive.Open(archive.Options{Dir: a.Dir(), Log: log.ID(), SegmentRevisions: 100})
	if err != nil {
		t.Fatal(err)
	}
	for name, tree := range map[string]*proof.Tree{"the same": tree, "a new one": proof.NewTree(proof.NewSource(log, reopened), log.ID())} {
		if after := headOf(t, tree, 0); after != before {
			t.Fatalf("%s: the head was %+v, and is %+v", name, before, after)
		}
		kept, gone := 0, 0
		for _, e := range events {
			p, err := tree.Inclusion(t.Context(), e.Revision, 0, true)
			if errors.Is(err, proof.ErrForgotten) {
				gone++
				continue
			}
			kept++
			if _, err := parsed(t, p, err).Verify(before); err != nil {
				t.Fatalf("%s: revision %d: %v", name, e.Revision, err)
			}
		}
		if kept < 50 || gone < 50 {
			t.Errorf("%s: %d events are proven and %d forgotten", name, kept, gone)
		}
		p, err := tree.Consistency(t.Context(), 200, 0)
		if err != nil || p.Verify(before, before) != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDroppedSegmentsEndProofs(t *testing.T) {
	log, _ := randomLog(t, 23, 200)
	a, source := sealed(t, log, tipOf(t, log))
	if err := a.Drop(t.Context(), a.Segments()[0].Last); err != nil {
		t.Fatal(err)
	}
	if _, err := proof.NewTree(source, log.ID()).Head(t.Context(), 0); !errors.Is(err, proof.ErrForgotten) {
		t.Errorf("%v", err)
	}
}

func TestADamagedSegmentIsNamed(t *testing.T) {
	log, _ := randomLog(t, 24, 200)
	a, source := sealed(t, log, tipOf(t, log))
	info := a.Segments()[1]
	file := filepath.Join(a.Dir(), info.Files[0].Name)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content[100] ^= 1
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	tree := proof.NewTree(source, log.ID())
	_, err = tree.Inclusion(t.Context(), info.First+50, 0, false)
	if err == nil || !strings.Contains(err.Error(), info.Files[0].Name) {
		t.Errorf("%v", err)
	}
	other, err := tree.Inclusion(t.Context(), a.Segments()[0].First+50, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Verify(headOf(t, tree, 0)); err != nil {
		t.Error(err)
	}
}
