package plans

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"

	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/core/write/lookup"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/policy/stored"
	"stele.dev/stele/projections/objects"
)

// readable are the objects that the rules of a policy read, as the policy shows them. They are made when a rule first reads
// one. It is safe for concurrent use.
type readable struct {
	policy *policy.Policy
	source Source
	// shown returns the JSON of an object as the policy shows it.
	shown func(*policy.Kind, *Object) ([]byte, error)
	// unknown are the kinds that rules read and whose objects the plan does not have, or must not read for its caller. As
	// long as there are such kinds, no rule reads stored objects.
	unknown []unknown
	kinds   []*policy.Kind // that rules read

	cache *lookup.Cache
	same  *readable // has the same state; nil if it has one of its own
	made  sync.Once
	state *objects.State
	err   error
}

// unknown is a kind whose objects are not known.
type unknown struct {
	resource schema.GroupResource
	why      string
}

// newReadable returns the objects that the rules of a policy read.
func newReadable(ctx context.Context, p *policy.Policy, o *Options, show func(*policy.Kind, *Object) ([]byte, error)) (*readable, error) {
	r := &readable{policy: p, source: o.Objects, shown: show, cache: lookup.NewCache()}
	for _, resource := range admission.MustOf(p).Reads() {
		k := p.Kind(resource)
		may, err := o.mayRead(ctx, resource, today)
		switch {
		case err != nil:
			return nil, err
		case !may:
			r.unknown = append(r.unknown, unknown{resource, "you may not list them in all namespaces"})
		case !r.source.Has(k):
			r.unknown = append(r.unknown, unknown{resource, "the file has none of them"})
		}
		r.kinds = append(r.kinds, k)
	}
	return r, nil
}

// stored returns what rules read for a write of an object; nil if it is not known. If the write creates the object, it is not
// among the stored ones, although it is there.
func (r *readable) stored(ctx context.Context, key commit.Key, creates bool) (admission.Stored, error) {
	if len(r.kinds) == 0 || len(r.unknown) > 0 {
		return nil, nil
	}
	state, err := r.objects(ctx)
	if err != nil {
		return nil, err
	}
	reader := r.cache.Reader(state, &key)
	if creates {
		return &without{&reader, key}, nil
	}
	return &reader, nil
}

// objects returns the state of the objects, which is made once.
func (r *readable) objects(ctx context.Context) (*objects.State, error) {
	if r.same != nil {
		return r.same.objects(ctx)
	}
	r.made.Do(func() { r.state, r.err = r.make(ctx) })
	return r.state, r.err
}

// make makes the state of the objects. Each is put at its own revision, if there is none with it yet.
func (r *readable) make(ctx context.Context) (*objects.State, error) {
	type item struct {
		kind *policy.Kind
		*Object
	}
	var all []item
	kinds := make([]objects.Kind, len(r.kinds))
	for i, k := range r.kinds {
		kinds[i] = commit.KindOf(k)
		for o := range r.source.Objects(k) {
			all = append(all, item{k, o})
		}
	}
	slices.SortStableFunc(all, func(a, b item) int { return cmp.Compare(a.Revision, b.Revision) })
	store := objects.New(0)
	tx := store.Begin()
	tx.SetKinds(kinds, nil)
	revision := uint64(0)
	for _, o := range all {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		revision = max(revision+1, o.Revision)
		e, err := r.event(o.kind, o.Object)
		if err == nil {
			err = tx.Apply(e, revision)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s cannot be read: %w", o.kind.Resource(), nameOf(o.Object), err)
		}
	}
	store.Publish(tx, revision)
	return store.State(), nil
}

// event returns an event that creates an object.
func (r *readable) event(k *policy.Kind, o *Object) (*eventlog.Event, error) {
	text, err := r.shown(k, o)
	if err != nil {
		return nil, err
	}
	return commit.GivenStored(k, text, nil)
}

// without are stored objects without one of them.
type without struct {
	*lookup.Reader
	key commit.Key
}

// Get implements [admission.Stored].
func (w *without) Get(v *policy.Version, namespace, name string) (*policy.Object, error) {
	if (commit.Key{GroupResource: v.Kind.Stored().GroupResource(), Namespace: namespace, Name: name}) == w.key {
		return nil, nil
	}
	return w.Reader.Get(v, namespace, name)
}

// others returns a selection without the object.
func (w *without) others(s *stored.Selection) *stored.Selection {
	others := *s
	others.Others = true
	return &others
}

// Exists implements [admission.Stored].
func (w *without) Exists(v *policy.Version, s *stored.Selection) (bool, error) {
	return w.Reader.Exists(v, w.others(s))
}

// Count implements [admission.Stored].
func (w *without) Count(v *policy.Version, s *stored.Selection) (int, error) {
	return w.Reader.Count(v, w.others(s))
}

// List implements [admission.Stored].
func (w *without) List(v *policy.Version, s *stored.Selection) ([]*policy.Object, error) {
	return w.Reader.List(v, w.others(s))
}

// readables returns the objects that the rules of both policies of a plan read. Where the source does not have them as a policy
// shows them, they are made from what was written.
func readables(ctx context.Context, from, to *policy.Policy, o *Options) (was, is *readable, err error) {
	source := o.Objects
	rendered := source.Shown() == nil || source.Shown().Digest() == from.Digest()
	made := func(k *policy.Kind, o *Object) ([]byte, error) {
		if o.Written != nil {
			return versions.Stored(k)(o.Written)
		}
		return versions.Stored(k)(o.JSON)
	}
	was, err = newReadable(ctx, from, o, func(k *policy.Kind, o *Object) ([]byte, error) {
		if rendered {
			return o.JSON, nil
		}
		return made(k, o)
	})
	if err != nil {
		return nil, nil, err
	}
	is, err = newReadable(ctx, to, o, func(k *policy.Kind, o *Object) ([]byte, error) {
		if before := from.Kind(k.GroupResource()); rendered && before != nil && before.SameForm(k.Kind) {
			return o.JSON, nil
		}
		return made(k, o)
	})
	if err != nil {
		return nil, nil, err
	}
	if commit.SameKinds(was.kinds, is.kinds) {
		is.same = was
	}
	return was, is, nil
}

// unread returns notes about rules of the newer policy that read objects which are not known.
func unread(trials []*kindTrial) (notes []string) {
	i := slices.IndexFunc(trials, func(t *kindTrial) bool { return t.to.reads() })
	if i < 0 {
		return nil
	}
	for _, x := range trials[i].to.reading.unknown {
		notes = append(notes, fmt.Sprintf("Rules that read stored objects were left out when objects were tried, because there are rules that read %s: %s.", x.resource, x.why))
	}
	return notes
}

// reads reports whether a rule for the kind reads stored objects.
func (b *bench) reads() bool {
	rules := admission.MustOf(b.policy)
	for _, subresource := range []string{"", "status"} {
		for _, operation := range []policy.Operation{policy.Create, policy.Update} {
			if slices.ContainsFunc(rules.Validations(b.version, subresource, operation), func(v *policy.Validation) bool { return len(v.Objects) > 0 || v.ParamSource != nil }) ||
				slices.ContainsFunc(rules.Mutations(b.version, subresource, operation), func(m admission.Mutation) bool { return m.Reads() }) {
				return true
			}
		}
	}
	return false
}
