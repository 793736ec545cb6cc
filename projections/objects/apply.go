package objects

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// Change is what one revision changed of one object. It is immutable, and MUST NOT be copied. Each write,
// and each object of a bulk, has its own revision; all objects that an activation renders anew share one.
type Change struct {
	Revision uint64
	// Object is the object after the change. If it was deleted, it is the last version, at this revision.
	// If it was rendered anew, its revision is that of its last write.
	Object *Object
	// Before is the object before the change; nil if it is new.
	Before  *Object
	Deleted bool
	// partial is set if more changes of the same revision follow.
	partial bool

	leaving sync.Once
	leaver  *Object // see left
}

// Tx is a scratch copy of a state. It is not safe for concurrent use.
type Tx struct {
	store   *Store
	next    State
	own     map[schema.GroupResource]bool // resources whose trees are the scratch copy's own
	changes []*Change
	kinds   bool   // SetKinds was called
	sought  Object // the key that Get looks for: a new one for each would take as much memory as an object
}

// Begin opens a scratch copy of the current state.
func (s *Store) Begin() *Tx {
	tx := &Tx{store: s, next: *s.State()}
	tx.next.store, tx.next.scratch = nil, tx // indexes do not have its changes
	return tx
}

// State returns the scratch state. It MUST NOT be used after the next Apply.
func (tx *Tx) State() *State { return &tx.next }

// Changes returns the changes that were applied so far.
func (tx *Tx) Changes() []*Change { return tx.changes }

// Apply folds one event into the scratch copy, at a revision. An error means that the event cannot follow
// this state; the scratch copy is then unchanged.
func (tx *Tx) Apply(e *eventlog.Event, revision uint64) error {
	if revision <= tx.next.Revision {
		return fmt.Errorf("objects: event at revision %d after revision %d", revision, tx.next.Revision)
	}
	var changes []*Change
	var err error
	switch t := e.Meta.GetType(); {
	case t != logpb.Type_TYPE_CREATED && t != logpb.Type_TYPE_UPDATED && t != logpb.Type_TYPE_DELETED && t != logpb.Type_TYPE_BULK_DELETED:
	case tx.store.lacking(e, revision):
		changes, err = tx.remains(e, revision)
	case t == logpb.Type_TYPE_BULK_DELETED:
		changes, err = tx.bulk(e, revision)
	default:
		var c *Change
		if c, err = tx.change(e, revision); err == nil {
			changes = []*Change{c}
		}
	}
	if err != nil {
		return fmt.Errorf("objects: event at revision %d: %w", revision, err)
	}
	for _, c := range changes {
		t := tx.tree(c.Object.kind.GroupResource)
		if c.Deleted {
			t.Delete(c.Object)
		} else {
			t.Set(c.Object)
		}
	}
	tx.changes = append(tx.changes, changes...)
	tx.next.Revision = revision + e.Span() - 1
	return nil
}

// change returns the change of an event about one object.
func (tx *Tx) change(e *eventlog.Event, revision uint64) (*Change, error) {
	meta := e.Meta
	ref := meta.GetObject()
	before, err := tx.objectBefore(ref, meta.GetPreviousRevision())
	if err != nil {
		return nil, err
	}
	if created := meta.GetType() == logpb.Type_TYPE_CREATED; created != (before == nil) {
		return nil, fmt.Errorf("%s of %s, whose previous revision is %d", meta.GetType(), name(ref), meta.GetPreviousRevision())
	}
	o, err := tx.object(e, revision)
	if err != nil {
		return nil, err
	}
	return &Change{Revision: revision, Object: o, Before: before, Deleted: meta.GetType() == logpb.Type_TYPE_DELETED}, nil
}

// object returns the object that an event has.
func (tx *Tx) object(e *eventlog.Event, revision uint64) (*Object, error) {
	meta, ref := e.Meta, e.Meta.GetObject()
	payload := e.Content(logpb.Role_ROLE_OBJECT)
	if payload == nil {
		return nil, fmt.Errorf("%s has no payload", name(ref))
	}
	o, err := newObject(tx.next.kind(groupResource(ref)), payload, revision)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name(ref), err)
	}
	if o.Namespace != ref.GetNamespace() || o.Name != ref.GetName() || o.UID != ref.GetUid() {
		return nil, fmt.Errorf("%s with uid %q has a payload of %s/%s with uid %q", name(ref), ref.GetUid(), o.Namespace, o.Name, o.UID)
	}
	o.secret = slices.ContainsFunc(meta.GetPayloads(), func(p *logpb.Payload) bool { return p.GetClass().GetSensitive() })
	if kept := e.Content(logpb.Role_ROLE_KEPT); kept != nil {
		if o.written, err = newObject(o.kind, kept, revision); err != nil {
			return nil, fmt.Errorf("%s, as it is stored: %w", name(ref), err)
		}
		if o.written.key() != o.key() || o.written.UID != o.UID {
			return nil, fmt.Errorf("%s is stored as another object", name(ref))
		}
		o.written.secret = o.secret
	}
	return o, nil
}

// bulk returns the changes of an event that deletes many objects.
func (tx *Tx) bulk(e *eventlog.Event, revision uint64) ([]*Change, error) {
	gone := e.Meta.GetBulk().GetObjects()
	if uint64(len(gone)) != e.Span() {
		return nil, fmt.Errorf("bulk of %d objects spans %d revisions", len(gone), e.Span())
	}
	changes := make([]*Change, len(gone))
	seen := map[*Object]bool{}
	for i, g := range gone {
		before, err := tx.objectBefore(g.GetObject(), g.GetPreviousRevision())
		if err != nil {
			return nil, err
		}
		if before == nil || seen[before] {
			return nil, fmt.Errorf("%s cannot be deleted, it does not exist", name(g.GetObject()))
		}
		seen[before] = true
		changes[i] = &Change{Revision: revision + uint64(i), Object: before.At(revision + uint64(i)), Before: before, Deleted: true}
	}
	return changes, nil
}

// objectBefore returns the object that an event changes. The event says at which revision it was last changed;
// for a new object, with revision 0, before returns nil.
func (tx *Tx) objectBefore(ref *logpb.Object, revision uint64) (*Object, error) {
	o := tx.Get(groupResource(ref), ref.GetNamespace(), ref.GetName())
	switch {
	case o == nil && revision == 0:
		return nil, nil
	case o == nil:
		return nil, fmt.Errorf("%s does not exist, its previous revision should be %d", name(ref), revision)
	case o.Revision != revision:
		return nil, fmt.Errorf("%s was last changed at revision %d, not %d", name(ref), o.Revision, revision)
	case o.UID != ref.GetUid():
		return nil, fmt.Errorf("%s has uid %q, not %q", name(ref), o.UID, ref.GetUid())
	}
	return o, nil
}

// SetKinds replaces all kinds. It parses objects again if their selectable fields changed, and renders
// objects of kinds with [Kind.Render]. For each object whose JSON differs afterwards there is a change at
// the revision of the state; the object itself keeps its revision, because nobody wrote it. Objects in
// ahead are not rendered again.
func (tx *Tx) SetKinds(kinds []Kind, ahead Rendered) {
	next := make(map[schema.GroupResource]*Kind, len(kinds))
	var others []*Object
	var changes []*Change
	for _, k := range kinds {
		kind, was := newKind(k), tx.next.kinds[k.GroupResource]
		if was != nil && was.equals(kind) {
			kind = was
		}
		next[k.GroupResource] = kind
		t := tx.next.trees[k.GroupResource]
		if t == nil || kind == was && k.Render == nil {
			continue
		}
		t.Scan(func(o *Object) bool {
			is := o.withKind(kind)
			if k.Render != nil {
				if is = ahead[o]; is == nil {
					is = o.rendered(kind, k.Render)
				}
				if &is.JSON[0] != &o.JSON[0] { // an unchanged object shares its JSON
					changes = append(changes, &Change{Revision: tx.next.Revision, Object: is, Before: o, partial: true})
				}
			}
			if is != o {
				others = append(others, is)
			}
			return true
		})
	}
	if n := len(changes); n > 0 {
		changes[n-1].partial = false
	}
	for _, o := range others {
		tx.tree(o.kind.GroupResource).Set(o)
	}
	tx.next.kinds, tx.kinds = next, true
	tx.changes = append(tx.changes, changes...)
}

// Rendered maps objects to what [Tx.SetKinds] will replace them by.
type Rendered map[*Object]*Object

// Render renders the objects of kinds with [Kind.Render] in advance, so that the next SetKinds has little
// left to do. If the context ends, it returns those that it has rendered.
func (s *State) Render(ctx context.Context, kinds []Kind) Rendered {
	done := Rendered{}
	for _, k := range kinds {
		t := s.trees[k.GroupResource]
		if t == nil || k.Render == nil {
			continue
		}
		kind := newKind(k)
		t.Scan(func(o *Object) bool {
			done[o] = o.rendered(kind, k.Render)
			return ctx.Err() == nil
		})
	}
	return done
}

// tree returns the scratch copy's own tree of a resource.
func (tx *Tx) tree(r schema.GroupResource) *tree {
	if tx.own[r] {
		return tx.next.trees[r]
	}
	if tx.own == nil {
		tx.own = make(map[schema.GroupResource]bool, 1)
		if tx.next.trees = maps.Clone(tx.next.trees); tx.next.trees == nil {
			tx.next.trees = map[schema.GroupResource]*tree{}
		}
	}
	t := tx.next.trees[r]
	if t == nil {
		t = newTree()
	} else {
		t = tx.store.clone(t)
	}
	tx.next.trees[r], tx.own[r] = t, true
	return t
}

func groupResource(ref *logpb.Object) schema.GroupResource {
	return schema.GroupResource{Group: ref.GetGroup(), Resource: ref.GetResource()}
}

func name(ref *logpb.Object) string {
	n := groupResource(ref).String() + " "
	if ref.GetNamespace() != "" {
		n += ref.GetNamespace() + "/"
	}
	return n + ref.GetName()
}
