package history_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/history"
)

// settled is a folder with a saved history.
func settled(t *testing.T, a *author) string {
	t.Helper()
	dir := t.TempDir()
	follow(t, dir, a.tape).stop()
	return dir
}

// filesOf returns the names of the files in a folder that are not empty.
func filesOf(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Size() > 0 {
			names = append(names, e.Name())
		}
	}
	return names
}

// duplicate copies a folder file by file, while its files may change and go.
func duplicate(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		from, err := os.Open(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.Create(filepath.Join(to, e.Name()))
		if err == nil {
			_, err = io.Copy(file, from)
		}
		if err := errors.Join(err, file.Close(), from.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// settle reads the whole index, so that damage is found, and waits until the history is there again.
func (r *running) settle(t *testing.T, revision uint64) {
	t.Helper()
	if err := history.Keys(r.Store, func(_, _ []byte) {}); err != nil && !errors.Is(err, history.ErrBehind) {
		t.Error(err)
	}
	r.reach(t, revision)
}

// A disk that does not sync may leave any part of any file.
func TestAFolderWithATruncatedFileIsAsGoodAsNew(t *testing.T) {
	history.SmallMemory(t)
	a := newAuthor(newTape(1), 11)
	a.writes(3000)
	dir := settled(t, a)
	a.writes(100)
	for _, name := range filesOf(t, dir) {
		torn := duplicate(t, dir)
		file := filepath.Join(torn, name)
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, a.Int64N(info.Size())); err != nil {
			t.Fatal(err)
		}
		s := follow(t, torn, a.tape)
		s.settle(t, a.tip.Revision)
		a.ask(t, s.Store, 2)
		s.stop()
		if n := s.logs.count("made again"); n > 1 || n == 0 && strings.HasSuffix(name, ".sst") {
			t.Errorf("%s was short: told %d times: %s", name, n, s.logs)
		}
	}
}

func TestAFolderWithoutOneOfItsFilesIsAsGoodAsNew(t *testing.T) {
	history.SmallMemory(t)
	a := newAuthor(newTape(1), 12)
	a.writes(3000)
	dir := settled(t, a)
	for _, name := range filesOf(t, dir) {
		torn := duplicate(t, dir)
		if err := os.Remove(filepath.Join(torn, name)); err != nil {
			t.Fatal(err)
		}
		s := follow(t, torn, a.tape)
		s.settle(t, a.tip.Revision)
		a.ask(t, s.Store, 2)
		s.stop()
	}
}

func TestACopyOfTheFolderAtAnyMomentWillDo(t *testing.T) {
	history.SmallMemory(t)
	a := newAuthor(newTape(1), 13)
	dir := t.TempDir()
	s := follow(t, dir, a.tape)
	for range 12 {
		a.writes(300)
		copied := duplicate(t, dir) // while it writes
		s.reach(t, a.tip.Revision)
		other := follow(t, copied, a.tape)
		other.settle(t, a.tip.Revision)
		a.ask(t, other.Store, 3)
		other.stop()
		if a.IntN(3) == 0 {
			s.stop()
			s = follow(t, dir, a.tape)
		}
	}
}

// crashed follows a tape on a file system in memory, which can crash.
func crashed(t *testing.T, files *vfs.MemFS, log *tape) (s *running) {
	t.Helper()
	s = &running{logs: new(logs)}
	var err error
	o := history.Options{Dir: "history", Log: log, Start: log.start(), Logger: slog.New(slog.NewTextHandler(s.logs, nil))}
	if s.Store, err = history.Open(history.On(files, o)); err != nil {
		t.Fatal(err)
	}
	s.begin(t)
	s.reach(t, log.tip.Revision)
	return s
}

// found returns the revision up to which the index on a file system goes.
func found(t *testing.T, files *vfs.MemFS, log *tape) uint64 {
	t.Helper()
	s, err := history.Open(history.On(files, history.Options{Dir: "history", Log: log, Start: log.start()}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return history.Position(s)
}

// After a crash the index has a prefix of the log, and goes on from there.
func TestACrashAtAnyMomentLeavesAPrefix(t *testing.T) {
	history.SmallMemory(t)
	for seed := range seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			a := newAuthor(newTape(1), 40+seed)
			files := vfs.NewCrashableMem()
			if err := files.MkdirAll("history", 0o700); err != nil {
				t.Fatal(err)
			}
			s := crashed(t, files, a.tape)
			kept := uint64(0)
			for range 15 {
				a.writes(a.IntN(600))
				if a.IntN(2) == 0 {
					s.reach(t, a.tip.Revision)
				}
				after := files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: a.IntN(101), RNG: a.Rand})
				s.stop()
				kept = max(kept, found(t, after, a.tape))
				s, files = crashed(t, after, a.tape), after
				s.settle(t, a.tip.Revision)
				a.ask(t, s.Store, 2)
				if n := s.logs.count("made again"); n != 0 {
					t.Fatalf("a crash damaged the index: %s", s.logs)
				}
			}
			if kept == 0 {
				t.Error("no crash left anything")
			}
		})
	}
}

func TestFlippedBytesAreFound(t *testing.T) {
	history.SmallMemory(t)
	a := newAuthor(newTape(1), 14)
	a.writes(3000)
	dir := settled(t, a)
	for range 3 {
		for _, name := range filesOf(t, dir) {
			damaged := duplicate(t, dir)
			file := filepath.Join(damaged, name)
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				data[a.IntN(len(data))] ^= byte(1 + a.IntN(255))
			}
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			s := follow(t, damaged, a.tape)
			s.settle(t, a.tip.Revision)
			a.ask(t, s.Store, 2)
			s.stop()
			if strings.HasSuffix(name, ".sst") && s.logs.count("made again from the log") != 1 {
				t.Errorf("%s was damaged, and nobody is told: %s", name, s.logs)
			}
		}
	}
}

// Whoever reads damaged data hears that the history is behind, and never a wrong answer.
func TestAnIndexThatGoesBadIsMadeAgain(t *testing.T) {
	history.SmallMemory(t)
	a := newAuthor(newTape(1), 15)
	a.writes(3000)
	dir := settled(t, a)
	s := follow(t, dir, a.tape)
	for _, name := range filesOf(t, dir) {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the index has replaced it in the background
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range data {
			data[i] ^= 0xff
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(data); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	behind := false
	for i := 0; i < 1000 && !behind; i++ {
		p := a.places[a.IntN(len(a.places))]
		want := a.model.versions(p, a.tip.Revision)
		c, err := s.Get(t.Context(), p.GroupResource, p.namespace, p.name, a.tip.Revision)
		if behind = errors.Is(err, history.ErrBehind); behind || s.Revision() < a.tip.Revision {
			break
		}
		if err != nil || len(want) > 0 && !same(c, want[0]) {
			t.Fatalf("%v: %v, %v", p, c, err)
		}
	}
	s.settle(t, a.tip.Revision)
	a.ask(t, s.Store, 5)
	a.writes(200)
	s.reach(t, a.tip.Revision)
	a.ask(t, s.Store, 5)
	if s.logs.count("made again") != 1 {
		t.Errorf("told: %s", s.logs)
	}
}

func TestAFolderOfAnotherLogIsMadeAgain(t *testing.T) {
	other := newAuthor(newTape(2), 16)
	other.writes(300)
	dir := settled(t, other)
	a := newAuthor(newTape(1), 17)
	a.writes(300)
	s := follow(t, dir, a.tape)
	a.ask(t, s.Store, 5)
	if n := s.logs.count("made again"); n != 1 {
		t.Errorf("told %d times: %s", n, s.logs)
	}
}

func TestAFolderOfTheFirstFormatIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"records", "entries", "blocks", "cursor"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := newAuthor(newTape(1), 18)
	a.writes(100)
	s := follow(t, dir, a.tape)
	a.ask(t, s.Store, 5)
	if n := s.logs.count("made again"); n != 1 {
		t.Errorf("told %d times: %s", n, s.logs)
	}
	if _, err := os.Stat(filepath.Join(dir, "records")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old files: %v", err)
	}
}

func TestAFolderInUseIsLeftAlone(t *testing.T) {
	a := newAuthor(newTape(1), 20)
	a.writes(100)
	dir := t.TempDir()
	s := follow(t, dir, a.tape)
	if second, err := history.Open(history.Options{Dir: dir, Log: a.tape, Start: a.start()}); err == nil {
		second.Close()
		t.Error("it was opened twice")
	}
	a.writes(100)
	s.reach(t, a.tip.Revision)
	a.ask(t, s.Store, 5)
}

// holed is a log that lacks batches.
type holed struct{ *tape }

func (holed) CatchUp(context.Context, eventlog.Head) ([]*eventlog.Batch, error) {
	return nil, &eventlog.MissingError{From: 1, To: 2}
}

func TestALogWithAHoleLeavesTheIndex(t *testing.T) {
	a := newAuthor(newTape(1), 33)
	a.writes(300)
	dir := settled(t, a)
	s, err := history.Open(history.Options{Dir: dir, Log: holed{a.tape}, Start: a.start()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); !errors.As(err, new(*eventlog.MissingError)) {
		t.Errorf("Run: %v", err)
	}
	if at := history.Position(s); at != a.tip.Revision {
		t.Errorf("the index ends at %d", at)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// The log may have been cut at any batch, even one whose beginning is in the folder.
func TestALogThatWasRestoredFromABackup(t *testing.T) {
	for seed := range seeds() {
		a := newAuthor(newTape(1), 19+seed)
		a.writes(300)
		saved := settled(t, a)
		for lost := range 6 {
			for _, goesOn := range []int{0, 20} {
				t.Run(fmt.Sprintf("seed %d, %d batches lost, %d others written", seed, lost, goesOn), func(t *testing.T) {
					restored := &author{Rand: a.Rand, tape: a.tape.cut(len(a.batches) - lost), living: map[place]uint64{}, places: a.places}
					for _, b := range restored.batches {
						restored.know(b)
					}
					restored.writes(goesOn)
					s := follow(t, duplicate(t, saved), restored.tape)
					mustBeSame(t, "After", collect(t, s.After(t.Context(), history.Filter{}, 0, 1<<62)), restored.model.changes)
				})
			}
		}
	}
}

// The folder's position is now in the middle of a batch.
func TestALogThatWasRestoredAndGoesOnWithALargeBatch(t *testing.T) {
	a := newAuthor(newTape(1), 31)
	a.writes(300)
	saved := settled(t, a)
	restored := &author{Rand: a.Rand, tape: a.tape.cut(len(a.batches) - 30), living: map[place]uint64{}, places: a.places}
	for _, b := range restored.batches {
		restored.know(b)
	}
	var events []*eventlog.Event
	for i := range 500 {
		p := place{schema.GroupResource{Resource: "pods"}, "ns", fmt.Sprint("new-", i)}
		e := &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CREATED, Object: restored.object(p)}}
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, restored.bytes(100))
		events = append(events, e)
	}
	restored.commit(events...)
	s := follow(t, saved, restored.tape)
	mustBeSame(t, "After", collect(t, s.After(t.Context(), history.Filter{}, 0, 1<<62)), restored.model.changes)
}
