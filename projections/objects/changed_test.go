package objects_test

import (
	"strings"
	"testing"

	"stele.dev/stele/projections/objects"
)

// learned is what each reading learns of a selection in a state: the keys and contents, the number, and whether there are any.
func learned(s *objects.State, r *objects.Read) (contents string, number int) {
	var b strings.Builder
	for o := range s.List(widgets, &r.Selection, "", "") {
		if o.Namespace != r.ExceptNamespace || o.Name != r.ExceptName {
			number++
			b.Write(o.JSON)
		}
	}
	return b.String(), number
}

// Whoever read something of a state is told if it would be read otherwise in a later state, in the state of an unfinished batch, too,
// and is hardly ever told so without need.
func TestChangedFindsWhatWouldBeReadOtherwise(t *testing.T) {
	c := newCrowd(t, 7, 8<<20, 300)
	changed, same, needless := 0, 0, 0
	for range 3000 {
		before := c.store.State()
		for range c.rng.IntN(3) {
			c.step(3)
		}
		tx := c.store.Begin()
		if c.rng.IntN(2) == 0 {
			c.change(tx, 3)
		}
		after := tx.State()
		l, f := c.selectors(c.fields)
		read := &objects.Read{Resource: widgets, Selection: objects.Select(pick(c.rng, "", "n1"), l, f), Reading: objects.Reading(c.rng.IntN(4))}
		if c.rng.IntN(3) == 0 {
			read.ExceptNamespace, read.ExceptName = "n1", pick(c.rng, "o7", "o22", "o100")
		}
		wasContents, was := learned(before, read)
		isContents, is := learned(after, read)
		differs := false
		switch read.Reading {
		case objects.Contents:
			differs = wasContents != isContents
		case objects.Number:
			differs = was != is
		case objects.Some:
			if was == 0 {
				read.Reading = objects.None
			}
			differs = was > 0 != (is > 0)
		case objects.None:
			if was > 0 {
				read.Reading = objects.Some
			}
			differs = was > 0 != (is > 0)
		}
		why := after.Changed(read, before.Revision)
		switch {
		case differs && why == "":
			t.Fatalf("revision %d to %d: %v of %q %q would be read otherwise, %d and %d objects", before.Revision, after.Revision, read.Reading, l, f, was, is)
		case differs:
			changed++
		case why == "":
			same++
		case read.Reading == objects.Number || read.Reading == objects.None && is == 0 && was == 0:
			t.Fatalf("revision %d to %d: %v of %q %q is the same, and %s", before.Revision, after.Revision, read.Reading, l, f, why)
		default:
			needless++ // fewer objects, but still some; or changed and changed back
		}
		if c.rng.IntN(2) == 0 {
			c.store.Publish(tx, c.last)
		} else {
			c.last = c.store.State().Revision
		}
	}
	if changed < 200 || same < 500 || needless > changed {
		t.Errorf("%d changed, %d the same, %d needlessly: the test asks too little", changed, same, needless)
	}
}

// What is not in memory any more counts as changed.
func TestChangesThatAreGoneCountAsChanges(t *testing.T) {
	c := newCrowd(t, 8, 4<<10, 30)
	before := c.store.State()
	for range 100 {
		c.step(3)
	}
	all := objects.Select("n9", nil, nil) // no object is in this namespace
	read := &objects.Read{Resource: widgets, Selection: all, Reading: objects.Number}
	if why := c.store.State().Changed(read, before.Revision); !strings.Contains(why, "too many changes") {
		t.Errorf("it is said that %q", why)
	}
	if why := c.store.State().Changed(read, c.store.State().Revision); why != "" {
		t.Errorf("a state has changed since itself: %s", why)
	}
}

// What a check costs the committer: the changes of one resource since a revision, for a selection.
func BenchmarkChanged(b *testing.B) {
	c := newCrowd(b, 9, 8<<20, 300)
	before := c.store.State()
	for range 32 {
		c.step(1)
	}
	for _, since := range []uint64{before.Revision, c.store.State().Revision} {
		name := map[bool]string{true: "32 changes", false: "no change"}[since == before.Revision]
		b.Run(name, func(b *testing.B) {
			l, f := c.selectors(c.fields)
			read := &objects.Read{Resource: widgets, Selection: objects.Select("n9", l, f), Reading: objects.Number}
			state := c.store.State()
			for b.Loop() {
				if state.Changed(read, since) != "" {
					b.Fatal("it is said to have changed")
				}
			}
		})
	}
}
