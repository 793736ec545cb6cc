package objects

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// MayLack tells the store up to which revision the log lacks events and contents of a kind: retention has erased them,
// because later changes superseded them. The fold then takes an event without content for a deletion, and creates an
// object that it does not have at an update. Each version that was in force at that revision or later has its content,
// so from there on the state is the same as without erasing. MayLack is called before the first event is applied.
func (s *Store) MayLack(upto map[schema.GroupResource]uint64) { s.lacks = upto }

// lacking reports whether the log may lack events of the kinds that an event at a revision is about.
func (s *Store) lacking(e *eventlog.Event, revision uint64) bool {
	if len(s.lacks) == 0 {
		return false
	}
	for _, g := range e.Meta.GetBulk().GetObjects() {
		if revision <= s.lacks[groupResource(g.GetObject())] {
			return true
		}
	}
	return e.Meta.GetObject() != nil && revision <= s.lacks[groupResource(e.Meta.GetObject())]
}

// remains returns the changes of an event of a log of which a part has been erased.
func (tx *Tx) remains(e *eventlog.Event, revision uint64) ([]*Change, error) {
	if bulk := e.Meta.GetBulk(); bulk != nil {
		var changes []*Change
		for i, g := range bulk.GetObjects() {
			changes = append(changes, tx.removal(g.GetObject(), revision+uint64(i))...)
		}
		return changes, nil
	}
	ref := e.Meta.GetObject()
	if e.Meta.GetType() == logpb.Type_TYPE_DELETED || e.Content(logpb.Role_ROLE_OBJECT) == nil {
		return tx.removal(ref, revision), nil
	}
	before := tx.next.Get(groupResource(ref), ref.GetNamespace(), ref.GetName())
	if before != nil && before.Revision != e.Meta.GetPreviousRevision() {
		return nil, fmt.Errorf("%s was last changed at revision %d, not %d", name(ref), before.Revision, e.Meta.GetPreviousRevision())
	}
	o, err := tx.object(e, revision)
	if err != nil {
		return nil, err
	}
	return []*Change{{Revision: revision, Object: o, Before: before}}, nil
}

// removal returns the change that deletes an object; none if it does not exist.
func (tx *Tx) removal(ref *logpb.Object, revision uint64) []*Change {
	before := tx.next.Get(groupResource(ref), ref.GetNamespace(), ref.GetName())
	if before == nil {
		return nil
	}
	return []*Change{{Revision: revision, Object: before.At(revision), Before: before, Deleted: true}}
}
