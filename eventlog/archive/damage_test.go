package archive_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/segment"
)

// damaged reads all that an archive has of the oracle's batches, forward and back. It fails if anything is wrong, or if
// an error does not name one of the files. It returns the revisions that cannot be read.
func damaged(t testing.TB, a *archive.Archive, want []*eventlog.Batch, log eventlog.ID, files ...string) (unreadable []uint64) {
	t.Helper()
	names := func(err error) bool {
		return slices.ContainsFunc(files, func(f string) bool { return strings.Contains(err.Error(), f) })
	}
	at := eventlog.Head{Log: log}
	for i, b := range want {
		if b.Last() > a.Tip().Revision {
			break
		}
		more, err := a.After(t.Context(), at)
		if err != nil {
			if !names(err) {
				t.Fatalf("after %v: %v, which names none of %v", at, err, files)
			}
			unreadable = append(unreadable, b.First)
		} else {
			sameBatches(t, more[:1], want[i:i+1])
		}
		back, err := a.Back(t.Context(), b.Last(), 1)
		if err != nil && !names(err) {
			t.Fatalf("back from %d: %v, which names none of %v", b.Last(), err, files)
		}
		if err == nil {
			sameBatches(t, back, want[i:i+1])
		}
		at = b.Head()
	}
	return unreadable
}

// sealedFolder returns a folder with some segments.
func sealedFolder(t *testing.T, seed uint64) (*author, string, []segment.Info) {
	t.Helper()
	w := newAuthor(t, seed)
	w.writes(90)
	dir := t.TempDir()
	a := open(t, dir, w.log.ID())
	seal(t, a, w)
	if len(a.Segments()) < 4 {
		t.Fatalf("only %d segments", len(a.Segments()))
	}
	return w, dir, a.Segments()
}

func TestDamagedFilesAreNamedAndNothingElseIsLost(t *testing.T) {
	w, dir, infos := sealedFolder(t, 60)
	for _, which := range []int{0, 1, len(infos) - 1} {
		for file := range infos[which].Files {
			name := infos[which].Files[file].Name
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for round := range 8 {
				bad := slices.Clone(text)
				if what := round % 2; what == 0 {
					bad = bad[:w.IntN(len(bad))]
				} else {
					// Near the end there are footer and index.
					at := w.IntN(len(bad))
					if round%4 == 1 {
						at = len(bad) - 1 - w.IntN(min(len(bad), 600))
					}
					bad[at] ^= byte(1 + w.IntN(255))
				}
				copied := duplicate(t, dir)
				if err := os.WriteFile(filepath.Join(copied, name), bad, 0o600); err != nil {
					t.Fatal(err)
				}
				a := open(t, copied, w.log.ID())
				base := segment.NameOf(name)
				unreadable := damaged(t, a, w.batches, w.log.ID(), base)
				for _, r := range unreadable {
					if r < infos[which].First || r > infos[which].Last {
						t.Errorf("%s is damaged, and revision %d cannot be read", name, r)
					}
				}
				if errs := append(a.Damaged(), a.Verify(t.Context())...); len(errs) == 0 {
					t.Errorf("round %d: %s is damaged, and nothing says so", round, name)
				}
				seal(t, a, w)
				if len(unreadable) == 0 && a.Tip() != infos[len(infos)-1].After {
					t.Errorf("after sealing again the archive ends at %v", a.Tip())
				}
			}
		}
	}
}

// The log still has all batches: what is missing comes back, with the same bytes.
func TestWhatIsMissingIsMadeAgainFromTheLog(t *testing.T) {
	w, dir, infos := sealedFolder(t, 61)
	want := contents(t, dir)
	for which := range infos {
		for files := 1; files < 4; files++ {
			t.Run(fmt.Sprintf("segment %d, files %b", which, files), func(t *testing.T) {
				copied := duplicate(t, dir)
				for i, f := range infos[which].Files {
					if files>>i&1 == 1 {
						if err := os.Remove(filepath.Join(copied, f.Name)); err != nil {
							t.Fatal(err)
						}
					}
				}
				a := open(t, copied, w.log.ID())
				if errs := a.Damaged(); len(errs) != 1 || !strings.Contains(errs[0].Error(), segment.Name(infos[which].First, infos[which].Last, 0)) {
					t.Errorf("damaged: %v", errs)
				}
				damaged(t, a, w.batches, w.log.ID(), segment.Name(infos[which].First, infos[which].Last, 0))
				seal(t, a, w)
				agrees(t, a, w)
				if got := contents(t, copied); !slices.Equal(sortedKeys(got), sortedKeys(want)) || fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("the files are %v, want %v", sortedKeys(got), sortedKeys(want))
				}
			})
		}
	}
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Without the list of hashes, a gap between segments still shows that one is missing.
func TestAMissingSegmentInTheMiddle(t *testing.T) {
	w, dir, infos := sealedFolder(t, 62)
	for _, name := range []string{infos[1].Files[0].Name, infos[1].Files[1].Name, "SHA256SUMS"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	a := open(t, dir, w.log.ID())
	unreadable := damaged(t, a, w.batches, w.log.ID(), segment.Name(infos[1].First, infos[1].Last, 0), segment.Name(infos[0].Last+1, infos[1].Last, 0))
	if len(unreadable) == 0 || len(a.Damaged()) != 1 {
		t.Errorf("unreadable: %v; %v", unreadable, a.Damaged())
	}
	seal(t, a, w)
	agrees(t, a, w)
}

func TestSegmentsOfAnotherLogAreNamedAndStay(t *testing.T) {
	w, dir, infos := sealedFolder(t, 63)
	other, foreign, foreignInfos := sealedFolder(t, 64)
	for _, f := range foreignInfos[0].Files {
		text, err := os.ReadFile(filepath.Join(foreign, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := open(t, dir, w.log.ID())
	name := foreignInfos[0].Files[0].Name
	if errs := a.Damaged(); len(errs) == 0 || !strings.Contains(fmt.Sprint(errs), name) || !strings.Contains(fmt.Sprint(errs), other.log.ID().String()) {
		t.Errorf("damaged: %v", errs)
	}
	damaged(t, a, w.batches, w.log.ID(), name, segment.NameOf(infos[0].Files[0].Name))
	seal(t, a, w)
	damaged(t, a, w.batches, w.log.ID(), name)
	if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
		t.Errorf("the file of the other log: %v", err)
	}
	if a := open(t, foreign, w.log.ID()); a.Tip() != (eventlog.Head{}) || len(a.Damaged()) != len(foreignInfos) {
		t.Errorf("a folder of another log is at %v, damaged %v", a.Tip(), a.Damaged())
	}
}

func TestSegmentsThatAreThereTwice(t *testing.T) {
	w, dir, infos := sealedFolder(t, 65)
	larger := t.TempDir() // cut elsewhere
	b, err := archive.Open(archive.Options{Dir: larger, Log: w.log.ID(), SegmentRevisions: 120})
	if err != nil {
		t.Fatal(err)
	}
	seal(t, b, w)
	b.Close()
	if err := os.CopyFS(dir, withoutSums(t, larger, contents(t, dir))); err != nil {
		t.Fatal(err)
	}
	a := open(t, dir, w.log.ID())
	if len(a.Damaged()) == 0 {
		t.Error("nothing says so")
	}
	if a.Tip() != infos[len(infos)-1].After && a.Tip() != b.Tip() {
		t.Errorf("it ends at %v", a.Tip())
	}
	agrees(t, a, w)
	seal(t, a, w)
	agrees(t, a, w)
}

// withoutSums returns the files of a folder that are neither in another one nor the list of hashes.
func withoutSums(t testing.TB, dir string, other map[string]string) fs.FS {
	t.Helper()
	for name := range contents(t, dir) {
		if _, there := other[name]; there || name == "SHA256SUMS" {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return os.DirFS(dir)
}

// The batches are neither in the archive nor in the log any more.
func TestWhatIsLostForGood(t *testing.T) {
	w, dir, infos := sealedFolder(t, 66)
	w.store.Tamper(func(head []byte, batches []eventlog.Stored) ([]byte, []eventlog.Stored) {
		return head, slices.DeleteFunc(batches, func(s eventlog.Stored) bool { return s.First > 1 && s.First <= infos[len(infos)-1].Last })
	})
	name := infos[len(infos)-1].Files[0].Name
	if err := os.Truncate(filepath.Join(dir, name), 1000); err != nil {
		t.Fatal(err)
	}
	a := open(t, dir, w.log.ID())
	var missing *eventlog.MissingError
	if _, err := a.Seal(t.Context(), w.log, w.tip); !errors.As(err, &missing) || !strings.Contains(err.Error(), name) {
		t.Errorf("sealing: %v", err)
	}
	damaged(t, a, w.batches, w.log.ID())
}

func FuzzOpen(f *testing.F) {
	w := newAuthor(f, 70)
	w.writes(25)
	dir := f.TempDir()
	a := open(f, dir, w.log.ID())
	seal(f, a, w)
	info := a.Segments()[0]
	files := contents(f, dir)
	f.Add([]byte(files[info.Files[0].Name]), []byte(files[info.Files[1].Name]))
	f.Add([]byte{}, []byte(files[info.Files[1].Name]))
	f.Add([]byte(files[info.Files[0].Name]), []byte("STELE-P1"))
	f.Fuzz(func(t *testing.T, log, payloads []byte) {
		dir := t.TempDir()
		for i, text := range [][]byte{log, payloads} {
			if err := os.WriteFile(filepath.Join(dir, info.Files[i].Name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a := open(t, dir, w.log.ID())
		if a.Tip() == info.After { // else it is another log, which the hashes tell
			damaged(t, a, upTo(w, a), w.log.ID(), segment.NameOf(info.Files[0].Name))
		}
		a.Verify(t.Context())
	})
}
