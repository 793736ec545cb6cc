package backup_test

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/proof"
	"stele.dev/stele/eventlog/segment"
)

// record appends the event that says what the fold of a revision is.
func (p *plant) record(revision uint64, content string) {
	p.t.Helper()
	fold := sha256.Sum256([]byte(content))
	entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{
		Type: logpb.Type_TYPE_CHECKPOINT_RECORDED, Skippable: true,
		Detail: &logpb.Metadata_CheckpointRecorded{CheckpointRecorded: &logpb.CheckpointRecorded{Revision: revision, Fold: fold[:]}},
	}})
	require.NoError(p.t, err)
	b, _, err := p.log.Append(p.t.Context(), p.tip, eventlog.NewDraft([]*eventlog.Entry{entry}))
	require.NoError(p.t, err)
	p.tip = b.Head()
}

// withCheckpoint makes a backup whose source has a checkpoint of a revision.
func (p *sealed) withCheckpoint(store stores.Store, revision uint64, content string) *backup.Manifest {
	p.t.Helper()
	dir := p.t.TempDir()
	require.NoError(p.t, os.WriteFile(filepath.Join(dir, "some.ckpt"), []byte(content), 0o600))
	return p.plant.backup(store, func(o *backup.CreateOptions) {
		o.Source = &backup.Local{Log: p.log, Archive: p.archive, Checkpoints: func() (string, []backup.StateCheckpoint) {
			return dir, []backup.StateCheckpoint{{Revision: revision, File: backup.StateFile{Name: "checkpoints/some.ckpt", Size: int64(len(content))}}}
		}}
	})
}

// Whoever can write to the place changes the checkpoint, and all checksums. It is what the log has recorded that counts.
func TestACheckpointIsAsTheLogHasRecordedIt(t *testing.T) {
	for _, tc := range []struct {
		name     string
		recorded string // "" for no record
		problems int
		unknown  int
	}{{"recorded", "state", 0, 0}, {"forged", "GOOD!", 1, 0}, {"without a record", "", 0, 1}} {
		for _, seal := range []bool{true, false} { // the record is in a segment, or in batches
			p := newSealed(t, 40)
			at := p.tip.Revision
			p.grow(3)
			between := p.tip.Revision
			if tc.recorded != "" {
				p.record(at, tc.recorded)
			}
			p.grow(3)
			if seal {
				p.grow(40)
				p.seal()
			}
			store := stores.NewFolder(t.TempDir())
			m := p.withCheckpoint(store, at, "state")
			v := verify(t, store, m)
			assert.Len(t, v.Problems, tc.problems, tc.name)
			assert.Len(t, v.Unrecorded, tc.unknown, tc.name)
			for _, to := range []uint64{0, between} { // the record is behind the end of what is restored
				for _, accept := range []bool{false, true} {
					r := newRestoration(t, store, m)
					r.To.Revision, r.AcceptUnrecorded = to, accept
					restored, err := backup.Restore(t.Context(), r.RestoreOptions)
					file := filepath.Join(r.Dir, "checkpoints", "some.ckpt")
					if tc.problems > 0 {
						assert.ErrorContains(t, err, "it was changed after it was made", tc.name)
						assert.NoFileExists(t, file)
						continue
					}
					require.NoError(t, err, tc.name)
					if tc.unknown > 0 && !accept {
						assert.Equal(t, at, restored.LeftOut, tc.name)
						assert.NoFileExists(t, file)
					} else {
						assert.Zero(t, restored.LeftOut, tc.name)
						assert.FileExists(t, file)
					}
				}
			}
		}
	}
}

// A gap can hide that a record is of another log: nothing binds it to what follows.
func TestARecordBeforeAGapIsNotBelieved(t *testing.T) {
	p := newSealed(t, 40)
	at := p.tip.Revision
	p.record(at, "state")
	recorded := p.tip.Revision
	p.grow(60)
	p.seal()
	for _, info := range p.archive.Segments() {
		_, err := p.archive.Rewrite(t.Context(), info.First, func(b *eventlog.Batch, _ *eventlog.Event) segment.Keep {
			if b.First > recorded+3 && b.First < recorded+20 {
				return segment.Nothing
			}
			return segment.All
		})
		require.NoError(t, err)
	}
	store := stores.NewFolder(t.TempDir())
	assert.Equal(t, []uint64{at}, verify(t, store, p.withCheckpoint(store, at, "state")).Unrecorded)
}

// Whoever can write to the place replaces the log as a whole. Only a head that was kept elsewhere finds that.
func TestABackupOfAnotherLogIsNotThatOfTheHead(t *testing.T) {
	p := newSealed(t, 60)
	p.grow(5)
	store := stores.NewFolder(t.TempDir())
	m := p.backup(store)
	tree := proof.NewTree(proof.NewSource(p.log, p.archive), p.log.ID())
	for _, size := range []uint64{1, 10, 30, 61, 66} {
		head, err := tree.Head(t.Context(), size)
		require.NoError(t, err)
		for _, forged := range []bool{false, true} {
			if forged {
				head.Root[7] ^= 1
			}
			v, err := backup.Verify(t.Context(), backup.VerifyOptions{Store: store, Manifest: m, FoldOf: foldOf, Patience: impatient, Heads: []proof.TreeHead{head}})
			require.NoError(t, err)
			assert.Equal(t, forged, len(v.Problems) > 0, "size %d: %v", size, v.Problems)
		}
	}
}
