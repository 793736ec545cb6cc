// Package past has the stored objects that the rules of policies read, at each revision of a replay: each recorded write is decided
// with the objects that there were before it.
package past

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
)

// Objects are the stored objects that the rules of a policy read, as the policy shows them. They follow the changes of a history in
// their order, in one goroutine; others may read the states meanwhile.
type Objects struct {
	kinds  map[schema.GroupResource]*kind
	sorted []*policy.Kind
	store  *objects.Store
	lost   bool // an object has been erased: the states from then on are not known
}

type kind struct {
	*policy.Kind
	stored func([]byte) ([]byte, error)
}

// recentBytes is the memory for changes that a store keeps for watches, of which there are none.
const recentBytes = 1 << 20

// New returns the stored objects that the rules of a policy read. They are empty until [All.Begin]. It returns nil if the rules read no
// objects, or if the caller may not list a kind that they read.
func New(p *policy.Policy, mayList func(schema.GroupResource) (bool, error)) (*Objects, error) {
	reads := admission.MustOf(p).Reads()
	if len(reads) == 0 {
		return nil, nil
	}
	o := &Objects{kinds: map[schema.GroupResource]*kind{}, store: objects.New(recentBytes)}
	var kinds []objects.Kind
	for _, r := range reads {
		if may, err := mayList(r); err != nil || !may {
			return nil, err
		}
		k := p.Kind(r)
		o.kinds[r], o.sorted = &kind{k, versions.Stored(k)}, append(o.sorted, k)
		kinds = append(kinds, commit.KindOf(k))
	}
	tx := o.store.Begin()
	tx.SetKinds(kinds, nil)
	o.store.Publish(tx, 0)
	return o, nil
}

// Same reports whether both are the same objects, shown alike.
func (o *Objects) Same(other *Objects) bool {
	return o != nil && other != nil && commit.SameKinds(o.sorted, other.sorted)
}

// begin sets the state to that of a revision.
func (o *Objects) begin(ctx context.Context, h *history.Store, at uint64) error {
	for r := range o.kinds {
		for c, err := range h.List(ctx, r, "", at) {
			if errors.Is(err, history.ErrForgotten) {
				o.lost = true
				return nil
			}
			if err == nil {
				err = o.apply(c, o.store.State().Revision+1) // there are no more objects than revisions
			}
			if err != nil {
				return err
			}
		}
	}
	o.store.Publish(o.store.Begin(), at)
	return nil
}

// apply puts the object of a change into the state, or removes it.
func (o *Objects) apply(c *history.Change, revision uint64) error {
	of := c.Object
	at := schema.GroupResource{Group: of.GetGroup(), Resource: of.GetResource()}
	k := o.kinds[at]
	if k == nil || o.lost {
		return nil
	}
	was := o.store.State().Get(at, of.GetNamespace(), of.GetName())
	tx := o.store.Begin()
	switch {
	case c.Deleted && was == nil:
		return nil
	case c.Deleted:
		if err := tx.Apply(commit.GivenDeleted(k.Kind, was), revision); err != nil {
			return err
		}
	case c.Payload == nil:
		o.lost = true
		return nil
	default:
		if err := o.put(tx, k, c, was, revision); err != nil {
			return fmt.Errorf("%s %s/%s of revision %d cannot be read by rules: %w", at, of.GetNamespace(), of.GetName(), c.Revision, err)
		}
	}
	o.store.Publish(tx, revision)
	return nil
}

func (o *Objects) put(tx *objects.Tx, k *kind, c *history.Change, was *objects.Object, revision uint64) error {
	text, err := k.stored(c.Written())
	if err != nil {
		return err
	}
	return tx.Apply(commit.GivenWritten(k.Kind, c.Object, text, was), revision)
}

// States are states of objects at one revision.
type States map[*Objects]*objects.State

// All are the objects of several policies.
type All []*Objects

// Begin sets the states to those of a revision. No change has been followed.
func (all All) Begin(ctx context.Context, h *history.Store, at uint64) error {
	for _, o := range all {
		if err := o.begin(ctx, h, at); err != nil {
			return err
		}
	}
	return nil
}

// Follow adds a change of an object.
func (all All) Follow(c *history.Change) error {
	for _, o := range all {
		if err := o.apply(c, c.Revision); err != nil {
			return err
		}
	}
	return nil
}

// States returns the states as they are now.
func (all All) States() States {
	if len(all) == 0 {
		return nil
	}
	states := make(States, len(all))
	for _, o := range all {
		if !o.lost {
			states[o] = o.store.State()
		}
	}
	return states
}
