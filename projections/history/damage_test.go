package history_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/history"
)

var files = []string{"records", "entries", "blocks", "cursor"}

// settled is a folder with a saved history.
func settled(t *testing.T, a *author) string {
	t.Helper()
	dir := t.TempDir()
	follow(t, dir, a.tape).stop()
	for _, f := range files {
		if len(read(t, dir, f)) == 0 {
			t.Fatalf("%s is empty", f)
		}
	}
	return dir
}

func duplicate(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// A crash may leave any part of the writes since the last cursor and, if the disk does not sync, any part
// of all writes.
func TestWhatIsCutOffComesFromTheLog(t *testing.T) {
	a := newAuthor(newTape(1), 11)
	a.writes(400)
	dir := settled(t, a)
	a.writes(100)
	for round := range 12 {
		torn := duplicate(t, dir)
		file := filepath.Join(torn, files[round%len(files)])
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, a.Int64N(info.Size())); err != nil {
			t.Fatal(err)
		}
		s := follow(t, torn, a.tape)
		a.ask(t, s.Store, 2)
		s.stop()
		if n := s.logs.count("made again"); n != 1 {
			t.Errorf("%s was short: told %d times: %s", file, n, s.logs)
		}
	}
}

func TestWhatTheCursorDoesNotVouchForIsCutOff(t *testing.T) {
	a := newAuthor(newTape(1), 12)
	a.writes(300)
	dir := settled(t, a)
	for _, f := range files[:3] {
		if err := os.WriteFile(filepath.Join(dir, f), append(read(t, dir, f), a.bytes(5000)...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.writes(100)
	s := follow(t, dir, a.tape)
	a.ask(t, s.Store, 5)
	s.stop()
	if n := s.logs.count("level="); n != 0 {
		t.Errorf("it said: %s", s.logs)
	}
	for _, f := range files {
		if string(read(t, dir, f)) != string(read(t, settled(t, a), f)) {
			t.Errorf("%s is not as if nothing had happened", f)
		}
	}
}

func TestACopyOfTheFolderAtAnyMomentWillDo(t *testing.T) {
	a := newAuthor(newTape(1), 13)
	dir := t.TempDir()
	s := follow(t, dir, a.tape)
	for range 12 {
		a.writes(40)
		copied := duplicate(t, dir) // while it writes
		s.reach(t, a.tip.Revision)
		other := follow(t, copied, a.tape)
		a.ask(t, other.Store, 3)
		other.stop()
		if a.IntN(3) == 0 {
			s.stop()
			s = follow(t, dir, a.tape)
		}
	}
}

func TestFlippedBytesAreFound(t *testing.T) {
	a := newAuthor(newTape(1), 14)
	a.writes(400)
	dir := settled(t, a)
	for round := range 12 {
		name := files[round%len(files)]
		damaged := duplicate(t, dir)
		data := read(t, damaged, name)
		for range 3 {
			data[a.IntN(len(data))] ^= byte(1 + a.IntN(255))
		}
		if err := os.WriteFile(filepath.Join(damaged, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := follow(t, damaged, a.tape)
		mustBeSame(t, "After", collect(t, s.After(t.Context(), history.Filter{}, 0, a.tip.Revision)), a.model.changes)
		s.stop()
		want := "made again from the log"
		if name == "records" {
			want = "a block of the history cannot be read"
		}
		if s.logs.count(want) == 0 {
			t.Errorf("%s was damaged, and nobody is told: %s", name, s.logs)
		}
	}
}

func TestABlockThatGoesBadIsReadFromTheLog(t *testing.T) {
	a := newAuthor(newTape(1), 15)
	a.writes(400)
	dir := settled(t, a)
	s := follow(t, dir, a.tape)
	data := read(t, dir, "records")
	for i := range data {
		data[i] ^= 0xff
	}
	f, err := os.OpenFile(filepath.Join(dir, "records"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	a.ask(t, s.Store, 5)
	if a.tape.back == 0 || s.logs.count("a block of the history cannot be read") == 0 {
		t.Errorf("the log was asked %d times; told: %s", a.tape.back, s.logs)
	}
	a.writes(200) // new versions of what cannot be read
	s.reach(t, a.tip.Revision)
	a.ask(t, s.Store, 5)
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
