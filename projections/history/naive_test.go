package history_test

import (
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/history"
)

// naive is a simple model of a history: it keeps all changes in memory, and scans them for each query.
type naive struct {
	changes []*history.Change // ascending by revision
	keys    map[place][]*history.Change
	epochs  []history.Epoch
}

// place is the resource, namespace and name of an object.
type place struct {
	schema.GroupResource
	namespace, name string
}

func placeOf(o *logpb.Object) place {
	return place{schema.GroupResource{Group: o.GetGroup(), Resource: o.GetResource()}, o.GetNamespace(), o.GetName()}
}

func (n *naive) apply(b *eventlog.Batch) {
	for _, e := range b.Events {
		m := e.Meta
		if started := m.GetEpochStarted(); started != nil {
			n.epochs = append(n.epochs, history.Epoch{LostFrom: started.GetLostFrom(), Next: started.GetNext()})
		}
		if m.GetClockSet() != nil {
			for i, c := range n.changes {
				if c.Time.After(e.Time) {
					earlier := *c
					earlier.Time = e.Time
					n.replace(i, &earlier)
				}
			}
		}
		for i, g := range m.GetBulk().GetObjects() {
			c := &history.Change{Revision: e.Revision + uint64(i), Time: e.Time, Meta: m, Object: g.GetObject(), Previous: g.GetPreviousRevision(), Deleted: true}
			if versions := n.keys[placeOf(c.Object)]; len(versions) > 0 {
				c.Payload = versions[len(versions)-1].Payload
			}
			n.add(c)
		}
		if m.GetBulk() == nil {
			n.add(&history.Change{
				Revision: e.Revision, Time: e.Time, Meta: m, Object: m.GetObject(), Previous: m.GetPreviousRevision(), Deleted: m.GetType() == logpb.Type_TYPE_DELETED,
				Payload: e.Content(logpb.Role_ROLE_OBJECT), Request: e.Content(logpb.Role_ROLE_REQUEST), Kept: e.Content(logpb.Role_ROLE_KEPT),
			})
		}
	}
}

// replace replaces change i.
func (n *naive) replace(i int, c *history.Change) {
	if c.Object != nil {
		versions := n.keys[placeOf(c.Object)]
		versions[slices.Index(versions, n.changes[i])] = c
	}
	n.changes[i] = c
}

func (n *naive) add(c *history.Change) {
	n.changes = append(n.changes, c)
	if c.Object != nil {
		if n.keys == nil {
			n.keys = map[place][]*history.Change{}
		}
		n.keys[placeOf(c.Object)] = append(n.keys[placeOf(c.Object)], c)
	}
}

func upTo(changes []*history.Change, revision uint64) []*history.Change {
	return changes[:sort.Search(len(changes), func(i int) bool { return changes[i].Revision > revision })]
}

func (n *naive) versions(p place, from uint64) []*history.Change {
	versions := slices.Clone(upTo(n.keys[p], from))
	slices.Reverse(versions)
	return versions
}

// erased reports whether the content of a version has been erased, which happens only to superseded ones.
func erased(c *history.Change) bool { return !c.Deleted && c.Payload == nil }

func (n *naive) list(r schema.GroupResource, namespace string, at uint64) []*history.Change {
	last := map[place]*history.Change{}
	for _, c := range n.selected(history.Filter{Resource: r, Namespace: namespace}, 0, at) {
		last[placeOf(c.Object)] = c
	}
	var living []*history.Change
	for _, c := range upTo(n.changes, at) {
		if c.Object != nil && last[placeOf(c.Object)] == c && !c.Deleted && !erased(c) {
			living = append(living, c)
		}
	}
	return living
}

func (n *naive) selected(f history.Filter, after, upto uint64) (matching []*history.Change) {
	for _, c := range upTo(n.changes, upto) {
		o := c.Object
		matches := f == (history.Filter{}) || o != nil &&
			(f.Resource.Empty() || placeOf(o).GroupResource == f.Resource) && (f.Namespace == "" || f.Namespace == o.GetNamespace()) && (f.Name == "" || f.Name == o.GetName())
		if c.Revision > after && matches {
			matching = append(matching, c)
		}
	}
	return matching
}

func (n *naive) at(revision uint64) *history.Change {
	if changes := upTo(n.changes, revision); len(changes) > 0 && changes[len(changes)-1].Revision == revision {
		return changes[len(changes)-1]
	}
	return nil
}

// revisionAt returns the last revision up to a time; 0 if there is none.
func (n *naive) revisionAt(t time.Time) uint64 {
	i := sort.Search(len(n.changes), func(i int) bool { return n.changes[i].Time.After(t) })
	if i == 0 {
		return 0
	}
	return n.changes[i-1].Revision
}

func (n *naive) lost(revision uint64) (history.Epoch, bool) {
	for _, e := range n.epochs {
		if revision >= e.LostFrom && revision < e.Next {
			return e, true
		}
	}
	return history.Epoch{}, false
}
