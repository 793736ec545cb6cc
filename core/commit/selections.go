package commit

import (
	"fmt"

	"stele.dev/stele/projections/objects"
)

// Unchanged is the condition that what was read of some objects, at a revision, would be read again.
type Unchanged struct {
	objects.Read
	Since uint64
	// Of says what was selected, for messages and for turns: reads of the same selection return the same text.
	Of fmt.Stringer
}

// check returns how the condition fails, nil if it holds.
func (u *Unchanged) check(o *objects.State) *Stale {
	if why := o.Changed(&u.Read, u.Since); why != "" {
		of := u.Of.String()
		return &Stale{Reason: "rules have read " + of + ", and " + why, Selection: of, Resource: u.Resource}
	}
	return nil
}

// selections returns the first of the selections that has changed.
func (c *Checks) selections(o *objects.State) *Stale {
	for i := range c.Selections {
		if stale := c.Selections[i].check(o); stale != nil {
			return stale
		}
	}
	return nil
}
