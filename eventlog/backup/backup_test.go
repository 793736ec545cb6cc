package backup_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/logtest"
	"stele.dev/stele/eventlog/memlog"
)

// plant is a log that grows, and the clock of its writer.
type plant struct {
	t     testing.TB
	store *memlog.Store
	log   *eventlog.Log
	tip   eventlog.Head
	now   time.Time
}

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newPlant(t testing.TB) *plant {
	p := &plant{t: t, store: &memlog.Store{}, now: begin}
	p.reopen()
	return p
}

// reopen opens the log of the store, as a process that starts.
func (p *plant) reopen() {
	log, err := eventlog.Open(p.t.Context(), p.store.Open(nil), eventlog.Options{Software: "test", Clock: func() time.Time { return p.now }})
	require.NoError(p.t, err)
	p.log = log
	p.tip, err = log.Tip(p.t.Context())
	require.NoError(p.t, err)
}

// grow appends batches of one, two and three events, a second apart.
func (p *plant) grow(batches int) {
	p.t.Helper()
	for range batches {
		p.now = p.now.Add(time.Second)
		var entries []*eventlog.Entry
		for i := range 1 + p.tip.Revision%3 {
			entries = append(entries, logtest.Entry(p.t, fmt.Sprintf("object-%d-%d", p.tip.Revision, i)))
		}
		b, _, err := p.log.Append(p.t.Context(), p.tip, eventlog.NewDraft(entries))
		require.NoError(p.t, err)
		p.tip = b.Head()
	}
}

func (p *plant) source() backup.Source { return &backup.Local{Log: p.log} }

var impatient = stores.Patience{Attempts: 3, Pause: time.Millisecond}

// small makes files of about ten batches.
func (p *plant) options(store stores.Store) backup.CreateOptions {
	return backup.CreateOptions{Source: p.source(), Store: store, By: "test", Patience: impatient, BatchesBytes: 4 << 10, Now: func() time.Time { return p.now }}
}

func (p *plant) backup(store stores.Store, change ...func(*backup.CreateOptions)) *backup.Manifest {
	p.t.Helper()
	o := p.options(store)
	for _, c := range change {
		c(&o)
	}
	p.now = p.now.Add(time.Millisecond) // names have the time
	m, err := backup.Create(p.t.Context(), o)
	require.NoError(p.t, err)
	return m
}

func verify(t testing.TB, store stores.Store, m *backup.Manifest, identities ...age.Identity) *backup.Verification {
	t.Helper()
	v, err := backup.Verify(t.Context(), backup.VerifyOptions{Store: store, Manifest: m, Identities: identities, FoldOf: foldOf, Patience: impatient})
	require.NoError(t, err)
	return v
}

// restoration restores into a folder and a store of its own.
type restoration struct {
	backup.RestoreOptions
	into *memlog.Store
}

// foldOf takes the SHA-256 of a file for the fold in it.
func foldOf(_ context.Context, file io.ReadCloser) (fold [32]byte, err error) {
	defer file.Close()
	content, err := io.ReadAll(file)
	return sha256.Sum256(content), err
}

func newRestoration(t testing.TB, store stores.Store, m *backup.Manifest) *restoration {
	r := &restoration{}
	dir := t.TempDir()
	r.RestoreOptions = backup.RestoreOptions{
		Store: store, Manifest: m, FoldOf: foldOf, Patience: impatient, Dir: dir, Marker: filepath.Join(dir, "restoring.json"), Software: "test",
		OpenStore: func(context.Context) (eventlog.Backend, error) {
			r.into = &memlog.Store{}
			return r.into.Open(nil), nil
		},
	}
	return r
}

func (r *restoration) run(t testing.TB) *backup.Restored {
	t.Helper()
	restored, err := backup.Restore(t.Context(), r.RestoreOptions)
	require.NoError(t, err)
	return restored
}

func files(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := stores.NewFolder(dir).List(t.Context(), "")
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return names
}

func TestARestoredLogHasEveryBatchAndANewEpoch(t *testing.T) {
	p := newPlant(t)
	p.grow(100)
	dir := t.TempDir()
	store := stores.NewFolder(dir)
	m := p.backup(store)
	assert.Greater(t, len(m.Parts), 3, "the log is in several files")
	v := verify(t, store, m)
	assert.Empty(t, v.Problems)
	assert.True(t, v.Chain)
	assert.EqualValues(t, 101, v.Batches)

	r := newRestoration(t, store, m)
	restored := r.run(t)
	assert.Equal(t, p.tip, restored.At)
	assert.Equal(t, p.tip.Revision+1+backup.DefaultGap, restored.Next)
	original, copied := p.store.Batches(), r.into.Batches()
	assert.Equal(t, original, copied[:len(copied)-1], "byte by byte")
	epoch, err := eventlog.DecodeBatch(copied[len(copied)-1].First, copied[len(copied)-1].Value)
	require.NoError(t, err)
	assert.Equal(t, p.tip.Revision+1, epoch.Events[0].Meta.GetEpochStarted().GetLostFrom())
	assert.Equal(t, restored.Next, epoch.First)
	assert.False(t, epoch.Time.Before(restored.Time), "log time does not go back")
	assert.Empty(t, files(t, r.Dir), "nothing is left of the restore itself")
}

func TestOnlyNewBatchesAreSent(t *testing.T) {
	p := newPlant(t)
	p.grow(100)
	dir := t.TempDir()
	store := stores.NewFolder(dir)
	first := p.backup(store)
	again := p.backup(store)
	assert.Less(t, again.NewBytes, int64(5<<10), "at most the last, incomplete file")
	p.grow(10)
	third := p.backup(store)
	assert.Less(t, third.NewBytes, first.NewBytes/2)
	for _, m := range []*backup.Manifest{first, again, third} {
		assert.Empty(t, verify(t, store, m).Problems)
	}
}

func TestAnInterruptedBackupIsNoBackupAndItsFilesAreUsed(t *testing.T) {
	p := newPlant(t)
	p.grow(100)
	whole := p.backup(stores.NewFolder(t.TempDir())).Files()
	for after := range len(whole) + 1 { // it breaks off at every file, and before the manifest
		store := stores.NewFolder(t.TempDir())
		_, err := backup.Create(t.Context(), p.options(&faulty{Store: store, failAfter: after}))
		require.ErrorIs(t, err, errFault)
		found, err := backup.List(t.Context(), store, impatient)
		require.NoError(t, err)
		require.Empty(t, found)
		m, missing := p.backup(store), int64(0)
		for _, f := range whole[after:] {
			missing += f.Size
		}
		assert.Equal(t, missing, m.NewBytes, "the others were there already")
		assert.Empty(t, verify(t, store, m).Problems)
	}
}

func identity(t testing.TB) (*age.X25519Identity, []backup.Recipient) {
	id, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	recipients, err := backup.ParseRecipients(strings.NewReader("# comment\n" + id.Recipient().String() + "\n"))
	require.NoError(t, err)
	return id, recipients
}

func TestAnEncryptedBackupIsReadByItsIdentityOnly(t *testing.T) {
	p := newPlant(t)
	p.grow(60)
	dir := t.TempDir()
	store := stores.NewFolder(dir)
	id, recipients := identity(t)
	other, _ := identity(t)
	encrypted := func(o *backup.CreateOptions) { o.Recipients = recipients }
	m := p.backup(store, encrypted, func(o *backup.CreateOptions) {
		o.Keys = []backup.KeyFile{{Name: "pki/ca.key", Content: []byte("secret key")}}
	})
	for _, name := range files(t, dir) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.NotContains(t, string(text), "secret key")
		assert.Equal(t, !strings.HasSuffix(name, ".json"), bytes.HasPrefix(text, []byte("age-encryption.org/v1")), name)
	}
	blind := verify(t, store, m)
	assert.Empty(t, blind.Problems)
	assert.False(t, blind.Chain)
	assert.True(t, verify(t, store, m, id).Chain)
	_, err := backup.Verify(t.Context(), backup.VerifyOptions{Store: store, Manifest: m, Identities: []age.Identity{other}, Patience: impatient})
	require.ErrorIs(t, err, backup.ErrNoIdentity)

	assert.Less(t, p.backup(store, encrypted).NewBytes, m.NewBytes/2, "complete files are found by their plain SHA-256")
	r := newRestoration(t, store, m)
	_, err = backup.Restore(t.Context(), r.RestoreOptions)
	require.ErrorIs(t, err, backup.ErrNoIdentity)
	r.Identities = []age.Identity{id}
	r.run(t)
	key, err := os.ReadFile(filepath.Join(r.Dir, "pki", "ca.key"))
	require.NoError(t, err)
	assert.Equal(t, "secret key", string(key))
}

func TestARestoreStopsAtTheTarget(t *testing.T) {
	p := newPlant(t)
	p.grow(60)
	store := stores.NewFolder(t.TempDir())
	m := p.backup(store)
	all := p.store.Batches()
	var decoded []*eventlog.Batch
	for _, s := range all {
		b, err := eventlog.DecodeBatch(s.First, s.Value)
		require.NoError(t, err)
		decoded = append(decoded, b)
	}
	for i, b := range decoded {
		for name, to := range map[string]backup.Target{
			"its last revision":       {Revision: b.Last()},
			"its time":                {Time: b.Time},
			"shortly before the next": {Time: b.Time.Add(time.Second - 1)},
		} {
			r := newRestoration(t, store, m)
			r.To = to
			restored := r.run(t)
			require.Equal(t, b.Head(), restored.At, "%d %s", i, name)
			require.Greater(t, restored.Next, m.Head.Revision, "later revisions were issued")
			require.Equal(t, all[:i+1], r.into.Batches()[:i+1])
		}
	}
	r := newRestoration(t, store, m)
	r.To.Revision = m.Head.Revision + 1
	_, err := backup.Restore(t.Context(), r.RestoreOptions)
	require.ErrorContains(t, err, "the backup ends at revision")
	r.To = backup.Target{Time: begin.Add(-time.Hour)}
	_, err = backup.Restore(t.Context(), r.RestoreOptions)
	require.ErrorContains(t, err, "does not go back to")
}

func TestDamageToAnyFileIsNamed(t *testing.T) {
	p := newPlant(t)
	p.grow(60)
	dir := t.TempDir()
	store := stores.NewFolder(dir)
	id, recipients := identity(t)
	for _, encrypted := range []bool{false, true} {
		m := p.backup(store, func(o *backup.CreateOptions) {
			o.Keys = []backup.KeyFile{{Name: "pki/ca.key", Content: []byte("key")}}
			if encrypted {
				o.Recipients = recipients
			}
		})
		for i, f := range m.Files() {
			file := filepath.Join(dir, m.Log, f.Stored)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			other := filepath.Join(dir, m.Log, m.Files()[(i+1)%len(m.Files())].Stored)
			swapped, err := os.ReadFile(other)
			require.NoError(t, err)
			for name, damaged := range map[string][]byte{
				"missing": nil, "empty": {}, "cut in the middle": text[:len(text)/2], "cut at its last byte": text[:len(text)-1],
				"flipped at the beginning": flipped(text, 0), "flipped in the middle": flipped(text, len(text)/2), "flipped at the end": flipped(text, len(text)-1),
				"longer": append(slices.Clone(text), 0), "twice": append(slices.Clone(text), text...), "another file": swapped,
			} {
				require.NoError(t, os.Remove(file))
				if damaged != nil {
					require.NoError(t, os.WriteFile(file, damaged, 0o600))
				}
				v := verify(t, store, m, id)
				require.Len(t, v.Problems, 1, "%s %s", f.Name, name)
				require.ErrorContains(t, v.Problems[0], f.Stored, name)
				require.False(t, v.Chain)
				r := newRestoration(t, store, m)
				r.Identities = []age.Identity{id}
				_, err := backup.Restore(t.Context(), r.RestoreOptions)
				require.ErrorContains(t, err, f.Stored, name)
				require.FileExists(t, r.Marker, "the folder is marked as unfinished")
				require.NoError(t, os.WriteFile(file, text, 0o600))
			}
		}
		assert.Empty(t, verify(t, store, m, id).Problems)
	}
}

func flipped(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 0x10
	return b
}

func TestADamagedManifestIsNamedAndTheOthersAreUsed(t *testing.T) {
	p := newPlant(t)
	p.grow(30)
	dir := t.TempDir()
	store := stores.NewFolder(dir)
	good := p.backup(store)
	p.grow(1)
	bad := p.backup(store)
	file := filepath.Join(dir, bad.Log, "backups", bad.Name()+".json")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for at := 0; at < len(text); at += 7 {
		for _, damaged := range [][]byte{flipped(text, at), text[:at]} {
			require.NoError(t, os.WriteFile(file, damaged, 0o600))
			found, err := backup.List(t.Context(), store, impatient)
			require.NoError(t, err)
			require.Len(t, found, 2)
			require.Error(t, found[1].Err, "byte %d of %s", at, text)
			require.ErrorContains(t, found[1].Err, bad.Name())
			_, err = backup.Choose(found, "", "")
			require.ErrorContains(t, err, "the newest backup cannot be used")
			chosen, err := backup.Choose(found, good.Name(), "")
			require.NoError(t, err)
			require.Equal(t, good, chosen)
		}
	}
	var warned []error
	again := p.backup(store, func(o *backup.CreateOptions) { o.Warn = func(err error) { warned = append(warned, err) } })
	assert.Len(t, warned, 1)
	assert.Empty(t, verify(t, store, again).Problems)
}

func TestBackupsOfTwoLogsAreKeptApart(t *testing.T) {
	a, b := newPlant(t), newPlant(t)
	a.grow(10)
	b.grow(20)
	store := stores.NewFolder(t.TempDir())
	ofA, ofB := a.backup(store), b.backup(store)
	found, err := backup.List(t.Context(), store, impatient)
	require.NoError(t, err)
	_, err = backup.Choose(found, "", "")
	require.ErrorContains(t, err, "choose one with --log")
	for _, want := range []*backup.Manifest{ofA, ofB} {
		chosen, err := backup.Choose(found, "", want.Log[:8])
		require.NoError(t, err)
		assert.Equal(t, want, chosen)
		assert.Empty(t, verify(t, store, chosen).Problems)
	}
}

func TestALogThatHasLostWritesIsNotBackedUpOverItsBackups(t *testing.T) {
	p := newPlant(t)
	p.grow(10)
	older := p.store.Batches()
	head := p.tip
	p.grow(10)
	store := stores.NewFolder(t.TempDir())
	p.backup(store)
	p.store.Tamper(func([]byte, []eventlog.Stored) ([]byte, []eventlog.Stored) { return head.Encode(), older })
	p.reopen()
	_, err := backup.Create(t.Context(), p.options(store))
	require.ErrorContains(t, err, "the server has lost writes")
}

func TestARestoredLogIsBackedUpToTheSamePlace(t *testing.T) {
	p := newPlant(t)
	p.grow(60)
	store := stores.NewFolder(t.TempDir())
	m := p.backup(store)
	r := newRestoration(t, store, m)
	r.To.Revision = m.Head.Revision / 2 // the complete files behind it are of another history now
	r.run(t)
	p.store = r.into
	p.reopen()
	p.grow(40)
	again := p.backup(store)
	assert.EqualValues(t, 1, again.Head.Epoch)
	assert.Empty(t, verify(t, store, again).Problems)
	assert.Empty(t, verify(t, store, m).Problems, "the old backup is as it was")
	found, err := backup.List(t.Context(), store, impatient)
	require.NoError(t, err)
	newest, err := backup.Choose(found, "", "")
	require.NoError(t, err)
	assert.Equal(t, again.Name(), newest.Name())
}

func TestARestoreRefusesAFolderThatIsNotEmpty(t *testing.T) {
	p := newPlant(t)
	p.grow(10)
	store := stores.NewFolder(t.TempDir())
	m := p.backup(store)
	r := newRestoration(t, store, m)
	file := filepath.Join(r.Dir, "precious")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	_, err := backup.Restore(t.Context(), r.RestoreOptions)
	require.ErrorContains(t, err, "is not empty: it has precious")
	assert.Equal(t, []string{"precious"}, files(t, r.Dir))
}

func TestAnInterruptedRestoreIsContinuedByTheSameRestoreOnly(t *testing.T) {
	p := newPlant(t)
	p.grow(60)
	store := stores.NewFolder(t.TempDir())
	m := p.backup(store, func(o *backup.CreateOptions) { o.Keys = []backup.KeyFile{{Name: "pki/ca.key", Content: []byte("key")}} })
	r := newRestoration(t, store, m)
	for range len(m.Files()) - 1 { // each gets one file further
		r.Store = &faulty{Store: store, failOpenAfter: 1}
		_, err := backup.Restore(t.Context(), r.RestoreOptions)
		require.ErrorIs(t, err, errFault)
		require.FileExists(t, r.Marker)
		other := r.RestoreOptions
		other.To.Revision = 5
		_, err = backup.Restore(t.Context(), other)
		require.ErrorContains(t, err, "unfinished restore")
	}
	r.Store = store
	half := filepath.Join(r.Dir, "pki", ".ca.key123") // a kill leaves it
	require.NoError(t, os.MkdirAll(filepath.Dir(half), 0o700))
	require.NoError(t, os.WriteFile(half, []byte("k"), 0o600))
	restored := r.run(t)
	assert.Equal(t, p.tip, restored.At)
	assert.NoFileExists(t, r.Marker)
	assert.NoFileExists(t, half)
}

var errFault = errors.New("injected fault")
