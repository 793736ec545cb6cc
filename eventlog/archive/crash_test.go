package archive_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/segment"
)

func duplicate(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// crashes opens a folder, runs change, and returns a copy of the folder as a crash before each operation would leave
// it.
func crashes(t testing.TB, dir string, log eventlog.ID, change func(*archive.Archive) error) (copies, ops []string) {
	t.Helper()
	a, err := archive.OpenWith(archive.Options{Dir: dir, Log: log, SegmentRevisions: 50}, func(op, name string) error {
		copies, ops = append(copies, duplicate(t, dir)), append(ops, strings.TrimSpace(op+" "+name))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := change(a); err != nil {
		t.Fatal(err)
	}
	return append(copies, duplicate(t, dir)), append(ops, "done")
}

func TestACrashWhileSealing(t *testing.T) {
	w := newAuthor(t, 50)
	w.writes(60)
	whole := t.TempDir()
	seal(t, open(t, whole, w.log.ID()), w)
	want := contents(t, whole)
	copies, ops := crashes(t, t.TempDir(), w.log.ID(), func(a *archive.Archive) error {
		_, err := a.Seal(t.Context(), w.log, w.tip)
		return err
	})
	if len(copies) < 15 {
		t.Fatalf("only %v", ops)
	}
	for i, dir := range copies {
		a := open(t, dir, w.log.ID())
		if errs := append(a.Damaged(), a.Verify(t.Context())...); len(errs) > 0 {
			t.Errorf("after a crash before %s: %v", ops[i], errs)
		}
		if a.Tip().Revision > 0 {
			agrees(t, a, w)
		}
		seal(t, a, w)
		if diff := cmp.Diff(want, contents(t, dir)); diff != "" {
			t.Errorf("after a crash before %s, sealing makes other files:\n%.300s", ops[i], diff)
		}
	}
}

// What a file has is on the disk before the file gets its name, and the .payloads file is there before the .log file.
func TestTheOrderInWhichFilesBecomeDurable(t *testing.T) {
	w := newAuthor(t, 51)
	for w.tip.Revision < 50 {
		w.commit(w.bulk())
	}
	_, ops := crashes(t, t.TempDir(), w.log.ID(), func(a *archive.Archive) error {
		_, err := a.Seal(t.Context(), w.log, w.tip)
		return err
	})
	name := segment.Name(1, w.tip.Revision, 0)
	want := []string{
		"create new.log", "create new.payloads",
		"write new.payloads", "sync new.payloads", "write new.log", "sync new.log",
		"rename " + name + ".payloads", "sync folder", "rename " + name + ".log", "sync folder",
		"write SHA256SUMS", "sync folder", "done",
	}
	if diff := cmp.Diff(want, ops); diff != "" {
		t.Error(diff)
	}
}

// Every operation fails once, as on a full or broken disk.
func TestAnErrorWhileSealing(t *testing.T) {
	w := newAuthor(t, 52)
	w.writes(60)
	whole := t.TempDir()
	seal(t, open(t, whole, w.log.ID()), w)
	want := contents(t, whole)
	broken := errors.New("the disk is broken")
	for n, failed := 0, true; failed; n++ {
		failed = false
		dir, op := t.TempDir(), 0
		a, err := archive.OpenWith(archive.Options{Dir: dir, Log: w.log.ID(), SegmentRevisions: 50}, func(string, string) error {
			if op++; op-1 == n {
				failed = true
				return broken
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Seal(t.Context(), w.log, w.tip); errors.Is(err, broken) != failed {
			t.Errorf("operation %d fails: %v", n, err)
		}
		if a.Tip().Revision > 0 {
			agrees(t, a, w)
		}
		seal(t, a, w)
		agrees(t, a, w)
		if diff := cmp.Diff(want, contents(t, dir)); diff != "" {
			t.Errorf("after an error in operation %d, sealing makes other files:\n%.300s", n, diff)
		}
	}
}

func TestACrashWhileForgetting(t *testing.T) {
	w := newAuthor(t, 53)
	w.writes(100)
	dir := t.TempDir()
	a := open(t, dir, w.log.ID())
	seal(t, a, w)
	infos := a.Segments()
	all := upTo(w, a)
	inSecond := func(b *eventlog.Batch) bool { return b.First >= infos[1].First && b.Last() <= infos[1].Last }
	var rewritten []*eventlog.Batch
	for _, b := range all {
		copied := *b
		if inSecond(b) {
			copied.Events = nil
			for _, e := range b.Events {
				copied.Events = append(copied.Events, &eventlog.Event{Revision: e.Revision, Time: e.Time, Meta: e.Meta, Contents: make([][]byte, len(e.Contents))})
			}
		}
		rewritten = append(rewritten, &copied)
	}
	copies, ops := crashes(t, dir, w.log.ID(), func(a *archive.Archive) error {
		_, err := a.Rewrite(t.Context(), infos[1].First, func(*eventlog.Batch, *eventlog.Event) segment.Keep { return segment.Metadata })
		return err
	})
	for i, dir := range copies {
		a := open(t, dir, w.log.ID())
		if errs := append(a.Damaged(), a.Verify(t.Context())...); len(errs) > 0 {
			t.Errorf("after a crash before %s: %v", ops[i], errs)
		}
		want := all
		if a.Segments()[1].Generation > 0 {
			want = rewritten
		}
		sameBatches(t, read(t, a, w.log.Start()), want)
		onlyFilesOf(t, a, ops[i])
	}
	if a := open(t, copies[0], w.log.ID()); a.Segments()[1].Generation > 0 {
		t.Error("the rewrite is done before it begins")
	}
	copies, ops = crashes(t, dir, w.log.ID(), func(a *archive.Archive) error { return a.Drop(t.Context(), infos[1].Last) })
	for i, dir := range copies {
		a := open(t, dir, w.log.ID())
		if errs := append(a.Damaged(), a.Verify(t.Context())...); len(errs) > 0 {
			t.Errorf("after a crash before %s: %v", ops[i], errs)
		}
		from := slices.IndexFunc(all, func(b *eventlog.Batch) bool { return b.Previous == a.Oldest().Hash })
		sameBatches(t, read(t, a, a.Oldest()), rewritten[from:])
		onlyFilesOf(t, a, ops[i])
	}
}

// onlyFilesOf checks that the folder of an archive has no other files than those of its segments.
func onlyFilesOf(t testing.TB, a *archive.Archive, op string) {
	t.Helper()
	want := []string{"SHA256SUMS"}
	for _, s := range a.Segments() {
		want = append(want, s.Files[0].Name, s.Files[1].Name)
	}
	var got []string
	entries, err := filepath.Glob(filepath.Join(a.Dir(), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, filepath.Base(e))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after a crash before %s: %s", op, diff)
	}
}
