package backup_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/logtest"
	"stele.dev/stele/eventlog/segment"
)

// recordPast appends what a server records before it erases.
func (p *sealed) recordPast(floors map[string]uint64) {
	p.t.Helper()
	infos := p.archive.Segments()
	last := infos[len(infos)-1]
	root := segment.Roots(infos)[last.Ordinal+last.Batches]
	is := &logpb.PastErased{Batches: last.Ordinal + last.Batches, Root: root[:]}
	for _, kind := range slices.Sorted(maps.Keys(floors)) {
		is.Floors = append(is.Floors, &logpb.Floor{Kind: kind, Contents: floors[kind]})
	}
	entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_PAST_ERASED, Skippable: true, Detail: &logpb.Metadata_PastErased{PastErased: is}}})
	require.NoError(p.t, err)
	b, _, err := p.log.Append(p.t.Context(), p.tip, eventlog.NewDraft([]*eventlog.Entry{entry}))
	require.NoError(p.t, err)
	p.tip = b.Head()
}

// erased is a log of which a part of the second segment is erased, but for its first batch. Whoever can write to the place changes
// what is left before the gap, and everything that describes it.
func erased(t *testing.T, recorded, forged bool) *sealed {
	p := newSealed(t, 60)
	if recorded {
		p.recordPast(map[string]uint64{"tests": 20})
	}
	second := p.archive.Segments()[1]
	_, err := p.archive.Rewrite(t.Context(), second.First, func(b *eventlog.Batch, _ *eventlog.Event) segment.Keep {
		if b.First == second.First {
			return segment.All
		}
		return segment.Nothing
	})
	require.NoError(t, err)
	if forged {
		dir := p.archive.Dir()
		name := segment.Name(second.First, second.Last, 1) + segment.LogFile
		logtest.Forge(t, filepath.Join(dir, name), "object-30-", "OBJECT-30-")
		require.NoError(t, os.Remove(filepath.Join(dir, "SHA256SUMS")))
		p.archive = openArchive(t, filepath.Dir(dir), p.log)
	}
	return p
}

// What is before a gap is what the log has recorded, or nothing is known of it, and it is restored only if that is accepted.
func TestWhatIsBeforeAGapIsAsTheLogHasRecordedIt(t *testing.T) {
	for name, tc := range map[string]struct{ recorded, forged bool }{
		"recorded": {true, false}, "forged": {true, true}, "without a record": {false, false}, "forged, without a record": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := erased(t, tc.recorded, tc.forged)
			store := stores.NewFolder(t.TempDir())
			m := p.backup(store, func(o *backup.CreateOptions) {})
			v := verify(t, store, m)
			assert.Equal(t, tc.recorded && tc.forged, len(v.Problems) > 0, "%v", v.Problems)
			assert.Equal(t, !tc.recorded, v.Incomparable != nil, "%v", v.Incomparable)
			for _, accept := range []bool{false, true} {
				for _, to := range []uint64{0, p.archive.Segments()[1].Last} { // the record is behind the moment
					r := newRestoration(t, store, m)
					r.AcceptUnrecorded, r.To.Revision = accept, to
					_, err := backup.Restore(t.Context(), r.RestoreOptions)
					switch {
					case tc.recorded && tc.forged:
						require.ErrorContains(t, err, "are not those that the log has recorded")
					case !tc.recorded && !accept:
						require.ErrorContains(t, err, "--accept-unrecorded-checkpoint")
					default:
						require.NoError(t, err)
					}
				}
			}
		})
	}
}

// The floors of a manifest are those of the log. Whoever can write to the place lowers them, so that what is erased would be taken for
// what never was, or raises them, so that the past is hidden.
func TestFloorsAreAsTheLogHasRecordedThem(t *testing.T) {
	p := erased(t, true, false)
	for floor, want := range map[uint64]uint64{20: 20, 0: 20, 10: 20, 25: 25} {
		store := stores.NewFolder(t.TempDir())
		m := p.plant.backup(store, func(o *backup.CreateOptions) {
			o.Source = &backup.Local{Log: p.log, Archive: p.archive, Floors: func() (map[string]uint64, error) { return map[string]uint64{"tests": floor}, nil }}
		})
		assert.Equal(t, floor != 20, verify(t, store, m).Floors != nil)
		r := newRestoration(t, store, m)
		r.Floors = filepath.Join(r.Dir, "floors.json")
		r.run(t)
		text, err := os.ReadFile(r.Floors)
		require.NoError(t, err)
		assert.JSONEq(t, fmt.Sprintf(`{"tests":%d}`, want), string(text))
	}
}

// A manifest that lacks the segments of the beginning says that the server has forgotten them. That cannot be compared.
func TestAManifestWithoutOlderSegments(t *testing.T) {
	p := newSealed(t, 120)
	require.NoError(t, p.archive.Drop(t.Context(), 70))
	at := p.tip.Revision - 20
	p.record(at, "state")
	store := stores.NewFolder(t.TempDir())
	v := verify(t, store, p.withCheckpoint(store, at, "state"))
	assert.Empty(t, v.Problems)
	require.NotNil(t, v.Incomparable)
	assert.Positive(t, v.Incomparable.Unbound)
}
