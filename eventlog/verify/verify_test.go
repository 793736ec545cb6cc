package verify_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/logtest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/eventlog/proof"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/eventlog/verify"
)

// fixture is a log of 100 batches and an epoch, of which the older ones are in segments too.
type fixture struct {
	*testing.T
	store *memlog.Store
	id    eventlog.ID
	dir   string
	heads []proof.TreeHead // of all sizes, by size - 1
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, store: new(memlog.Store), dir: t.TempDir()}
	log := f.open()
	f.id = log.ID()
	batches, err := log.CatchUp(t.Context(), log.Start())
	if err != nil {
		t.Fatal(err)
	}
	at, sealed := batches[0].Head(), eventlog.Head{}
	for i := range 99 {
		var b *eventlog.Batch
		if i == 50 {
			b, _, err = log.StartEpoch(t.Context(), at, at.Revision+3, at.Revision+7)
		} else {
			e := &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CREATED, Object: &logpb.Object{Resource: "widgets", Name: fmt.Sprintf("widget-%02d", i)}}}
			e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, fmt.Appendf(nil, `{"number":%d}`, i))
			var entry *eventlog.Entry
			if entry, err = eventlog.Encode(e); err == nil {
				b, _, err = log.Append(t.Context(), at, eventlog.NewDraft([]*eventlog.Entry{entry}))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if at = b.Head(); i == 89 {
			sealed = at
		}
	}
	if n, err := f.archive().Seal(t.Context(), log, sealed); err != nil || n != 4 {
		t.Fatalf("%d segments, %v", n, err)
	}
	tree := proof.NewTree(proof.NewSource(log, nil), f.id)
	for size := range uint64(100) {
		head, err := tree.Head(t.Context(), size+1)
		if err != nil {
			t.Fatal(err)
		}
		f.heads = append(f.heads, head)
	}
	return f
}

func (f *fixture) open() *eventlog.Log {
	f.Helper()
	log, err := eventlog.Open(f.Context(), f.store.Open(nil), eventlog.Options{})
	if err != nil {
		f.Fatal(err)
	}
	return log
}

func (f *fixture) archive() *archive.Archive {
	f.Helper()
	a, err := archive.Open(archive.Options{Dir: f.dir, Log: f.id, SegmentRevisions: 20})
	if err != nil {
		f.Fatal(err)
	}
	return a
}

// verify verifies the log with its segments, or without.
func (f *fixture) verify(segments bool, heads ...proof.TreeHead) (*verify.Result, error) {
	f.Helper()
	log := f.open()
	s := verify.Source{ID: f.id, Name: "the store", Batches: verify.BatchesOf(log), Confirm: verify.ConfirmBy(log)}
	if segments {
		s.Segments = verify.SegmentsOf(f.archive())
	}
	return verify.Log(f.Context(), s, verify.Options{Heads: heads})
}

// file returns the path of a file of the n-th segment.
func (f *fixture) file(n int, extension string) string {
	f.Helper()
	files, err := filepath.Glob(filepath.Join(f.dir, "*"+extension))
	if err != nil || len(files) <= n {
		f.Fatalf("%d files, %v", len(files), err)
	}
	slices.Sort(files)
	return files[n]
}

// change rewrites a file.
func (f *fixture) change(file string, change func([]byte) []byte) {
	f.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(file, change(content), 0o600); err != nil {
		f.Fatal(err)
	}
}

// tamper changes the stored batches.
func (f *fixture) tamper(change func([]eventlog.Stored) []eventlog.Stored) {
	f.store.Tamper(func(head []byte, batches []eventlog.Stored) ([]byte, []eventlog.Stored) {
		return head, change(batches)
	})
}

func TestAGoodLog(t *testing.T) {
	f := newFixture(t)
	for _, segments := range []bool{false, true} {
		r, err := f.verify(segments, f.heads...)
		if err != nil {
			t.Fatal(err)
		}
		if r.Head != f.heads[99] || r.Batches != 100 || r.Events != 100 || len(r.Epochs) != 1 || r.Forgotten != 0 || (r.Segments == 4) != segments {
			t.Errorf("%+v", r)
		}
	}
}

func TestALogWhoseStoreWasTrimmed(t *testing.T) {
	f := newFixture(t)
	log, a := f.open(), f.archive()
	log.SetArchive(a)
	if err := log.Trim(t.Context(), a.Tip().Revision); err != nil {
		t.Fatal(err)
	}
	if n := len(f.store.Batches()); n > 30 {
		t.Fatalf("%d batches are left in the store", n)
	}
	r, err := f.verify(true, f.heads...)
	if err != nil || r.Batches != 100 || r.Head != f.heads[99] {
		t.Errorf("%+v, %v", r, err)
	}
	tree := proof.NewTree(proof.NewSource(log, a), f.id)
	for _, revision := range []uint64{1, 10, f.heads[99].Revision} {
		p, err := tree.Inclusion(t.Context(), revision, 0, true)
		if err == nil {
			_, err = p.Verify(f.heads[99])
		}
		if err != nil {
			t.Errorf("revision %d: %v", revision, err)
		}
	}
	var d *verify.Difference
	if _, err := f.verify(false); !errors.As(err, &d) || !strings.Contains(d.What, "are missing") {
		t.Errorf("without its segments: %v", err)
	}
}

func TestForgottenBatchesAreDeclared(t *testing.T) {
	f := newFixture(t)
	a := f.archive()
	info := a.Segments()[1]
	if _, err := a.Rewrite(t.Context(), info.First, func(b *eventlog.Batch, _ *eventlog.Event) segment.Keep {
		if b.First > info.First+5 && b.First < info.First+10 {
			return segment.Nothing
		}
		return segment.Metadata
	}); err != nil {
		t.Fatal(err)
	}
	for _, recorded := range []bool{false, true} { // a head of elsewhere binds what is before the gap, too
		if recorded {
			f.record(f.heads[39])
		}
		r, err := f.verify(true, slices.Concat(f.heads[:26], f.heads[29:])...) // the others end among batches 27 to 30
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]uint64{false: 96, true: 97}[recorded]
		if r.Head.Size != want+4 || r.Batches != want || r.Forgotten != 4 {
			t.Errorf("%+v", r)
		}
	}
}

// record appends what a server records before it erases: the root of the first batches, up to the end of a segment.
func (f *fixture) record(head proof.TreeHead) {
	f.Helper()
	log := f.open()
	tip, err := log.Tip(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_PAST_ERASED, Skippable: true, Detail: &logpb.Metadata_PastErased{
		PastErased: &logpb.PastErased{Batches: head.Size, Root: head.Root[:]},
	}}})
	if err != nil {
		f.Fatal(err)
	}
	if won, _, err := log.Append(f.Context(), tip, eventlog.NewDraft([]*eventlog.Entry{entry})); err != nil || won == nil {
		f.Fatal(won, err)
	}
}

// Batches before a gap are those of which the log has recorded the hashes. Without a record nothing is known of them.
func TestBatchesBeforeAGap(t *testing.T) {
	var d *verify.Difference
	var unknown *verify.IncomparableError
	t.Run("recorded", func(t *testing.T) {
		f := newFixture(t)
		f.record(f.heads[39])
		f.forget(5, 5)
		if r, err := f.verify(true); err != nil || r.Forgotten != 10 {
			t.Fatalf("%+v, %v", r, err)
		}
		logtest.Forge(t, f.file(1, ".log"), "widget-23", "widget-32")
		if err := os.Remove(filepath.Join(f.dir, "SHA256SUMS")); err != nil {
			t.Fatal(err)
		}
		if _, err := f.verify(true); !errors.As(err, &d) || !strings.Contains(d.What, "the first 40 batches are not those that the log has recorded") {
			t.Errorf("%v", err)
		}
	})
	t.Run("of former versions", func(t *testing.T) {
		f := newFixture(t)
		f.forget(5, 5)
		if _, err := f.verify(true); !errors.As(err, &unknown) || unknown.Unbound != 35 {
			t.Errorf("%v", err)
		}
		if _, err := f.verify(true, f.heads[99]); err != nil {
			t.Errorf("with a head of elsewhere: %v", err)
		}
	})
	t.Run("records that are not about the gap", func(t *testing.T) {
		f := newFixture(t)
		f.record(f.heads[19])                                      // it ends before the gap
		f.record(proof.TreeHead{Size: 30, Root: f.heads[29].Root}) // no segment ends there
		f.record(proof.TreeHead{})                                 // segments were damaged
		f.forget(5, 5)
		if _, err := f.verify(true); !errors.As(err, &unknown) || unknown.Unbound != 35 {
			t.Errorf("%v", err)
		}
	})
	t.Run("a record of another log", func(t *testing.T) {
		f := newFixture(t)
		other := f.heads[39]
		other.Root[7] ^= 1
		f.record(other)
		f.record(f.heads[39])
		f.forget(5, 5)
		if _, err := f.verify(true); !errors.As(err, &d) {
			t.Errorf("%v", err)
		}
	})
}

func TestTheFirstDifferenceIsNamed(t *testing.T) {
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte {
			b = bytes.Clone(b)
			b[(at+len(b))%len(b)] ^= 1
			return b
		}
	}
	batch := func(i int, change func([]byte) []byte) func(*fixture) {
		return func(f *fixture) {
			f.tamper(func(all []eventlog.Stored) []eventlog.Stored { all[i].Value = change(all[i].Value); return all })
		}
	}
	for _, tc := range []struct {
		name     string
		segments bool
		damage   func(*fixture)
		where    string
		revision uint64
	}{
		{"a byte of a batch", false, batch(30, flip(-20)), "the store", 31},
		{"a batch is missing", false, func(f *fixture) {
			f.tamper(func(all []eventlog.Stored) []eventlog.Stored { return slices.Delete(all, 30, 31) })
		}, "the store", 31},
		{"two batches change places", false, func(f *fixture) {
			f.tamper(func(all []eventlog.Stored) []eventlog.Stored {
				all[30].Value, all[31].Value = all[31].Value, all[30].Value
				return all
			})
		}, "the store", 31},
		{"the newest batches are missing", false, func(f *fixture) {
			f.tamper(func(all []eventlog.Stored) []eventlog.Stored { return all[:90] })
		}, "the store", 97},
		{"the head is an older one", false, func(f *fixture) {
			f.store.Tamper(func(_ []byte, all []eventlog.Stored) ([]byte, []eventlog.Stored) {
				h := f.heads[89]
				return eventlog.Head{Log: h.Log, Epoch: 1, Revision: h.Revision, Hash: h.Batch}.Encode(), all
			})
		}, "the store", 107},
		{"a byte of a segment's metadata", true, func(f *fixture) { f.change(f.file(1, ".log"), flip(60)) }, "0021-00000000000000000040.log", 21},
		{"a byte of a segment's payloads", true, func(f *fixture) { f.change(f.file(2, ".payloads"), flip(60)) }, "0041-00000000000000000066.payloads", 41},
		{"a segment is cut short", true, func(f *fixture) {
			f.change(f.file(1, ".log"), func(b []byte) []byte { return b[:len(b)/2] })
		}, "0021-00000000000000000040.log", 21},
		{"a batch behind the segments", true, batch(95, flip(-20)), "the store", 102},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			tc.damage(f)
			_, err := f.verify(tc.segments)
			var d *verify.Difference
			if !errors.As(err, &d) {
				t.Fatalf("%v", err)
			}
			if !strings.HasSuffix(d.Where, tc.where) || d.Revision != tc.revision || d.What == "" {
				t.Errorf("%q, revision %d: %s", d.Where, d.Revision, d.What)
			}
		})
	}
}

func TestAnotherLogIsNotThatOfTheHead(t *testing.T) {
	f, other := newFixture(t), newFixture(t)
	var d *verify.Difference
	if _, err := f.verify(true, other.heads[50]); !errors.As(err, &d) {
		t.Errorf("a head of another log: %v", err)
	}
	for _, size := range []int{1, 37, 100} {
		changed := f.heads[size-1]
		changed.Root[0] ^= 1
		for _, segments := range []bool{false, true} {
			if _, err := f.verify(segments, changed); !errors.As(err, &d) || !strings.Contains(d.What, "are not those of the tree head") {
				t.Errorf("another root of size %d: %v", size, err)
			}
		}
	}
	longer := f.heads[99]
	longer.Size, longer.Revision = 120, 200
	if _, err := f.verify(true, longer); !errors.As(err, &d) || !strings.Contains(d.What, "before the tree head of size 120") {
		t.Errorf("a head of a longer log: %v", err)
	}
}

// forget forgets the batches of the second segment from the n-th to the last but m.
func (f *fixture) forget(n, m int) {
	f.Helper()
	a := f.archive()
	info, i := a.Segments()[1], 0
	if _, err := a.Rewrite(f.Context(), info.First, func(*eventlog.Batch, *eventlog.Event) segment.Keep {
		if i++; i > n && i <= int(info.Batches)-m {
			return segment.Nothing
		}
		return segment.All
	}); err != nil {
		f.Fatal(err)
	}
}

// Who writes the store rewrites the log from before a head that an auditor has, and lets retention forget the batches around
// the end of that head.
func TestAForgedLogThatHasForgottenTheHead(t *testing.T) {
	f := newFixture(t)
	f.record(f.heads[39])
	f.forget(5, 5) // the batches 26 to 35
	for size := 1; size <= 100; size++ {
		_, err := f.verify(true, f.heads[size-1])
		var unknown *verify.IncomparableError
		if among := size > 25 && size < 35; errors.As(err, &unknown) != among || !among && err != nil {
			t.Errorf("the head of size %d: %v", size, err)
		}
		forged := f.heads[size-1] // it is of the log before it was forged
		forged.Root[3] ^= 1
		if _, err := f.verify(true, forged); err == nil {
			t.Errorf("a head of size %d of another log agrees", size)
		}
	}
	_, err := f.verify(true, f.heads[29], f.heads[99], f.heads[3]) // the second one binds what is before the gap
	want := "the tree head of size 30 cannot be compared: batches 26 to 35 are forgotten"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	changed := f.heads[99]
	changed.Root[0] ^= 1
	var d *verify.Difference
	if _, err := f.verify(true, f.heads[29], changed); !errors.As(err, &d) {
		t.Errorf("a difference behind a head that cannot be compared: %v", err)
	}
}

// A forger can write into a gap the hashes of another log. The position at its end is what the next batch continues.
func TestHashesOfAGapAreNotBelieved(t *testing.T) {
	f := newFixture(t)
	f.forget(5, 5)
	head := f.heads[34] // it ends with the gap
	head.Batch[0] ^= 1  // of a log with the same hashes in its gap
	var d *verify.Difference
	if _, err := f.verify(true, head); !errors.As(err, &d) || !strings.Contains(d.What, "the newest of the first 35 batches is not that of the tree head") {
		t.Errorf("%v", err)
	}
	head.Revision, head.Batch = 0, eventlog.Hash{} // a head of another program, with the root alone
	var unknown *verify.IncomparableError
	if _, err := f.verify(true, head); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
}
