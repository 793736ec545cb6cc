package backup_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/segment"
)

// openArchive opens an archive of small segments in a data directory.
func openArchive(t testing.TB, dir string, log *eventlog.Log) *archive.Archive {
	a, err := archive.Open(archive.Options{Dir: filepath.Join(dir, "segments"), Log: log.ID(), SegmentRevisions: 30})
	require.NoError(t, err)
	log.SetArchive(a)
	return a
}

// sealed is a plant whose older batches are in segments only.
type sealed struct {
	*plant
	archive *archive.Archive
}

func newSealed(t testing.TB, batches int) *sealed {
	p := &sealed{plant: newPlant(t)}
	p.archive = openArchive(t, t.TempDir(), p.log)
	p.grow(batches)
	p.seal()
	return p
}

func (p *sealed) seal() {
	_, err := p.archive.Seal(p.t.Context(), p.log, p.tip)
	require.NoError(p.t, err)
	require.NoError(p.t, p.log.Trim(p.t.Context(), p.archive.Tip().Revision))
}

func (p *sealed) backup(store stores.Store, change ...func(*backup.CreateOptions)) *backup.Manifest {
	p.t.Helper()
	return p.plant.backup(store, append(change, func(o *backup.CreateOptions) {
		o.Source = &backup.Local{Log: p.log, Archive: p.archive}
	})...)
}

// read returns all batches of a log from its beginning.
func read(t testing.TB, log *eventlog.Log) (all []*eventlog.Batch) {
	t.Helper()
	for at := log.Start(); ; at = all[len(all)-1].Head() {
		more, err := log.CatchUp(t.Context(), at)
		require.NoError(t, err)
		if len(more) == 0 {
			return all
		}
		all = append(all, more...)
	}
}

// open opens what was restored, with its segments.
func (r *restoration) open(t testing.TB) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(t.Context(), r.into.Open(nil), eventlog.Options{})
	require.NoError(t, err)
	openArchive(t, r.Dir, log)
	return log
}

func hashes(batches []*eventlog.Batch) (h []eventlog.Hash) {
	for _, b := range batches {
		h = append(h, b.Hash)
	}
	return h
}

func TestSegmentsAreBackedUpAndRestored(t *testing.T) {
	p := newSealed(t, 120)
	dir := t.TempDir()
	store := stores.NewFolder(dir)
	m := p.backup(store)
	assert.Greater(t, len(m.Parts), 5)
	assert.Equal(t, backup.SegmentPart, m.Parts[0].Kind)
	v := verify(t, store, m)
	assert.Empty(t, v.Problems)
	assert.EqualValues(t, 121, v.Batches)
	r := newRestoration(t, store, m)
	restored := r.run(t)
	assert.Equal(t, p.tip, restored.At)
	got, want := read(t, r.open(t)), read(t, p.log)
	assert.Equal(t, hashes(want), hashes(got[:len(got)-1]))
	assert.Equal(t, restored.Next, got[len(got)-1].First)
	assert.False(t, got[len(got)-1].Time.Before(want[len(want)-1].Time))

	p.grow(30)
	p.seal()
	again := p.backup(store)
	assert.Less(t, again.NewBytes, m.Size()/2, "only new segments are sent")
	assert.Empty(t, verify(t, store, again).Problems)
}

func TestARestoreCutsASegmentAtABatch(t *testing.T) {
	p := newSealed(t, 100)
	store := stores.NewFolder(t.TempDir())
	m := p.backup(store)
	all := read(t, p.log)
	for i := 0; i < len(all); i += 7 {
		b := all[i]
		r := newRestoration(t, store, m)
		r.To.Revision = b.Last()
		require.Equal(t, b.Head(), r.run(t).At)
		got := read(t, r.open(t))
		require.Equal(t, hashes(all[:i+1]), hashes(got[:len(got)-1]))
		require.Len(t, got, i+2)
	}
}

func TestOlderSegmentsMayBeForgotten(t *testing.T) {
	p := newSealed(t, 120)
	require.NoError(t, p.archive.Drop(t.Context(), 70))
	store := stores.NewFolder(t.TempDir())
	local := &backup.Local{Log: p.log, Archive: p.archive}
	o := p.options(store)
	o.Source = local
	_, err := backup.Create(t.Context(), o)
	require.ErrorContains(t, err, "has no checkpoint that can be copied")

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "some.ckpt"), []byte("state"), 0o600))
	local.Checkpoints = func() (string, []backup.StateCheckpoint) {
		return dir, []backup.StateCheckpoint{{Revision: 150, File: backup.StateFile{Name: "checkpoints/some.ckpt", Size: 5}}}
	}
	m, err := backup.Create(t.Context(), o)
	require.NoError(t, err)
	oldest := m.Oldest().Revision
	require.Greater(t, oldest, uint64(1))
	require.Less(t, oldest, uint64(150))
	assert.Empty(t, verify(t, store, m).Problems)
	for to, want := range map[uint64]string{0: "", 151: "", 148: "the backup's checkpoint is of revision 150", oldest: "does not go back to"} {
		r := newRestoration(t, store, m)
		r.To.Revision = to
		if want == "" { // the log has no record of the checkpoint, and nothing can be restored without it
			_, err := backup.Restore(t.Context(), r.RestoreOptions)
			require.ErrorContains(t, err, "--accept-unrecorded-checkpoint")
		}
		r.AcceptUnrecorded = true
		restored, err := backup.Restore(t.Context(), r.RestoreOptions)
		if want != "" {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		assert.FileExists(t, filepath.Join(r.Dir, "checkpoints", "some.ckpt"))
		back, err := r.open(t).Back(t.Context(), restored.At.Revision, 3)
		require.NoError(t, err)
		assert.Equal(t, restored.At.Hash, back[0].Hash)
	}
}

func TestDamageToASegmentIsNamed(t *testing.T) {
	p := newSealed(t, 60)
	dir := t.TempDir()
	store := stores.NewFolder(dir)
	m := p.backup(store)
	for _, f := range m.Files() {
		file := filepath.Join(dir, m.Log, f.Stored)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for at := 0; at < len(text); at += 1 + len(text)/5 {
			require.NoError(t, os.WriteFile(file, flipped(text, at), 0o600))
			v := verify(t, store, m)
			require.Len(t, v.Problems, 1)
			require.ErrorContains(t, v.Problems[0], f.Stored)
			_, err := backup.Restore(t.Context(), newRestoration(t, store, m).RestoreOptions)
			require.ErrorContains(t, err, f.Stored)
		}
		require.NoError(t, os.WriteFile(file, text, 0o600))
	}
}

// The server seals and trims between the moment when it tells its state and the moment when its batches are read.
func TestASealingServerIsBackedUp(t *testing.T) {
	p := newSealed(t, 60)
	p.grow(60)
	store := stores.NewFolder(t.TempDir())
	local := &backup.Local{Log: p.log, Archive: p.archive}
	m := p.backup(store)
	source := &changing{Local: local, change: p.seal}
	o := p.options(store)
	o.Source = source
	again, err := backup.Create(t.Context(), o)
	require.NoError(t, err)
	assert.True(t, source.changed)
	assert.Greater(t, len(again.Parts), 1)
	for _, m := range []*backup.Manifest{m, again} {
		assert.Empty(t, verify(t, store, m).Problems)
	}
}

// What retention has erased stays erased in a backup, and the restored folder knows how far back it can be read.
func TestFloorsAreBackedUpAndRestored(t *testing.T) {
	p := newSealed(t, 120)
	first := p.archive.Segments()[1]
	floors := map[string]uint64{"configmaps": first.Last, "leases.coordination.k8s.io": p.tip.Revision}
	p.recordPast(floors)
	_, err := p.archive.Rewrite(t.Context(), first.First, func(*eventlog.Batch, *eventlog.Event) segment.Keep { return segment.Nothing })
	require.NoError(t, err)
	store := stores.NewFolder(t.TempDir())
	m := p.plant.backup(store, func(o *backup.CreateOptions) {
		o.Source = &backup.Local{Log: p.log, Archive: p.archive, Floors: func() (map[string]uint64, error) { return floors, nil }}
	})
	v := verify(t, store, m)
	assert.Empty(t, v.Problems)
	assert.Nil(t, v.Floors)
	assert.Nil(t, v.Incomparable)

	r := newRestoration(t, store, m)
	r.Floors = filepath.Join(r.Dir, "retention", "floors.json")
	r.To.Revision = p.archive.Segments()[3].Last
	assert.Equal(t, []string{"leases.coordination.k8s.io"}, r.run(t).Erased)
	text, err := os.ReadFile(r.Floors)
	require.NoError(t, err)
	assert.JSONEq(t, fmt.Sprintf(`{"configmaps":%d,"leases.coordination.k8s.io":%d}`, first.Last, r.To.Revision), string(text))

	r = newRestoration(t, store, m)
	r.To.Revision = first.First + 1
	_, err = backup.Restore(t.Context(), r.RestoreOptions)
	require.ErrorContains(t, err, fmt.Sprintf("of which retention has erased a part, so the log cannot end there: choose revision %d, or %d or later", first.Before.Revision, first.Last))
}
