package backup_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
)

// No acknowledged change that is not later than asked for is lost: a restore ends at exactly the revision, or refuses and
// names the nearest that are possible.
func TestARestoreEndsAtTheRevisionOrIsRefused(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		p := newSealed(t, 40)
		if !sealed {
			p.grow(40)
		}
		store := stores.NewFolder(t.TempDir())
		m := p.backup(store)
		var last []uint64
		for _, b := range read(t, p.log) {
			last = append(last, b.Last())
		}
		before := uint64(0)
		for _, end := range last[len(last)-12:] {
			for to := max(before+1, end-2); to <= end; to++ {
				r := newRestoration(t, store, m)
				r.To.Revision = to
				restored, err := backup.Restore(t.Context(), r.RestoreOptions)
				if to == end {
					require.NoError(t, err)
					assert.Equal(t, to, restored.At.Revision)
				} else if before > 0 {
					require.ErrorContains(t, err, fmt.Sprintf("choose --to %d or --to %d", before, end))
					assert.Empty(t, files(t, r.Dir), "nothing was written")
				}
			}
			before = end
		}
	}
}

// Revisions that a restore has lost are in no batch.
func TestARestoreToARevisionThatWasLost(t *testing.T) {
	p := newPlant(t)
	p.grow(5)
	at := p.tip.Revision
	b, _, err := p.log.StartEpoch(t.Context(), p.tip, at+1, at+100)
	require.NoError(t, err)
	p.tip = b.Head()
	p.grow(5)
	store := stores.NewFolder(t.TempDir())
	r := newRestoration(t, store, p.backup(store))
	r.To = backup.Target{Revision: at + 50}
	_, err = backup.Restore(t.Context(), r.RestoreOptions)
	require.ErrorContains(t, err, fmt.Sprintf("the log has no revision %d", at+50))
	require.ErrorContains(t, err, fmt.Sprintf("choose --to %d or --to %d", at, at+100))
}
