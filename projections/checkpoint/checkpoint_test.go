package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"stele.dev/stele/projections/checkpoint"
)

// content is what tests save: sections of records.
type content struct {
	sections []string
	records  map[string][][]byte
}

// made returns some content, larger with n. Records vary in size, and one is larger than a block.
func made(seed uint64, n int) *content {
	rng := rand.New(rand.NewPCG(seed, 1))
	c := &content{sections: []string{"a", "b", "empty", "last"}, records: map[string][][]byte{}}
	for _, name := range []string{"a", "b", "last"} {
		for range n {
			record := make([]byte, rng.IntN(200))
			for i := range record {
				record[i] = "abcdefgh"[rng.IntN(8)]
			}
			c.records[name] = append(c.records[name], record)
		}
	}
	c.records["b"] = append(c.records["b"], bytes.Repeat([]byte("large "), 100_000))
	return c
}

func (c *content) save(to checkpoint.Sink) error {
	for _, name := range c.sections {
		if err := to.Begin(name, 3); err != nil {
			return err
		}
		for _, r := range c.records[name] {
			if err := to.Put(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads the checkpoint of a revision into content.
func read(t *testing.T, f *checkpoint.Folder, revision uint64) (*content, error) {
	t.Helper()
	c := &content{sections: []string{"a", "b", "empty", "last"}, records: map[string][][]byte{}}
	err := f.Read(revision, func(r *checkpoint.Reader) error {
		for _, name := range c.sections {
			if err := r.Section(name, 3); err != nil {
				return err
			}
			parse := func(b []byte) ([]byte, error) { return bytes.Clone(b), nil }
			if err := checkpoint.Records(t.Context(), r, parse, func(b []byte) error {
				c.records[name] = append(c.records[name], b)
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return c, err
}

func (c *content) equal(other *content) bool {
	for _, name := range c.sections {
		if !slices.EqualFunc(c.records[name], other.records[name], bytes.Equal) {
			return false
		}
	}
	return true
}

func open(t *testing.T, dir string, files checkpoint.Files) *checkpoint.Folder {
	t.Helper()
	f, err := checkpoint.Open(dir, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestWhatWasWrittenIsRead(t *testing.T) {
	f, c := open(t, t.TempDir(), nil), made(1, 5000)
	written, err := f.Write(t.Context(), 7, 0, c.save)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(t, f, 7)
	if err != nil || !c.equal(got) {
		t.Errorf("what was read differs: %v", err)
	}
	if hash, err := checkpoint.HashOf(c.save); err != nil || hash != written.Info {
		t.Errorf("%+v, without a file %+v, %v", written.Info, hash, err)
	}
	if good := f.Good(); len(good) != 1 || good[0] != written {
		t.Errorf("good are %v, written was %v", good, written)
	}
}

func TestTheHashIsThatOfSectionsAndRecords(t *testing.T) {
	of := func(change func(*content)) checkpoint.Hash {
		c := made(1, 10)
		change(c)
		info, err := checkpoint.HashOf(c.save)
		if err != nil {
			t.Fatal(err)
		}
		return info.Fold
	}
	seen := map[checkpoint.Hash]string{of(func(*content) {}): "nothing"}
	for what, change := range map[string]func(*content){
		"a record's byte":       func(c *content) { c.records["a"][3][0]++ },
		"a missing record":      func(c *content) { c.records["a"] = c.records["a"][:9] },
		"a record's section":    func(c *content) { c.records["empty"] = c.records["a"][9:]; c.records["a"] = c.records["a"][:9] },
		"the order of records":  func(c *content) { r := c.records["b"]; r[0], r[1] = r[1], r[0] },
		"two records in one":    func(c *content) { c.records["a"] = append(c.records["a"][:8], slices.Concat(c.records["a"][8:]...)) },
		"the name of a section": func(c *content) { c.sections[2] = "other" },
	} {
		hash := of(change)
		if same, is := seen[hash]; is {
			t.Errorf("%s and %s give the same hash", what, same)
		}
		seen[hash] = what
	}
}

func TestOtherSectionsAndVersionsAreNamed(t *testing.T) {
	f := open(t, t.TempDir(), nil)
	if _, err := f.Write(t.Context(), 1, 0, made(1, 1).save); err != nil {
		t.Fatal(err)
	}
	for want, use := range map[string]func(*checkpoint.Reader) error{
		`the checkpoint has "a" where this version expects "z"`:           func(r *checkpoint.Reader) error { return r.Section("z", 3) },
		"a was made by version 3 of its code; this program has version 4": func(r *checkpoint.Reader) error { return r.Section("a", 4) },
		"the checkpoint has more in it than this version reads":           func(*checkpoint.Reader) error { return nil },
	} {
		if err := f.Read(1, use); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if good := f.Good(); len(good) != 1 { // it was good when it was written
		t.Errorf("good are %v", good)
	}
}

// Every byte of the file counts: no flipped bit, no missing end and no additional byte goes unnoticed.
func TestDamageIsNoticed(t *testing.T) {
	dir := t.TempDir()
	f, c := open(t, dir, nil), made(2, 6)
	written, err := f.Write(t.Context(), 9, 0, c.save)
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(written.File)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, damaged []byte) {
		t.Helper()
		if err := os.WriteFile(written.File, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := read(t, f, 9); err == nil {
			t.Errorf("%s: not noticed", what)
		}
		if _, err := f.Verify(t.Context(), 9, 0, nil); err == nil {
			t.Errorf("%s: not noticed by Verify", what)
		}
	}
	for at := range good {
		flipped := bytes.Clone(good)
		flipped[at] ^= 1 << (at % 8)
		check(fmt.Sprint("flipped at ", at), flipped)
		check(fmt.Sprint("cut at ", at), good[:at])
	}
	check("a byte more", append(bytes.Clone(good), 0))
	check("twice", slices.Concat(good, good))
	check("zeros", make([]byte, len(good)))
	if err := os.WriteFile(written.File, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, f, 9); err != nil || !c.equal(got) {
		t.Errorf("the undamaged file: %v", err)
	}
}

func TestTheTwoNewestGoodAreKept(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir, nil)
	for revision := range uint64(5) {
		if _, err := f.Write(t.Context(), revision+1, 0, made(revision, 3).save); err != nil {
			t.Fatal(err)
		}
		if covered := f.Covered(); covered != revision { // none after the first
			t.Errorf("after %d checkpoints, covered is %d", revision+1, covered)
		}
	}
	f = open(t, dir, nil) // another process
	if is, err := f.Revisions(); err != nil || !slices.Equal(is, []uint64{5, 4}) {
		t.Fatalf("%v, %v", is, err)
	}
	if err := os.Truncate(f.Path(5), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, f, 5); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Fatal(err)
	}
	if _, err := read(t, f, 4); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(t.Context(), 6, 0, made(6, 3).save); err != nil {
		t.Fatal(err)
	}
	if is, err := f.Revisions(); err != nil || !slices.Equal(is, []uint64{6, 4}) {
		t.Errorf("%v, %v: want the new one, and the older one that was good", is, err)
	}
}

// removing is a file system that calls before ahead of each removal.
type removing struct {
	checkpoint.Disk
	before func(name string)
}

func (r removing) Remove(name string) error {
	r.before(name)
	return r.Disk.Remove(name)
}

// What is covered may be erased from the log, and then no older checkpoint can be compared with it: they are removed before.
func TestNoCheckpointIsOlderThanWhatIsCovered(t *testing.T) {
	dir, removed := t.TempDir(), []string{}
	var f *checkpoint.Folder
	f = open(t, dir, removing{before: func(name string) {
		if f.Covered() > 1 {
			t.Errorf("revision %d is covered while %s is there", f.Covered(), filepath.Base(name))
		}
		removed = append(removed, filepath.Base(name))
	}})
	for revision := range uint64(3) {
		if _, err := f.Write(t.Context(), revision+1, 0, made(revision, 3).save); err != nil {
			t.Fatal(err)
		}
	}
	if f.Covered() != 2 || !slices.Equal(removed, []string{filepath.Base(f.Path(1))}) {
		t.Errorf("revision %d is covered, and %v were removed", f.Covered(), removed)
	}
}

func TestAnEndedContextEndsAWrite(t *testing.T) {
	f := open(t, t.TempDir(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Write(ctx, 1, checkpoint.Background, made(1, 5000).save); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if is, err := f.Revisions(); err != nil || len(is) != 0 {
		t.Errorf("%v, %v", is, err)
	}
}

var errCrashed = errors.New("crashed")

// crashing is a file system that fails at one operation and at all later ones, and that loses at the crash what was not
// synced.
type crashing struct {
	dir      string
	left     int               // operations until the crash
	unsynced map[string]int64  // file -> size that is durable
	renamed  map[string]string // new name -> old name, not durable
}

func (c *crashing) step() error {
	if c.left--; c.left < 0 {
		return errCrashed
	}
	return nil
}

func (c *crashing) MakeFolder(name string) error { return os.MkdirAll(name, 0o700) }
func (c *crashing) Names(folder string) (names []string, err error) {
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (c *crashing) Open(name string) (io.ReadCloser, error) {
	if err := c.step(); err != nil {
		return nil, err
	}
	return os.Open(name)
}

func (c *crashing) Create(name string) (checkpoint.File, error) {
	if err := c.step(); err != nil {
		return nil, err
	}
	file, err := os.Create(name)
	c.unsynced[name] = 0
	return &crashingFile{c, file}, err
}

func (c *crashing) Rename(from, to string) error {
	if err := c.step(); err != nil {
		return err
	}
	c.renamed[to] = from
	if size, is := c.unsynced[from]; is {
		delete(c.unsynced, from)
		c.unsynced[to] = size
	}
	return os.Rename(from, to)
}

func (c *crashing) Remove(name string) error {
	if err := c.step(); err != nil {
		return err
	}
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (c *crashing) SyncFolder(string) error {
	if err := c.step(); err != nil {
		return err
	}
	clear(c.renamed)
	return nil
}

// crash loses what was not durable. If not, it was durable by chance.
func (c *crashing) crash(lose bool) {
	if !lose {
		return
	}
	for file, size := range c.unsynced {
		_ = os.Truncate(file, size)
	}
	for to, from := range c.renamed {
		_ = os.Rename(to, from)
	}
}

type crashingFile struct {
	*crashing
	file *os.File
}

func (f *crashingFile) Write(b []byte) (int, error) {
	if err := f.step(); err != nil {
		n, _ := f.file.Write(b[:len(b)/2])
		return n, err
	}
	return f.file.Write(b)
}

func (f *crashingFile) Sync() error {
	if err := f.step(); err != nil {
		return err
	}
	info, err := f.file.Stat()
	if err == nil {
		for name := range f.unsynced {
			f.unsynced[name] = info.Size()
		}
	}
	return err
}

func (f *crashingFile) Close() error { return f.file.Close() }

// Whatever happens while the second checkpoint is written, one that is good remains, and none that is bad is believed.
func TestACrashAtEveryOperation(t *testing.T) {
	first, second := made(1, 5), made(2, 5)
	for _, lose := range []bool{true, false} {
		for left, done := 0, false; !done; left++ {
			dir := t.TempDir()
			if _, err := open(t, dir, nil).Write(t.Context(), 1, 0, first.save); err != nil {
				t.Fatal(err)
			}
			files := &crashing{dir: dir, left: left, unsynced: map[string]int64{}, renamed: map[string]string{}}
			f := open(t, dir, files)
			_, err := f.Write(t.Context(), 2, 0, second.save)
			done = err == nil
			if !done && !errors.Is(err, errCrashed) {
				t.Fatal(err)
			}
			files.crash(lose)

			f = open(t, dir, nil)
			revisions, err := f.Revisions()
			if err != nil {
				t.Fatal(err)
			}
			newest := uint64(0)
			for _, revision := range revisions {
				got, err := read(t, f, revision)
				want := map[uint64]*content{1: first, 2: second}[revision]
				if err == nil && !want.equal(got) {
					t.Errorf("crash at operation %d (lose %v): the checkpoint of revision %d has other content", left, lose, revision)
				}
				if err == nil {
					newest = max(newest, revision)
				}
			}
			if newest == 0 || done && newest != 2 {
				t.Errorf("crash at operation %d (lose %v): the newest good checkpoint is %d of %v", left, lose, newest, revisions)
			}
			if rest, err := filepath.Glob(filepath.Join(dir, "*.tmp")); err != nil || len(rest) > 0 {
				t.Errorf("crash at operation %d (lose %v): %v are left over, %v", left, lose, rest, err)
			}
			if left > 1000 {
				t.Fatal("it never ends")
			}
		}
	}
}
