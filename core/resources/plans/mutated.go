package plans

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/resources/plans/past"
	"stele.dev/stele/core/write/validity"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas/celtype"
	"stele.dev/stele/schemas/jsonvalue"
)

// mutated lets the rules of mutate change the object of a write, as the stage mutation does, apart from webhooks and plugins.
// The object has been prepared. refused says why the write is refused by them.
func mutated(ctx context.Context, rules []admission.Mutation, p *policy.Policy, v *policy.Version, a *admission.Attributes) (o *policy.Object, applied []admission.Applied, refused *failure, err error) {
	ctx, cancel := expr.Limited(ctx)
	defer cancel()
	var before map[string]any
	if a.Old != nil {
		before = a.Old.Content
	}
	m := admission.MustOf(p).Mutate(ctx, v, a, func(content map[string]any) ([]string, error) {
		unknown, _, err := validity.Prepare(v, content, before, false)
		if err != nil {
			return unknown, err
		}
		return unknown, nil
	})
	is := a.Object
	applied, err = m.RunAll(rules)
	if failed := new(admission.MutationError); errors.As(err, &failed) {
		return nil, nil, &failure{rule: failed.Rule, source: failed.Source, message: failed.Error(), admission: true}, nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	o, err = m.Object()
	switch {
	case err != nil:
		return nil, nil, &failure{message: err.Error(), admission: true}, nil
	case o == nil:
		return is, nil, nil, nil
	case o.Meta.Name != is.Meta.Name || o.Meta.Namespace != is.Meta.Namespace:
		return nil, nil, &failure{message: "admission cannot change the name", admission: true}, nil
	}
	return kept(v, a.Request.Subresource, o, is), applied, nil, nil
}

// kept returns what mutations made of an object, with what the write cannot change as it was.
func kept(v *policy.Version, subresource string, o, is *policy.Object) *policy.Object {
	if subresource == "status" {
		return &policy.Object{Meta: is.Meta, Content: admission.WithStatus(is.Content, o.Content)}
	}
	if v.Status {
		o.Content = admission.WithStatus(o.Content, is.Content)
	}
	for _, name := range []string{"apiVersion", "kind"} {
		delete(o.Content, name)
		if value, has := is.Content[name]; has {
			o.Content[name] = value
		}
	}
	metadata.KeepSystemFields(o.Meta, is.Meta)
	return o
}

// mutate returns what rules of mutate make of the object of a trial, or why they refuse it. Rules that read stored objects are
// left out if those are not known.
func (b *bench) mutate(ctx context.Context, next, old *policy.Object, subresource string, operation policy.Operation) (*policy.Object, *failure, error) {
	rules := admission.MustOf(b.policy).Mutations(b.version, subresource, operation)
	if len(rules) == 0 {
		return next, nil, nil
	}
	a, err := b.attributes(ctx, next, old, subresource, operation)
	if err != nil {
		return nil, nil, err
	}
	if a.Stored == nil {
		rules = slices.DeleteFunc(slices.Clone(rules), func(m admission.Mutation) bool { return m.Reads() })
	}
	o, _, refused, err := mutated(ctx, rules, b.policy, b.version, a)
	return o, refused, err
}

// contrasts compares how two policies decide recorded requests. It is safe for concurrent use.
type contrasts struct {
	from, to *judge
	read     past.All     // what the rules of both read
	same     sync.Map     // of subjects: bool
	waiting  atomic.Int64 // bytes of refusals that wait for the stored objects of then
	since    uint64       // the first revision whose objects requests met

	mu     sync.Mutex
	hidden map[schema.GroupResource]string // why requests are not decided again
}

func newContrasts(ctx context.Context, s plan.Sides, o *Options) (*contrasts, error) {
	c := &contrasts{from: newJudge(s.From, s.From, o), to: newJudge(s.To, s.From, o), hidden: map[schema.GroupResource]string{}}
	since, _ := o.Records.Span()
	c.since = max(since, 1) - 1
	mayList := func(r schema.GroupResource) (bool, error) { return o.mayRead(ctx, r, c.since) }
	var err error
	if c.from.past, err = past.New(s.From, mayList); err != nil {
		return nil, err
	}
	if c.to.past, err = past.New(s.To, mayList); err != nil {
		return nil, err
	}
	if c.to.past.Same(c.from.past) {
		c.to.past = c.from.past
	}
	c.read = slices.Compact(slices.DeleteFunc(past.All{c.from.past, c.to.past}, func(p *past.Objects) bool { return p == nil }))
	return c, nil
}

// unread says why requests about a resource are not decided again; empty if they are.
func (c *contrasts) unread(ctx context.Context, r schema.GroupResource, o *Options) (why string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	why, known := c.hidden[r]
	if !known {
		if why, err = o.unread(ctx, r, c.since, c.from.policy, c.to.policy); err == nil {
			c.hidden[r] = why
		}
	}
	return why, err
}

// subject is what the rules for a write depend on.
type subject struct {
	version, subresource string
	operation            policy.Operation
}

// differ reports whether the policies have different rules of mutate for a write that was decided.
func (c *contrasts) differ(r *Record, w *decide.Written) bool {
	if w == nil {
		return false
	}
	at := subject{w.Version.GroupVersionResource().String(), r.Meta.GetRequest().GetSubresource(), w.Operation}
	same, known := c.same.Load(at)
	if !known {
		is := true
		if was := c.from.policy.Version(w.Version.GroupVersionResource()); was != nil {
			is = sameMutations(admission.MustOf(c.from.policy).Mutations(was, at.subresource, at.operation), admission.MustOf(c.to.policy).Mutations(w.Version, at.subresource, at.operation))
		}
		same, _ = c.same.LoadOrStore(at, is)
	}
	return !same.(bool)
}

func sameMutations(a, b []admission.Mutation) bool {
	return slices.EqualFunc(a, b, func(a, b admission.Mutation) bool { return sameRule(a.Mutation, b.Mutation) })
}

// alterKey groups writes in which a field would be set otherwise.
type alterKey struct {
	verb, resource, path, rule string
	was                        bool
}

// alteration is a group of writes, with hashes of the names of their objects.
type alteration struct {
	plan.Alteration
	objects map[uint64]bool
}

// alter counts the fields that the new policy would set otherwise in a write that both policies allow. A field is that of the last
// change of the new policy that set it, or else of the older one.
func (f *flips) alter(r *Record, was, is *decide.Written, o *Options) {
	at := placeOf(r.Object)
	resource := at.String()
	if sub := r.Meta.GetRequest().GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(resource + "\x00" + r.Object.GetNamespace() + "\x00" + r.Object.GetName()))
	seen := map[string]bool{}
	before, after := root(was.Object), root(is.Object)
	count := func(step *policy.MutationStep, pointer string, old bool) {
		path := fieldPath(pointer)
		if seen[path] || reflect.DeepEqual(valueOf(before, pointer), valueOf(after, pointer)) {
			return
		}
		seen[path] = true
		k := alterKey{r.Meta.GetRequest().GetVerb(), resource, path, step.ID, old}
		f.mergeAlteration(k, &alteration{plan.Alteration{
			Verb: k.verb, Resource: resource, Path: path, Rule: step.ID, Source: step.Source.String(), Was: old, Count: 1, First: r.Revision, Last: r.Revision,
		}, map[uint64]bool{h.Sum64(): true}})
	}
	for _, side := range []*decide.Written{is, was} {
		for _, step := range slices.Backward(side.Applied) {
			for i := range step.Changes {
				count(step.Step, step.Changes[i].Path, side == was)
			}
		}
	}
}

func (f *flips) mergeAlteration(k alterKey, x *alteration) {
	is := f.altered[k]
	if is == nil {
		f.altered[k] = x
		return
	}
	is.Count += x.Count
	is.First, is.Last = min(is.First, x.First), max(is.Last, x.Last)
	maps.Copy(is.objects, x.objects)
}

// alterations returns the groups, the largest first.
func (f *flips) alterations() (list []plan.Alteration) {
	for _, x := range f.altered {
		x.Objects = len(x.objects)
		list = append(list, x.Alteration)
	}
	slices.SortFunc(list, func(a, b plan.Alteration) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Rule, b.Rule))
	})
	return list
}

// root returns an object as one map.
func root(o *policy.Object) map[string]any {
	all := maps.Clone(o.Content)
	if all == nil {
		all = map[string]any{}
	}
	all["metadata"] = celtype.MetadataJSON(o.Meta)
	return all
}

// valueOf returns the value at a JSON pointer; nil if there is none.
func valueOf(in any, pointer string) any {
	steps, _ := jsonvalue.PointerSteps(pointer)
	value, _ := jsonvalue.At(in, steps...)
	return value
}

// fieldPath returns a JSON pointer in the form of a finding's path.
func fieldPath(pointer string) (path string) {
	names, _ := jsonvalue.PointerSteps(pointer)
	for _, name := range names {
		_, err := strconv.Atoi(name)
		switch {
		case err == nil || name == "-":
			path += "[]"
		default:
			path = joinPath(path, name)
		}
	}
	return path
}
