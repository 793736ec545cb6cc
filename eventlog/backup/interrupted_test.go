package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/segment"
)

// everything is a backup with everything that a backup can have: segments of which a part is erased, batches, a
// checkpoint, floors and keys.
func everything(t testing.TB) (stores.Store, *backup.Manifest) {
	p := newSealed(t, 60)
	p.grow(20)
	p.record(40, strings.Repeat("state ", 100))
	p.recordPast(map[string]uint64{"tests": 20})
	_, err := p.archive.Rewrite(t.Context(), p.archive.Segments()[1].First, func(*eventlog.Batch, *eventlog.Event) segment.Keep { return segment.Nothing })
	require.NoError(t, err)
	checkpoints := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(checkpoints, "some.ckpt"), bytes.Repeat([]byte("state "), 100), 0o600))
	store := stores.NewFolder(t.TempDir())
	m := p.plant.backup(store, func(o *backup.CreateOptions) {
		o.BatchesBytes = 2 << 10
		o.Keys = []backup.KeyFile{{Name: "pki/ca.crt", Content: []byte("certificate")}, {Name: "pki/ca.key", Content: []byte("key")}}
		o.Source = &backup.Local{Log: p.log, Archive: p.archive,
			Floors: func() (map[string]uint64, error) { return map[string]uint64{"tests": 20}, nil },
			Checkpoints: func() (string, []backup.StateCheckpoint) {
				return checkpoints, []backup.StateCheckpoint{{Revision: 40, File: backup.StateFile{Name: "checkpoints/some.ckpt", Size: 600}}}
			}}
	})
	return store, m
}

// targets are the moments to which the log is restored: its end, one within a file of batches, and one within a segment.
func targets(m *backup.Manifest) map[string]backup.Target {
	var batches, segments backup.Part
	for _, p := range m.Parts {
		if p.Kind == backup.BatchesPart {
			batches = p
		} else {
			segments = p
		}
	}
	return map[string]backup.Target{"the end": {}, "within batches": {Revision: batches.After.Revision - 1}, "within a segment": {Revision: segments.After.Revision - 2}}
}

// watched is a restore that calls step before and after whatever it changes, and while it reads the files of the backup.
type watched struct {
	*restoration
	step func(what string) error
}

// watch lets a restore call step, whose error is that of the operation.
func watch(r *restoration, step func(what string) error) *watched {
	w := &watched{r, step}
	r.Store = steppedStore{r.Store, step}
	r.Floors = filepath.Join(r.Dir, "retention", "floors.json")
	open := r.OpenStore
	r.OpenStore = func(ctx context.Context) (eventlog.Backend, error) {
		if err := step("open the log's store"); err != nil {
			return nil, err
		}
		b, err := open(ctx)
		return &steppedBackend{b, step}, err
	}
	r.Complete = func(restored *backup.Restored) error { // as the command: twice is as good as once
		for _, name := range []string{"log.id", "claimed"} {
			if err := step("complete " + name); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(r.Dir, name), []byte(restored.Log.String()), 0o600); err != nil {
				return err
			}
		}
		return step("completed")
	}
	return w
}

type steppedStore struct {
	stores.Store
	step func(string) error
}

func (s steppedStore) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := s.step("open " + name); err != nil {
		return nil, err
	}
	r, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &steppedReader{r, func() error { return s.step("go on with " + name) }, 0}, nil
}

// steppedReader calls step once, after the first bytes.
type steppedReader struct {
	io.ReadCloser
	step  func() error
	reads int
}

func (r *steppedReader) Read(b []byte) (int, error) {
	if r.reads++; r.reads == 2 {
		if err := r.step(); err != nil {
			return 0, err
		}
	}
	return r.ReadCloser.Read(b[:min(len(b), 1000)])
}

type steppedBackend struct {
	eventlog.Backend
	step func(string) error
}

func (b *steppedBackend) Append(ctx context.Context, p eventlog.Proposal) (eventlog.Answer, error) {
	if err := b.step(fmt.Sprint("append ", p.At)); err != nil {
		return eventlog.Answer{}, err
	}
	answer, err := b.Backend.Append(ctx, p)
	if failed := b.step(fmt.Sprint("appended ", p.At)); failed != nil {
		return eventlog.Answer{}, failed
	}
	return answer, err
}

func (b *steppedBackend) Close() error {
	return errors.Join(b.Backend.Close(), b.step("close the log's store"))
}

// folder returns a new folder in memory, if there is such a file system. Restores of tests are killed, machines are not, so
// that waiting for a disk would prove nothing.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "restore")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// restore returns a restore into a new folder.
func restore(t testing.TB, store stores.Store, m *backup.Manifest) *restoration {
	return in(folder(t), newRestoration(t, store, m))
}

// in moves a restore to a folder.
func in(dir string, r *restoration) *restoration {
	r.Dir, r.Marker = dir, filepath.Join(dir, filepath.Base(r.Marker))
	return r
}

// outcome is what a restore leaves: the files of the folder, and the batches of the log's store but the one that begins
// the epoch, which no two restores have in common. Of contents it has the SHA-256.
type outcome struct {
	Files    map[string]string
	Batches  []string
	Restored backup.Restored
}

func (w *watched) outcome(t testing.TB, restored *backup.Restored) outcome {
	t.Helper()
	o := outcome{Files: map[string]string{}, Restored: *restored}
	all := w.into.Batches()
	for _, b := range all[:len(all)-1] {
		sum, err := stores.SumOf(bytes.NewReader(b.Value))
		require.NoError(t, err)
		o.Batches = append(o.Batches, fmt.Sprint(b.First, " ", sum))
	}
	err := filepath.WalkDir(w.Dir, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		if err == nil {
			o.Files[strings.TrimPrefix(file, w.Dir)], err = stores.SumOf(bytes.NewReader(text))
		}
		return err
	})
	require.NoError(t, err)
	return o
}

// again is the same restore in another folder, by another process.
func (w *watched) again(t testing.TB, dir string, step func(string) error) *watched {
	r := in(dir, newRestoration(t, w.Store.(steppedStore).Store, w.Manifest))
	r.To = w.To
	return watch(r, step)
}

func nothing(string) error { return nil }

// unfinished fails unless the folder is marked, so that no server starts on it, and another restore into it is refused.
func (w *watched) unfinished(t testing.TB, what string) {
	t.Helper()
	require.FileExists(t, w.Marker, what)
	other := w.RestoreOptions
	other.To = backup.Target{Revision: 3}
	_, err := backup.Restore(t.Context(), other)
	require.ErrorContains(t, err, "finish that one, or delete the folder", what)
	require.FileExists(t, w.Marker, what)
}

// A restore is killed at every step. The folder that it leaves is marked, and the same restore continues it to what a
// restore in one go makes.
func TestARestoreThatIsKilledAtAnyStepIsContinued(t *testing.T) {
	store, m := everything(t)
	for name, to := range targets(m) {
		t.Run(name, func(t *testing.T) {
			var copies, steps []string
			r := restore(t, store, m)
			r.To = to
			w := watch(r, func(what string) error {
				dir := folder(t)
				require.NoError(t, os.CopyFS(dir, os.DirFS(r.Dir)))
				copies, steps = append(copies, dir), append(steps, what)
				return nil
			})
			want := w.outcome(t, w.run(t))
			require.Greater(t, len(steps), 30, steps)
			require.NotContains(t, want.Files, "/restoring.json")
			last := folder(t)
			require.NoError(t, os.CopyFS(last, os.DirFS(copies[len(copies)-1])))
			for i, dir := range copies {
				resumed := w.again(t, dir, nothing)
				resumed.unfinished(t, steps[i])
				require.Equal(t, want, resumed.outcome(t, resumed.run(t)), "killed before: %s", steps[i])
			}
			// It is killed while it removes what only the restore needs: some of these files are gone.
			staged, err := filepath.Glob(filepath.Join(last, "restoring", "*"))
			require.NoError(t, err)
			require.NotEmpty(t, staged)
			for i := range staged {
				require.NoError(t, os.RemoveAll(staged[i])) // also those of the rounds before
				dir := folder(t)
				require.NoError(t, os.CopyFS(dir, os.DirFS(last)))
				resumed := w.again(t, dir, nothing)
				require.Equal(t, want, resumed.outcome(t, resumed.run(t)))
			}
		})
	}
}

// The first thing that a restore writes is the mark. If it is killed while it writes that, the folder is as good as empty.
func TestARestoreThatIsKilledBeforeItsMarkIsWholeBeginsAgain(t *testing.T) {
	store, m := everything(t)
	r := restore(t, store, m)
	require.NoError(t, os.WriteFile(filepath.Join(r.Dir, ".restoring.json123456"), []byte(`{"backup":`), 0o600))
	require.Equal(t, m.Head, backup.PositionOf(r.run(t).At))
	assert.NoFileExists(t, filepath.Join(r.Dir, ".restoring.json123456"))
}

// Every step fails once, as on a full disk or with a lost connection, and then, by chance, a later one.
func TestARestoreThatFailsAtAnyStepIsContinued(t *testing.T) {
	store, m := everything(t)
	random := rand.New(rand.NewPCG(1, 2))
	for name, to := range targets(m) {
		t.Run(name, func(t *testing.T) {
			whole := restore(t, store, m)
			whole.To = to
			steps := 0
			w := watch(whole, func(string) error { steps++; return nil })
			want := w.outcome(t, w.run(t))
			for n := range steps {
				dir := folder(t)
				for at := n; at < steps; at += 1 + random.IntN(steps) {
					failed, count := "", 0
					ctx, interrupt := context.WithCancel(t.Context())
					failing := w.again(t, dir, func(what string) error {
						if count++; count <= at {
							return nil
						}
						failed = what // and whatever follows
						interrupt()   // a log whose store is gone for good is asked until then
						return stores.Final(fmt.Errorf("%s: %w", what, errFault))
					})
					_, err := backup.Restore(ctx, failing.RestoreOptions)
					interrupt()
					if failed == "" { // it has fewer steps, because files are there
						require.NoError(t, err)
						require.NoError(t, os.RemoveAll(dir))
						require.NoError(t, os.Mkdir(dir, 0o700))
						continue
					}
					require.Error(t, err, failed)
					failing.unfinished(t, failed)
				}
				resumed := w.again(t, dir, nothing)
				require.Equal(t, want, resumed.outcome(t, resumed.run(t)), "failed at step %d", n)
			}
		})
	}
}

// lie is what a store returns in place of a file.
type lie struct {
	name    string
	content func(text []byte) io.Reader
	named   string // the error has this, and the name of the file
}

var lies = []lie{
	{"an error at once", func([]byte) io.Reader { return failing{} }, errFault.Error()},
	{"an error in the middle", func(b []byte) io.Reader { return io.MultiReader(bytes.NewReader(b[:len(b)/2]), failing{}) }, errFault.Error()},
	{"an error at the end", func(b []byte) io.Reader { return io.MultiReader(bytes.NewReader(b), failing{}) }, errFault.Error()},
	{"nothing", func([]byte) io.Reader { return bytes.NewReader(nil) }, "is truncated"},
	{"the first half", func(b []byte) io.Reader { return bytes.NewReader(b[:len(b)/2]) }, "is truncated"},
	{"all but the last byte", func(b []byte) io.Reader { return bytes.NewReader(b[:len(b)-1]) }, "is truncated"},
	{"a byte more", func(b []byte) io.Reader { return bytes.NewReader(append(bytes.Clone(b), 0)) }, "has more than"},
	{"another bit", func(b []byte) io.Reader { return bytes.NewReader(flipped(b, len(b)/2)) }, "is damaged"},
	{"zeros", func(b []byte) io.Reader { return bytes.NewReader(make([]byte, len(b))) }, "is damaged"},
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFault }

// lying is a store that lies at its n-th read, and is honest otherwise. It must not be changed.
type lying struct {
	stores.Store
	t     testing.TB
	n     int
	lie   func([]byte) io.Reader
	opens int
	lied  string // about this file
}

func (l *lying) Put(context.Context, string, io.ReaderAt, int64) error {
	l.t.Error("a restore writes to the store")
	return errFault
}

func (l *lying) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := l.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	if l.opens++; l.opens != l.n+1 {
		return r, nil
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	l.lied = name
	return io.NopCloser(l.lie(text)), err
}

// A store returns something else at its n-th read. The restore names the file, makes no log of it, keeps nothing of it,
// and continues once the store is honest.
func TestWhatAStoreReturnsInPlaceOfAFileIsRefusedByName(t *testing.T) {
	store, m := everything(t)
	parts := map[string]bool{}
	for _, p := range m.Parts {
		for _, f := range p.Files {
			parts[m.Log+"/"+f.Stored] = true
		}
	}
	sums := map[string]string{}
	for _, f := range m.Files() {
		sums[f.Name] = f.PlainSHA256
	}
	whole := watch(restore(t, store, m), nothing)
	want := whole.outcome(t, whole.run(t))
	for _, lie := range lies {
		t.Run(lie.name, func(t *testing.T) {
			for n := 0; ; n++ {
				w := watch(restore(t, store, m), nothing)
				l := &lying{Store: store, t: t, n: n, lie: lie.content}
				w.Store, w.Patience = l, stores.Patience{Attempts: 1, Pause: time.Millisecond}
				_, err := backup.Restore(t.Context(), w.RestoreOptions)
				if l.lied == "" {
					require.NoError(t, err)
					require.Equal(t, len(m.Files()), n, "every file was lied about")
					return
				}
				require.ErrorContains(t, err, l.lied)
				require.ErrorContains(t, err, lie.named)
				require.FileExists(t, w.Marker)
				if parts[l.lied] {
					require.Nil(t, w.into, "a log is made of %s", l.lied)
				}
				for name, sum := range sums {
					if text, err := os.ReadFile(filepath.Join(w.Dir, name)); err == nil {
						is, _ := stores.SumOf(bytes.NewReader(text))
						require.Equal(t, sum, is, "%s after a lie about %s", name, l.lied)
					}
				}
				w.Store = store
				require.Equal(t, want, w.outcome(t, w.run(t)))
			}
		})
	}
}

// A store that fails once at its n-th read is asked again, and nothing of the first answer stays.
func TestAStoreThatFailsOnceAtAnyReadDoesNoHarm(t *testing.T) {
	store, m := everything(t)
	whole := watch(restore(t, store, m), nothing)
	want := whole.outcome(t, whole.run(t))
	for n := range len(m.Files()) {
		w := watch(restore(t, store, m), nothing)
		l := &lying{Store: store, t: t, n: n, lie: lies[1].content}
		w.Store = l
		require.Equal(t, want, w.outcome(t, w.run(t)))
		require.NotEmpty(t, l.lied)
	}
}

// What an interrupted restore has left is used only if it is what the backup has.
func TestAFileThatWasDamagedAfterAnInterruptedRestoreIsFetchedAgain(t *testing.T) {
	store, m := everything(t)
	whole := watch(restore(t, store, m), nothing)
	want := whole.outcome(t, whole.run(t))
	left := watch(restore(t, store, m), func(what string) error {
		if what == "completed" {
			return errFault
		}
		return nil
	})
	_, err := backup.Restore(t.Context(), left.RestoreOptions)
	require.ErrorIs(t, err, errFault)
	damaged := 0
	for _, name := range files(t, left.Dir) {
		if name == filepath.Base(left.Marker) || name == "log.id" || name == "claimed" {
			continue
		}
		for _, damage := range []func([]byte) []byte{
			func(b []byte) []byte { return flipped(b, len(b)/2) }, func(b []byte) []byte { return make([]byte, len(b)) }, func([]byte) []byte { return nil },
		} {
			dir := folder(t)
			require.NoError(t, os.CopyFS(dir, os.DirFS(left.Dir)))
			text, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), damage(text), 0o600))
			resumed := left.again(t, dir, nothing)
			require.Equal(t, want, resumed.outcome(t, resumed.run(t)), name)
			damaged++
		}
	}
	require.Greater(t, damaged, 3*len(m.Files()))
}
