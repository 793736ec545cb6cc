package objects

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reading is what somebody learned of the objects that a selection contains: it says which changes matter.
type Reading uint8

// Readings.
const (
	// Contents are the objects themselves. Every change of one of them matters.
	Contents Reading = iota
	// Number is how many objects there are. It does not matter which ones.
	Number
	// Some is that there is at least one object. Only fewer objects matter.
	Some
	// None is that there is no object. Only more objects matter.
	None
)

// maxChanged is how many changes [State.Changed] looks at. Whoever read a state that is older decides again.
const maxChanged = 4096

// Read is what somebody read of a state, for [State.Changed].
type Read struct {
	Resource  schema.GroupResource
	Selection Selection
	// Except is the object that was left out: its namespace and name; both empty for none.
	ExceptNamespace, ExceptName string
	Reading                     Reading
}

// Changed returns why the read, of a state at an earlier revision, may have another result in this state: "" if it has the
// same one. It looks at the changes between the two only; if they are too many, or not in memory any more, it says so. It
// works for the state of a scratch copy, too.
func (s *State) Changed(read *Read, since uint64) string {
	if s.Revision <= since {
		return ""
	}
	store := s.store
	if s.scratch != nil {
		store = s.scratch.store
	}
	if store == nil {
		return "the changes since revision " + fmt.Sprint(since) + " are not known"
	}
	t := tally{Read: read}
	if !store.tally(&t, since, s.Revision) {
		return fmt.Sprintf("there are too many changes of %s since revision %d", read.Resource, since)
	}
	if s.scratch != nil {
		for _, c := range s.scratch.changes {
			if c.Revision > since && c.Object.kind.GroupResource == read.Resource {
				t.add(c)
			}
		}
	}
	return t.verdict()
}

// tally adds changes up by what they mean for a read.
type tally struct {
	*Read
	more int // objects in the selection
	last *Change
}

func (t *tally) add(c *Change) {
	if (t.ExceptName != "" || t.ExceptNamespace != "") && c.Object.Name == t.ExceptName && c.Object.Namespace == t.ExceptNamespace {
		return
	}
	is, was := !c.Deleted && t.Selection.Matches(c.Object), c.Before != nil && t.Selection.Matches(c.Before)
	switch {
	case is && !was:
		t.more++
	case was && !is:
		t.more--
	case !is || t.Reading != Contents:
		return
	}
	t.last = c
}

func (t *tally) verdict() string {
	same := true
	switch t.Reading {
	case Contents:
		same = t.last == nil
	case Number:
		same = t.more == 0
	case Some:
		same = t.more >= 0
	case None:
		same = t.more <= 0
	}
	if same {
		return ""
	}
	return fmt.Sprintf("%s has been changed at revision %d", t.last.Object.longName(), t.last.Revision)
}

// longName returns resource, namespace and name.
func (o *Object) longName() string {
	n := o.kind.GroupResource.String() + " "
	if o.Namespace != "" {
		n += o.Namespace + "/"
	}
	return n + o.Name
}

// tally adds the published changes between two revisions. It reports whether it knows all of them.
func (s *Store) tally(t *tally, since, upTo uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feeds[t.Resource]
	if f == nil {
		return since >= s.begin(t.Resource)
	}
	first := f.firstAfter(since)
	if since < f.floor || f.changes.len()-first > maxChanged {
		return false
	}
	for i := first; i < f.changes.len(); i++ {
		c := f.changes.get(i)
		if c.Revision > upTo {
			break
		}
		t.add(c)
	}
	return true
}
