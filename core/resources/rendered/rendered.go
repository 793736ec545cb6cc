// Package rendered shows what the policy in force says as objects of Kubernetes' own kinds, so that Kubernetes clients
// find it. The objects are rendered on demand and never stored. To change them, change the policy. Where the policy allows it, clients bring others, which
// are stored, and listed with them.
//
// # Revisions
//
// The revision of an object is that of the activation that changed it last, or of the last change of its namespace if that
// is later. The object was created by the activation since which every policy has it; its uid follows from
// its name, also if it was gone for a while. The event of each activation says which objects are as before, see [Next]. If
// the event does not, because an earlier version of the program wrote it, all objects are as old as the
// activation. Objects of past policies are rendered again from those policies.
//
// Unlike stored objects, several rendered objects share a revision. [Watcher] explains what follows.
//
// # Overlays
//
// Where the policy says so, clients may write labels and annotations beside what it says, such as those by which Helm knows what it has installed.
// These are stored as objects of the log, and shown over the rendered objects; see the type overlay.
package rendered

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/policy"

	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas"
)

// sourceAnnotation is the annotation of every object with the file and line of its rule when the object changed last. Built-in rules have no file.
const sourceAnnotation = policy.OwnAnnotations + "source"

// Kind is a kind of rendered objects. Its Version has no program, because nothing is decoded.
type Kind struct {
	*policy.Version
	// Type is the Go type of the objects.
	Type reflect.Type
	// Entries returns the rules of the policy that objects are made of.
	Entries func(*policy.Form) []*Entry
	// Find returns the rule with the name of an object in a namespace, which is "" for objects without one, even if the object is hidden, or nil.
	Find func(f *policy.Form, namespace, name string) *Entry
	// Counted is set if objects have a generation, which counts the changes of their spec.
	Counted bool
	// TableOrder compares objects for lists as tables; nil for the order of their names, as in all other lists.
	TableOrder func(a, b *objects.Object) int
	// Says and Part are for the errors of refused writes. Says is the subject and verb of the sentence, such as
	// "access is"; Part is where in a bundle it is defined, such as "rbac.bindings of a team in the bundle".
	Says, Part string
	// Section is the field of the bundle's section dynamic that says what becomes of writes.
	Section string
	// Brought returns whether a stored object of the resource is one that the API brought, and that is none of the policy; nil if the policy
	// has all objects.
	Brought func(*objects.Object) bool
	// Meaning returns the label that means something and that a write changes, "" if there is none. It is nil if no label means anything.
	Meaning func(f *policy.Form, before, after map[string]string) string
}

// imported returns the command that writes an object into a bundle.
func (k *Kind) imported() string {
	if k.Section == "flowControl" {
		return "stele policy import FILE" // it is of no team
	}
	return "stele policy import FILE --team TEAM"
}

// Entry is a rule that is rendered as one object, or as one object in each of some namespaces.
type Entry struct {
	Name, ID string
	// Key tells the rule from the others of its kind, if Name does not; "" if it does.
	Key    string
	Source schemas.Position
	// Builtin is set if the rule is a part of every policy. Replaceable is set if a bundle can replace it by a rule with the
	// same name.
	Builtin, Replaceable bool
	// In reports whether a namespace has the object. It is nil for objects without a namespace.
	In func(namespace string) bool
	// Namespaces are the patterns by which In decides.
	Namespaces []string
	// Rule is what the object is rendered from, if that is slow: the object is the same if the rule is deeply equal. It may be nil.
	Rule any
	// Render returns the object. The metadata is complete except for Labels and Annotations.
	Render func(metav1.TypeMeta, metav1.ObjectMeta) any
	// Hint says why an object that was meant to agree may differ, as the end of a sentence; "" for nothing.
	Hint string
	// Labels and Annotations are added to the object's metadata.
	Labels, Annotations map[string]string
}

// key returns what tells the rule from the others of its kind.
func (e *Entry) key() string { return cmp.Or(e.Key, e.Name) }

// ByName returns a [Kind.Find] that looks through the entries of a kind without namespaces, of which there are few.
func ByName(entries func(*policy.Form) []*Entry) func(f *policy.Form, namespace, name string) *Entry {
	return func(f *policy.Form, _, name string) *Entry {
		for _, e := range entries(f) {
			if e.Name == name {
				return e
			}
		}
		return nil
	}
}

// Kinds returns all kinds of rendered objects.
func Kinds() []*Kind {
	return append(slices.Concat(RBAC, FlowControl, AdmissionPolicies, Webhooks), Definitions)
}

// version is what the log says of an object beside the policy.
type version struct {
	created    time.Time
	revision   uint64
	generation int64
	source     string   // the line of its rule that it names, if not that of the policy in force
	overlay    *overlay // what clients have written beside it; nil if nothing
}

// object renders the entry in a namespace.
func (e *Entry) object(k *Kind, namespace string, v version) *objects.Object {
	o, err := objects.Parse(k.Version.Kind.GroupResource(), e.render(k, namespace, v), v.revision)
	if err != nil {
		panic(fmt.Sprintf("rendered: %v", err)) // it always has metadata
	}
	return o
}

// render returns the object of the entry as JSON, without its revision.
func (e *Entry) render(k *Kind, namespace string, v version) []byte {
	r := k.Version.Kind.GroupResource()
	meta := metav1.ObjectMeta{
		Namespace: namespace, Name: e.Name, CreationTimestamp: metav1.NewTime(v.created), Labels: e.Labels, Annotations: map[string]string{},
		UID: types.UID(policy.UIDOf(r.Group, r.Resource, namespace, e.Name)),
	}
	if k.Counted {
		meta.Generation = v.generation
	}
	maps.Copy(meta.Annotations, e.Annotations)
	v.overlay.lay(k, &meta)
	meta.Annotations[policy.RuleAnnotation] = e.ID
	if !e.Source.IsZero() {
		meta.Annotations[sourceAnnotation] = cmp.Or(v.source, e.Source.String())
	}
	gvk := k.GroupVersionKind()
	payload, err := json.Marshal(e.Render(metav1.TypeMeta{Kind: gvk.Kind, APIVersion: gvk.GroupVersion().String()}, meta))
	if err != nil {
		panic(fmt.Sprintf("rendered: %v", err)) // plain data always encodes
	}
	return payload
}

// verbs returns the verbs that discovery lists under a policy. Clients that delete what was taken out of their files only do so for kinds that list it.
func (k *Kind) verbs(p *policy.Policy) metav1.Verbs {
	if k.matches(p.Form()) {
		return metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
	}
	return k.Resource().Verbs
}

// matches reports whether a policy accepts writes of the kind that agree with it.
func (k *Kind) matches(f *policy.Form) bool {
	mode := f.Dynamic[k.Section].Mode
	return mode == policy.MatchWrites || mode == policy.AllowWrites
}

// Resource returns the discovery entry of the kind.
func (k *Kind) Resource() discovery.Resource {
	kind := k.Version.Kind
	var subresources []metav1.APIResource
	if k.Version.Status {
		subresources = []metav1.APIResource{{Name: kind.Plural + "/status", Namespaced: kind.Namespaced, Kind: kind.Kind.Kind, Verbs: metav1.Verbs{"get"}}}
	}
	return discovery.Resource{Subresources: subresources, Group: kind.Group, Version: k.Name, APIResource: metav1.APIResource{
		Name: kind.Plural, SingularName: kind.Singular, Namespaced: kind.Namespaced, Kind: kind.Kind.Kind, ShortNames: kind.ShortNames,
		Categories: kind.Categories, Verbs: metav1.Verbs{"get", "list", "watch"},
	}}
}
