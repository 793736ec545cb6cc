package objects

import (
	"iter"
	"sort"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// degree of the trees: a node holds up to 2*degree-1 objects. Copying the nodes on
// the path to one object is what a write costs.
const degree = 32

type tree = btree.BTreeG[*Object]

// State is what all objects are at one revision. It never changes and is safe for
// concurrent use.
type State struct {
	// Revision of the last event that was applied, to whatever object.
	Revision uint64
	trees    map[schema.GroupResource]*tree
	kinds    map[schema.GroupResource]*Kind
	// partial: it has one resource only.
	partial bool
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

// List yields the objects of a resource that a selection matches, ordered by
// namespace and name, from the key (afterNamespace, afterName) on, that key
// excluded; from the first if both are empty.
func (s *State) List(r schema.GroupResource, sel *Selection, afterNamespace, afterName string) iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		t := s.trees[r]
		if t == nil {
			return
		}
		if sel.Name != "" && sel.Namespace != "" {
			o := s.Get(r, sel.Namespace, sel.Name)
			if o != nil && less(&Object{Namespace: afterNamespace, Name: afterName}, o) && sel.Matches(o) {
				yield(o)
			}
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

// kind describes a resource; one that the policy no longer has, or not yet, has no
// selectable fields.
func (s *State) kind(r schema.GroupResource) *Kind {
	if k := s.kinds[r]; k != nil {
		return k
	}
	return &Kind{GroupResource: r}
}

// CountAfter is the number of objects of a resource in a namespace, or in all of
// them if that is "", that come after the key (afterNamespace, afterName). Its cost
// grows with the logarithm of the number.
func (s *State) CountAfter(r schema.GroupResource, namespace, afterNamespace, afterName string) int {
	t := s.trees[r]
	if t == nil {
		return 0
	}
	// rank is the number of objects at the head of the tree for which none is past.
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
	first := rank(func(o *Object) bool { return less(after, o) })
	if namespace == "" {
		return t.Len() - first
	}
	return max(0, rank(func(o *Object) bool { return o.Namespace > namespace })-first)
}

// Len is the number of objects of a resource.
func (s *State) Len(r schema.GroupResource) int {
	if t := s.trees[r]; t != nil {
		return t.Len()
	}
	return 0
}

// FirstIn returns a resource of which the namespace still has objects.
func (s *State) FirstIn(namespace string) (schema.GroupResource, bool) {
	first, found := schema.GroupResource{}, false
	for r, t := range s.trees {
		t.Ascend(&Object{Namespace: namespace}, func(o *Object) bool {
			if o.Namespace == namespace && (!found || r.String() < first.String()) {
				first, found = r, true
			}
			return false
		})
	}
	return first, found
}
