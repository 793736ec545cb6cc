// Package rendered shows what the policy in force says as objects of Kubernetes' own kinds, so that Kubernetes clients
// find it. The objects are rendered on demand and never stored. To change them, change the policy.
//
// # Revisions
//
// The revision of an object is that of the activation of its policy, or of the last change of its namespace if that is
// later. Every activation makes a new version of every object. Objects of past policies are rendered again from those
// policies.
//
// Unlike stored objects, several rendered objects share a revision. [Watcher] explains what follows.
package rendered

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/policy"

	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas"
)

// These annotations of every object give the ID of the rule that it shows, and the rule's file and line. Built-in
// rules have no file.
const (
	ruleAnnotation   = "stele.dev/rule"
	sourceAnnotation = "stele.dev/source"
)

// Kind is a kind of rendered objects. Its Version has no program, because nothing is decoded.
type Kind struct {
	*policy.Version
	// Type is the Go type of the objects.
	Type reflect.Type
	// Entries returns the rules of the policy that objects are made of.
	Entries func(*policy.Form) []*Entry
	// Find returns the rule with the name of an object, even if the object is hidden, or nil.
	Find func(f *policy.Form, name string) *Entry
	// Says and Part are for the errors of refused writes. Says is the subject and verb of the sentence, such as
	// "access is"; Part is where in a bundle it is defined, such as "rbac.bindings of a team in the bundle".
	Says, Part string
}

// Entry is a rule that is rendered as one object, or as one object in each of some namespaces.
type Entry struct {
	Name, ID string
	Source   schemas.Position
	// Builtin is set if the rule is a part of every policy. Replaceable is set if a bundle can replace it by a rule with the
	// same name.
	Builtin, Replaceable bool
	// In reports whether a namespace has the object. It is nil for objects without a namespace.
	In func(namespace string) bool
	// Render returns the object. The metadata is complete except for Labels and Annotations.
	Render func(metav1.TypeMeta, metav1.ObjectMeta) any
	// Labels and Annotations are added to the object's metadata.
	Labels, Annotations map[string]string
}

// ByName returns a [Kind.Find] that looks through the entries of a kind of which there are few.
func ByName(entries func(*policy.Form) []*Entry) func(*policy.Form, string) *Entry {
	return func(f *policy.Form, name string) *Entry {
		for _, e := range entries(f) {
			if e.Name == name {
				return e
			}
		}
		return nil
	}
}

// object renders the entry in a place.
func (e *Entry) object(k *Kind, p place) *objects.Object {
	r := k.Version.Kind.GroupResource()
	meta := metav1.ObjectMeta{
		Namespace: p.namespace, Name: e.Name, CreationTimestamp: p.created(), Labels: e.Labels, Annotations: map[string]string{},
		UID: types.UID(policy.UIDOf(r.Group, r.Resource, p.namespace, e.Name)),
	}
	maps.Copy(meta.Annotations, e.Annotations)
	meta.Annotations[ruleAnnotation] = e.ID
	if !e.Source.IsZero() {
		meta.Annotations[sourceAnnotation] = e.Source.String()
	}
	gvk := k.GroupVersionKind()
	payload, err := json.Marshal(e.Render(metav1.TypeMeta{Kind: gvk.Kind, APIVersion: gvk.GroupVersion().String()}, meta))
	if err != nil {
		panic(fmt.Sprintf("rendered: %v", err)) // plain data always encodes
	}
	o, err := objects.Parse(r, payload, p.since)
	if err != nil {
		panic(fmt.Sprintf("rendered: %v", err)) // it always has metadata
	}
	return o
}

// Resource returns the discovery entry of the kind.
func (k *Kind) Resource() discovery.Resource {
	kind := k.Version.Kind
	return discovery.Resource{Group: kind.Group, Version: k.Name, APIResource: metav1.APIResource{
		Name: kind.Plural, SingularName: kind.Singular, Namespaced: kind.Namespaced, Kind: kind.Kind.Kind, ShortNames: kind.ShortNames,
		Categories: kind.Categories, Verbs: metav1.Verbs{"get", "list", "watch"},
	}}
}
