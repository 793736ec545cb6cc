package plans

import (
	"iter"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

// Object is a stored object.
type Object struct {
	Namespace, Name string
	// Revision is the revision of the last write; 0 if it is not known.
	Revision uint64
	// JSON is the object as clients get it, Written as its last write stored it.
	JSON, Written []byte
}

// Source has stored objects. It is safe for concurrent use.
type Source interface {
	// Shown is the policy that the JSON of objects follows; nil for the older policy of each plan.
	Shown() *policy.Policy
	// Has reports whether the source knows the objects of a kind, of which there may be none.
	Has(*policy.Kind) bool
	// Len returns the number of objects of a kind.
	Len(*policy.Kind) int
	// Objects returns the objects of a kind, sorted by namespace and name.
	Objects(*policy.Kind) iter.Seq[*Object]
	// Namespace returns a namespace; nil if it is not there.
	Namespace(name string) *Object
}

// tipSource has the objects of a control plane at a revision.
type tipSource struct{ *commit.Tip }

func (s tipSource) Shown() *policy.Policy  { return s.Policy }
func (s tipSource) Has(*policy.Kind) bool  { return true }
func (s tipSource) Len(k *policy.Kind) int { return s.Tip.Objects.Len(k.GroupResource()) }
func (s tipSource) Namespace(n string) *Object {
	return objectOf(s.Tip.Objects.Get(commit.Namespaces, "", n))
}

func (s tipSource) Objects(k *policy.Kind) iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		for o := range s.Tip.Objects.List(k.GroupResource(), &objects.Selection{}, "", "") {
			if !yield(objectOf(o)) {
				return
			}
		}
	}
}

func objectOf(o *objects.Object) *Object {
	if o == nil {
		return nil
	}
	return &Object{Namespace: o.Namespace, Name: o.Name, Revision: o.Revision, JSON: o.JSON, Written: o.Kept()}
}
