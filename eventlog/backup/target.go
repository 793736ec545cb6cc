package backup

import (
	"fmt"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment"
)

// Target is the moment to which a log is restored. The zero Target is the end of the backup.
type Target struct {
	Revision uint64    // the batch that ends at this revision
	Time     time.Time // the last batch that was written at this log time or before
}

func (t Target) String() string {
	switch {
	case t.Revision > 0:
		return fmt.Sprintf("revision %d", t.Revision)
	case !t.Time.IsZero():
		return t.Time.UTC().Format(time.RFC3339Nano)
	}
	return "the end"
}

// includes reports whether a batch belongs to what is restored.
func (t Target) includes(sets eventlog.ClockSets, last uint64, written time.Time) bool {
	switch {
	case t.Revision > 0:
		return last <= t.Revision
	case !t.Time.IsZero():
		return !sets.Time(last, written).After(t.Time)
	}
	return true
}

// clockSets returns the corrections of log time in the whole backup.
func (m *Manifest) clockSets() (sets eventlog.ClockSets) {
	for _, p := range m.Parts {
		sets = append(sets, p.ClockSets...)
	}
	return sets
}

// cut returns how many parts belong to the target as a whole, and whether a piece of the next part may, too.
func (m *Manifest) cut(t Target) (whole int, piece bool, err error) {
	sets := m.clockSets()
	if t.Revision > m.Head.Revision {
		return 0, false, fmt.Errorf("the backup ends at revision %d; choose a later backup or an earlier revision", m.Head.Revision)
	}
	for whole < len(m.Parts) && t.includes(sets, m.Parts[whole].After.Revision, m.Parts[whole].Last) {
		whole++
	}
	if whole < len(m.Parts) {
		p := m.Parts[whole]
		piece = t.includes(sets, p.Before.Revision+1, p.First)
		if piece && p.rewritten() {
			return 0, false, fmt.Errorf("%v is in the revisions %d-%d, of which retention has erased a part, so the log cannot end there: choose revision %d, or %d or later", t, p.Before.Revision+1, p.After.Revision, p.Before.Revision, p.After.Revision)
		}
	}
	if oldest := m.Oldest(); whole == 0 && !piece || oldest.Revision > 0 && whole == 1 && !piece {
		return 0, false, fmt.Errorf("the backup does not go back to %v: it begins with revision %d, of %s", t, oldest.Revision+1, m.begins().UTC().Format(time.RFC3339))
	}
	return whole, piece, nil
}

// begins returns the time of the oldest batch besides the first one.
func (m *Manifest) begins() time.Time {
	if oldest := m.Oldest(); oldest.Revision > 0 {
		return m.Parts[1].First
	}
	return m.Parts[0].First
}

// rewritten reports whether the part is a segment of which something was erased.
func (p *Part) rewritten() bool {
	_, _, generation, _ := segment.ParseName(segment.NameOf(p.Files[0].Name))
	return p.Kind == SegmentPart && generation > 0
}
