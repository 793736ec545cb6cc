package backup

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/eventlog/verify"
)

// FloorsError reports that the floors in the manifest of a backup are not those that its log has recorded.
type FloorsError struct {
	Kind string // plural.group
	// Manifest and Recorded are the revisions up to which versions of the kind are erased. Unrecorded is set if the log has recorded
	// none, because a former version has erased them.
	Manifest, Recorded uint64
	Unrecorded         bool
}

func (e *FloorsError) Error() string {
	if e.Unrecorded {
		return fmt.Sprintf("the manifest says that versions of %s are erased up to revision %d, and the log has no record of it", e.Kind, e.Manifest)
	}
	return fmt.Sprintf("the manifest says that versions of %s are erased up to revision %d, and the log has recorded %d, which a restore uses: the manifest was changed, or made at that very moment", e.Kind, e.Manifest, e.Recorded)
}

// past is what the log of a backup says of the past that retention has erased.
type past struct {
	binding *verify.Binding // nil behind a gap of the manifest
	// lacking is set if parts of the log are not in the backup, before is the number of batches before what follows them, and gaps is
	// set if batches of that are forgotten.
	lacking, gaps bool
	before        uint64
	// erased is set if something of a segment was erased.
	erased bool
}

// note notes a segment.
func (p *past) note(i *segment.Info) {
	p.erased = p.erased || i.Generation > 0
	if p.lacking {
		p.before, p.gaps = max(p.before, i.Ordinal), p.gaps || i.Gaps()
	}
}

// checkPast returns an error if batches before a gap are not those that the log has recorded, or could not be compared. All of the
// backup has been followed.
func (c *chain) checkPast(m *Manifest) error {
	if c.past.binding == nil {
		return &verify.IncomparableError{Unbound: max(1, c.past.before)}
	}
	return c.past.binding.Check("backup " + m.Name())
}

// floors returns the floors that the log has recorded; false if it has recorded none.
func (c *chain) floors() (floors map[string]uint64, recorded bool) {
	if c.past.binding == nil {
		return nil, false
	}
	return c.past.binding.Floors()
}

// checkFloors returns a [*FloorsError] if floors are not those that the log has recorded.
func (c *chain) checkFloors(floors map[string]uint64) error {
	is, recorded := c.floors()
	kinds := maps.Clone(is)
	if kinds == nil {
		kinds = map[string]uint64{}
	}
	maps.Copy(kinds, floors)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if floors[kind] != is[kind] {
			return &FloorsError{kind, floors[kind], is[kind], !recorded}
		}
	}
	return nil
}

// takePast compares what is before gaps with what the log has recorded, and takes the floors from there. It returns an error for what
// cannot be compared, unless that is accepted.
func (r *restoration) takePast(c *chain) error {
	err := c.checkPast(r.Manifest)
	if c.past.lacking && !c.past.gaps { // what follows is bound by the hash chain, and before it nothing is restored but the first batch
		err = nil
	}
	if unknown := (*verify.IncomparableError)(nil); errors.As(err, &unknown) {
		if !r.AcceptUnrecorded {
			return fmt.Errorf("%w: choose another backup; if a former version of this program made it, and nobody else can write to the place, accept it with --accept-unrecorded-checkpoint", err)
		}
		err = nil
	}
	r.floors = maps.Clone(r.Manifest.Floors)
	if r.floors == nil {
		r.floors = map[string]uint64{}
	}
	recorded, _ := c.floors()
	for kind, floor := range recorded {
		r.floors[kind] = max(r.floors[kind], floor)
	}
	return err
}
