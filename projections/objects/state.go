package objects

import (
	"iter"
	"sort"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/projections/objects/postings"
	"stele.dev/stele/schemas/brought"
)

// degree is the degree of the trees: a node holds up to 2*degree-1 objects. A write copies the nodes on the
// path to its object.
const degree = 32

// State is the state of all objects at one revision. It is immutable and safe for concurrent use.
type State struct {
	// Revision of the last event, whatever it was about.
	Revision uint64
	trees    map[schema.GroupResource]*tree
	kinds    map[schema.GroupResource]*Kind
	// partial is set if the state has one resource only.
	partial bool
	// replaced counts how often the objects of a resource were replaced without changes, see Tx.Replace.
	replaced uint64
	// store has the indexes; nil for states that it has not published, and did not make of one that it has.
	store *Store
	// scratch is the scratch copy whose state it is; nil for a state that is published.
	scratch *Tx
}

// Get returns an object, or nil.
func (s *State) Get(r schema.GroupResource, namespace, name string) *Object {
	t := s.trees[r]
	if t == nil {
		return nil
	}
	o, _ := t.Get(&Object{Namespace: namespace, Name: name})
	return o
}

// List yields the objects of a resource that match a selection, ordered by namespace and name. It starts
// after the key (afterNamespace, afterName), or with the first object if both are empty. It looks only at the objects
// that an index finds, if that is cheaper; see [State.Scanned].
func (s *State) List(r schema.GroupResource, sel *Selection, afterNamespace, afterName string) iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		t := s.trees[r]
		if t == nil {
			return
		}
		if sel.Name != "" && sel.Namespace != "" {
			o := s.Get(r, sel.Namespace, sel.Name)
			if o != nil && lessObject(&Object{Namespace: afterNamespace, Name: afterName}, o) && sel.Matches(o) {
				yield(o)
			}
			return
		}
		if t.sorted != nil && t.listSorted(sel, afterNamespace, afterName, yield) {
			return
		}
		if s.indexed(r, sel, postings.Key{Namespace: afterNamespace, Name: afterName}, yield) {
			return
		}
		from := &Object{Namespace: max(afterNamespace, sel.Namespace)}
		if afterNamespace == from.Namespace {
			from.Name = afterName
		}
		skip := afterNamespace != "" || afterName != ""
		t.Ascend(from, func(o *Object) bool {
			if sel.Namespace != "" && o.Namespace != sel.Namespace {
				return false
			}
			if skip {
				if skip = false; o.Namespace == afterNamespace && o.Name == afterName {
					return true
				}
			}
			return !sel.Matches(o) || yield(o)
		})
	}
}

// Only returns the state with the objects of one resource. It does not keep the other ones in memory.
func (s *State) Only(r schema.GroupResource) *State {
	t := s.trees[r]
	if t == nil {
		return &none
	}
	return &State{Revision: s.Revision, trees: map[schema.GroupResource]*tree{r: t}}
}

// none has no objects.
var none State

// Shares reports whether two states have the same objects of a resource, because nothing has written one in between. It takes the same
// time for any number of objects.
func (s *State) Shares(other *State, r schema.GroupResource) bool {
	return s.trees[r] == other.trees[r]
}

// kind returns the kind of a resource. A resource that the policy does not have has no selectable fields.
func (s *State) kind(r schema.GroupResource) *Kind {
	if k := s.kinds[r]; k != nil {
		return k
	}
	return &Kind{GroupResource: r}
}

// CountAfter returns the number of objects of a resource after the key (afterNamespace, afterName), in a
// namespace, or in all if that is "". It takes O(log² n) time.
func (s *State) CountAfter(r schema.GroupResource, namespace, afterNamespace, afterName string) int {
	t := s.trees[r]
	if t == nil {
		return 0
	}
	if t.sorted != nil {
		return t.sortedAfter(namespace, afterNamespace, afterName)
	}
	// rank returns the number of objects before the first one for which past is true.
	rank := func(past func(*Object) bool) int {
		return sort.Search(t.Len(), func(i int) bool {
			o, _ := t.GetAt(i)
			return past(o)
		})
	}
	after := &Object{Namespace: afterNamespace, Name: afterName}
	if afterNamespace < namespace {
		after = &Object{Namespace: namespace}
	}
	first := rank(func(o *Object) bool { return lessObject(after, o) })
	if namespace == "" {
		return t.Len() - first
	}
	return max(0, rank(func(o *Object) bool { return o.Namespace > namespace })-first)
}

// Len returns the number of objects of a resource.
func (s *State) Len(r schema.GroupResource) int {
	if t := s.trees[r]; t != nil {
		return t.Len()
	}
	return 0
}

// Total returns the number of objects of a resource and the size of their JSON, in a namespace, or in all if that is
// "". It takes O(log n) time, n being the number of namespaces.
func (s *State) Total(r schema.GroupResource, namespace string) Total {
	t := s.trees[r]
	switch {
	case t == nil:
		return Total{}
	case namespace == "":
		return t.total
	}
	in, _ := t.in.Get(namespace)
	return in
}

// Count returns the number of all objects.
func (s *State) Count() (n int) {
	for _, t := range s.trees {
		n += t.Len()
	}
	return n
}

// FirstIn returns the first resource, by name, of which a namespace has objects. What clients have written beside what the policy says does not count: it
// goes with the namespace. What they brought themselves does.
func (s *State) FirstIn(namespace string) (schema.GroupResource, bool) {
	first, found := schema.GroupResource{}, false
	for r, t := range s.trees {
		rules := s.kinds != nil && s.kinds[r] == nil
		if rules && brought.Of(r) == nil {
			continue
		}
		t.Ascend(&Object{Namespace: namespace}, func(o *Object) bool {
			if o.Namespace != namespace {
				return false
			}
			if rules && !brought.Is(o.JSON) {
				return true
			}
			if !found || r.String() < first.String() {
				first, found = r, true
			}
			return false
		})
	}
	return first, found
}
