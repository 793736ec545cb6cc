package rendered

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/write/managed"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas"
)

// overlay is what clients have written beside the policy of an object: labels, annotations and their managers. The log has it as an object
// with the key of the rendered one. It says nothing of what the rendered object means. It belongs to the object since the activation that
// created that, so an object that was gone from the policy comes back without it.
type overlay struct {
	revision uint64 // 0 for one that is not stored yet
	since    uint64 // revision since which the object exists
	labels   map[string]string
	// annotations are without those that the policy gives the object.
	annotations map[string]string
	managers    []metav1.ManagedFieldsEntry
	// created is set if a client has created the object, and not deleted it since.
	created bool
	// deletions is how often clients have deleted the object. Each time it comes back with another uid.
	deletions int
	// hidden is set if a client has deleted the object. Clients that delete wait until it is gone, so they do not see it again until one of
	// them creates it, or a policy is activated and the [Sweeper] shows it. This is a danger: the rule stays in force, and a client that
	// looks for it through this API does not find it. So everything that says what is in force, such as `stele who-can`, must read the
	// policy and not these objects.
	hidden bool
}

// stored is the JSON of an overlay in the log.
type stored struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Overlay         struct {
		Namespace types.UID `json:"namespace,omitempty"` // uid of the namespace that the object was in
		Created   bool      `json:"created,omitempty"`
		Deletions int       `json:"deletions,omitempty"`
		Hidden    bool      `json:"hidden,omitempty"`
	} `json:"overlay"`
}

// overlay returns what clients have written beside an object that exists in a place since a revision; nil if there is nothing.
func (s *State) overlay(e *Entry, p *place, since uint64) *overlay {
	o := s.overlays.Get(s.kind.Version.Kind.GroupResource(), p.namespace, e.Name)
	if o == nil || o.Revision <= since {
		return nil
	}
	var in stored
	if err := json.Unmarshal(o.JSON, &in); err != nil {
		panic(fmt.Sprintf("rendered: %v", err)) // the server wrote it
	}
	if p.in != nil && string(in.Overlay.Namespace) != p.in.UID {
		return nil // the namespace is another one of the same name
	}
	return &overlay{
		revision: o.Revision, labels: in.Metadata.Labels, annotations: in.Metadata.Annotations, managers: in.Metadata.ManagedFields,
		created: in.Overlay.Created, deletions: in.Overlay.Deletions, hidden: in.Overlay.Hidden, since: since,
	}
}

// encode returns the overlay of an object as the log has it.
func (v *overlay) encode(k *Kind, p *place, name string) []byte {
	kind := k.Version.Kind
	in := stored{Metadata: metav1.ObjectMeta{
		Namespace: p.namespace, Name: name, UID: types.UID(uidOf(kind.Kind, p.namespace, name)),
		Labels: v.labels, Annotations: v.annotations, ManagedFields: v.managers,
	}}
	in.APIVersion, in.Kind = k.GroupVersionKind().ToAPIVersionAndKind()
	if p.in != nil {
		in.Overlay.Namespace = types.UID(p.in.UID)
	}
	in.Overlay.Created, in.Overlay.Deletions, in.Overlay.Hidden = v.created, v.deletions, v.hidden
	text, err := json.Marshal(&in)
	if err != nil {
		panic(fmt.Sprintf("rendered: %v", err)) // plain data always encodes
	}
	return text
}

// lay writes the overlay over the metadata of an object. v may be nil.
func (v *overlay) lay(k *Kind, meta *metav1.ObjectMeta) {
	if v == nil {
		return
	}
	meta.Labels = laid(meta.Labels, v.labels)
	meta.Annotations = laid(meta.Annotations, v.annotations)
	meta.ManagedFields = v.managers
	if v.deletions > 0 {
		kind := k.Version.Kind
		meta.UID = types.UID(uidOf(kind.Kind, meta.Namespace, fmt.Sprintf("%s/%d/%d", meta.Name, v.since, v.deletions)))
	}
}

// uidOf returns the uid of an object of a kind.
func uidOf(k *schemas.Kind, namespace, name string) string {
	return policy.UIDOf(k.Group, k.Plural, namespace, name)
}

// laid returns texts with others over them.
func laid(texts, over map[string]string) map[string]string {
	if len(over) == 0 {
		return texts
	}
	all := maps.Clone(over)
	for key, value := range texts {
		if _, ok := all[key]; !ok {
			all[key] = value
		}
	}
	return all
}

// beside returns those texts that differ from those that the policy gives an object.
func beside(texts, given map[string]string) map[string]string {
	rest := map[string]string{}
	for key, value := range texts {
		if is, ok := given[key]; !ok || is != value {
			rest[key] = value
		}
	}
	return rest
}

// ofPolicy reports whether only the policy gives an annotation.
func ofPolicy[T any](name string, _ T) bool { return strings.HasPrefix(name, policy.OwnAnnotations) }

// written returns the overlay after a write that makes the metadata of an object another one. was may be nil.
func (v *overlay) written(e *Entry, meta *metav1.ObjectMeta) *overlay {
	next := &overlay{labels: beside(meta.Labels, e.Labels), annotations: beside(meta.Annotations, e.Annotations), managers: meta.ManagedFields}
	maps.DeleteFunc(next.annotations, ofPolicy)
	if v != nil {
		next.created, next.deletions, next.since = v.created, v.deletions, v.since
	}
	return next
}

// deleted returns the overlay after a delete. v may be nil.
func (v *overlay) deleted() *overlay {
	if v == nil {
		return &overlay{deletions: 1, hidden: true}
	}
	return &overlay{deletions: v.deletions + 1, hidden: true, since: v.since}
}

// claimed reports whether a client has created the object, or written to it. v may be nil.
func (v *overlay) claimed() bool {
	return v != nil && (v.created || len(v.labels)+len(v.annotations)+len(v.managers) > 0)
}

// same reports whether a write leaves the overlay as it is. v may be nil.
func (v *overlay) same(next *overlay) bool {
	if v == nil {
		v = &overlay{}
	}
	managers := managed.DifferInTimesOnly(v.managers, next.managers) || reflect.DeepEqual(v.managers, next.managers) || len(v.managers)+len(next.managers) == 0
	return managers && maps.Equal(v.labels, next.labels) && maps.Equal(v.annotations, next.annotations) && v.created == next.created && v.deletions == next.deletions && v.hidden == next.hidden
}

// overlaid returns a function that reports whether a namespace has other overlays in a later state. It takes time only if overlays have
// been written in between.
func (s *State) overlaid(next *State) func(namespace string) bool {
	r := s.kind.Version.Kind.GroupResource()
	if s.overlays.Shares(next.overlays, r) {
		return func(string) bool { return false }
	}
	var newest [2]map[string]uint64
	for i, of := range []*State{s, next} {
		newest[i] = map[string]uint64{}
		for x := range of.overlays.List(r, &objects.Selection{}, "", "") {
			newest[i][x.Namespace] = max(newest[i][x.Namespace], x.Revision)
		}
	}
	return func(namespace string) bool { return newest[0][namespace] != newest[1][namespace] }
}
