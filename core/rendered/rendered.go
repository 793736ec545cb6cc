// Package rendered shows what the policy in force says as objects of Kubernetes' own kinds,
// so that clients which look there find it. They are rendered when they are asked for, and
// never stored: whoever wants to change them changes the policy.
//
// # Revisions
//
// An object has the revision from which it is as it is: that of the activation of its
// policy, or of the last change of its namespace if that came later. Every activation is
// a new version of every object. Those of former policies are rendered from those again.
//
// Unlike objects that are stored, several share one revision. [Watcher] says what follows
// from that.
package rendered

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/discovery"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas"
)

// Annotations of every object: the id of the rule that it shows, and where that stands.
// What is built in stands nowhere.
const (
	ruleAnnotation   = "stele.dev/rule"
	sourceAnnotation = "stele.dev/source"
)

// Kind is a kind of such objects. Its Version has no program: nothing is ever decoded.
type Kind struct {
	*policy.Version
	// Entries are what objects are made of.
	Entries func(*policy.Form) []*Entry
	// Find finds what has the name of an object, shown or not; nil if nothing has.
	Find func(f *policy.Form, name string) *Entry
	// Says tells what the policy defines by them, "access is", and Part in which part of a
	// team, for those who would rather write them.
	Says, Part string
}

// Entry is what an object is made of, or one in each of some namespaces.
type Entry struct {
	Name, ID string
	Source   schemas.Position
	// In tells whether there is one in a namespace; nil outside of namespaces.
	In func(namespace string) bool
	// Render makes the object. The metadata is complete but for labels and annotations of
	// its own.
	Render func(metav1.TypeMeta, metav1.ObjectMeta) any
	// Labels and Annotations of the object.
	Labels, Annotations map[string]string
}

// object renders what the entry is in a place.
func (e *Entry) object(k *Kind, p place) *objects.Object {
	r := k.Version.Kind.GroupResource()
	meta := metav1.ObjectMeta{
		Namespace: p.namespace, Name: e.Name, CreationTimestamp: p.created(), Labels: e.Labels, Annotations: map[string]string{},
		// The same on every replica, and under every policy.
		UID: types.UID(uuid.NewSHA1(uuid.NameSpaceURL, []byte(strings.Join([]string{r.Group, r.Resource, p.namespace, e.Name}, "/"))).String()),
	}
	maps.Copy(meta.Annotations, e.Annotations)
	meta.Annotations[ruleAnnotation] = e.ID
	if !e.Source.IsZero() {
		meta.Annotations[sourceAnnotation] = e.Source.String()
	}
	gvk := k.GroupVersionKind()
	payload, err := json.Marshal(e.Render(metav1.TypeMeta{Kind: gvk.Kind, APIVersion: gvk.GroupVersion().String()}, meta))
	if err != nil {
		panic(fmt.Sprintf("rendered: %v", err)) // it is plain data
	}
	o, err := objects.Parse(r, payload, p.since)
	if err != nil {
		panic(fmt.Sprintf("rendered: %v", err)) // it has metadata
	}
	return o
}

// Rule returns the id and the place of the rule that the objects of a name are made of;
// the id is "" if there is none.
func (k *Kind) Rule(f *policy.Form, name string) (id string, source schemas.Position) {
	if e := k.Find(f, name); e != nil {
		return e.ID, e.Source
	}
	return "", source
}

// Resource is for discovery.
func (k *Kind) Resource() discovery.Resource {
	kind := k.Version.Kind
	return discovery.Resource{Group: kind.Group, Version: k.Name, APIResource: metav1.APIResource{
		Name: kind.Plural, SingularName: kind.Singular, Namespaced: kind.Namespaced, Kind: kind.Kind.Kind, ShortNames: kind.ShortNames,
		Categories: kind.Categories, Verbs: metav1.Verbs{"get", "list", "watch"},
	}}
}
