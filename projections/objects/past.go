package objects

import (
	"slices"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Version is an object as it was at some time.
type Version struct {
	// Payload is its JSON as it is shown, without resourceVersion.
	Payload  []byte
	Revision uint64
}

// StateOf makes the state of one resource at a revision, of all objects that it had then or of
// those in a namespace. The order does not matter. It is safe to call at any time.
func StateOf(k Kind, revision uint64, versions []Version) (*State, error) {
	kind := newKind(k)
	all := make([]*Object, len(versions))
	for i, v := range versions {
		var err error
		if all[i], err = newObject(kind, v.Payload, v.Revision); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b *Object) int {
		switch {
		case less(a, b):
			return -1
		case less(b, a):
			return 1
		}
		return 0
	})
	t := btree.NewBTreeGOptions(less, btree.Options{Degree: degree, NoLocks: true})
	for _, o := range all {
		t.Load(o)
	}
	return &State{Revision: revision, trees: map[schema.GroupResource]*tree{k.GroupResource: t}, kinds: map[schema.GroupResource]*Kind{k.GroupResource: kind}, partial: true}, nil
}
