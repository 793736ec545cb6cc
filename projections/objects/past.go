package objects

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Version is a version of an object.
type Version struct {
	// Payload is the JSON that clients see, without resourceVersion.
	Payload  []byte
	Revision uint64
	// Object is the object, if another state has it already; nil to make it of the other fields.
	Object *Object
}

// StateOf makes the state of one resource at a revision, from the versions that its objects had then, in
// any order. They may be those of one namespace. It is safe for concurrent use.
func StateOf(k Kind, revision uint64, versions []Version) (*State, error) {
	kind := newKind(k)
	all := make([]*Object, len(versions))
	for i, v := range versions {
		if all[i] = v.Object; v.Object != nil {
			continue
		}
		var err error
		if all[i], err = newObject(kind, v.Payload, v.Revision); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b *Object) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	t := newTree()
	for _, o := range all {
		t.Load(o)
	}
	return &State{Revision: revision, trees: map[schema.GroupResource]*tree{k.GroupResource: t}, kinds: map[schema.GroupResource]*Kind{k.GroupResource: kind}, partial: true}, nil
}

// Beside returns the state with the objects of another one, of those resources of which it has none itself.
func (s *State) Beside(other *State) *State {
	next := *s
	next.trees, next.kinds = map[schema.GroupResource]*tree{}, map[schema.GroupResource]*Kind{}
	maps.Copy(next.trees, other.trees)
	maps.Copy(next.kinds, other.kinds)
	maps.Copy(next.trees, s.trees)
	maps.Copy(next.kinds, s.kinds)
	return &next
}

// Parser returns a function that makes objects of a kind from their payloads, for changes that are made
// from the history. The function is safe for concurrent use.
func (k Kind) Parser() func(payload []byte, revision uint64) (*Object, error) {
	kind := newKind(k)
	return func(payload []byte, revision uint64) (*Object, error) { return newObject(kind, payload, revision) }
}

// SameJSON reports whether clients see the same JSON of two objects.
func (o *Object) SameJSON(other *Object) bool { return string(o.JSON) == string(other.JSON) }
