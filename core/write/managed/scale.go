package managed

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/openapi"
)

// Scale maintains the managedFields of objects that are written through the subresource scale. A manager that sets
// replicas there owns the replicas field of the object. The rules are those of k8s.io/apiextensions-apiserver's
// ScaleREST. It is safe for concurrent use.
type Scale struct {
	fields *Fields // for Scale objects
	parent *policy.Version
	paths  managedfields.ResourcePathMappings
}

// ScaleOf returns the Scale of a version, which must have the subresource. It is made once.
func ScaleOf(v *policy.Version) *Scale {
	return v.Keep(kept("scale"), func() any {
		s := &Scale{fields: scaleFields(), parent: v, paths: managedfields.ResourcePathMappings{}}
		for _, other := range v.Kind.Versions {
			apiVersion := other.GroupVersionKind().GroupVersion().String()
			if s.paths[apiVersion] = nil; other.Scale != nil {
				s.paths[apiVersion] = replicasPath(other.Scale)
			}
		}
		return s
	}).(*Scale)
}

func replicasPath(s *schemas.Scale) fieldpath.Path {
	var path fieldpath.Path
	for _, name := range strings.Split(strings.TrimPrefix(s.SpecReplicasPath, "."), ".") {
		path = append(path, fieldpath.PathElement{FieldName: &name})
	}
	return path
}

func scaleFields() *Fields {
	f := &Fields{kind: policy.Scale.GroupVersionKind(), subresource: "scale", merge: openapi.MergeType(policy.Scale.Schema)}
	f.forms = map[string]form{f.kind.GroupVersion().String(): {of: policy.Scale.Kind, merge: f.merge}}
	return f.ready()
}

// Update returns the managedFields of an object after a manager wrote its Scale. entries are those before the write;
// old and updated are its Scales. On an error it returns entries.
func (s *Scale) Update(entries []metav1.ManagedFieldsEntry, old, updated *policy.Object, manager string, at time.Time) ([]metav1.ManagedFieldsEntry, error) {
	h, old, err := s.handler(entries, old)
	if err != nil {
		return entries, err
	}
	written := *updated.Meta
	if err := s.fields.update(old, &policy.Object{Meta: &written, Content: updated.Content}, manager, at); err != nil {
		return entries, err
	}
	after, err := h.ToParent(written.ManagedFields)
	if err != nil {
		return entries, err
	}
	return after, nil
}

// Apply merges the fields that a manager applies into a Scale, see [Fields.Apply]. It returns the Scale, and the
// managedFields of its object.
func (s *Scale) Apply(entries []metav1.ManagedFieldsEntry, old *policy.Object, applied map[string]any, manager string, force bool, at time.Time) (*policy.Object, []metav1.ManagedFieldsEntry, error) {
	h, old, err := s.handler(entries, old)
	if err != nil {
		return nil, nil, err
	}
	merged, err := s.fields.apply(old, applied, manager, force, at)
	if err != nil {
		return nil, nil, err
	}
	after, err := h.ToParent(merged.Meta.ManagedFields)
	return merged, after, err
}

// handler returns the mapping of entries between the object and its Scale, and gives the Scale the entries of its
// replicas.
func (s *Scale) handler(entries []metav1.ManagedFieldsEntry, scale *policy.Object) (*managedfields.ScaleHandler, *policy.Object, error) {
	h := managedfields.NewScaleHandler(entries, s.parent.GroupVersionKind().GroupVersion(), s.paths)
	meta := *scale.Meta
	var err error
	meta.ManagedFields, err = h.ToSubresource()
	return h, &policy.Object{Meta: &meta, Content: scale.Content}, err
}
