// Package rbac shows who may do what as objects of rbac.authorization.k8s.io/v1, so that
// clients which look there find it. They are rendered from the policy in force, and never
// stored: whoever wants to change them changes the policy.
//
// A role is a ClusterRole; there are no Roles. A binding in every namespace is a
// ClusterRoleBinding, and any other is a RoleBinding in each namespace that there is and
// that its patterns match. What RBAC has no form for is not shown: denies, so that what is
// shown as granted may still be denied, and that system:masters may do everything.
//
// # Revisions
//
// An object has the revision from which it is as it is: that of the activation of its
// policy, or of the last change of its namespace if that came later. Every activation is
// a new version of every object. Nothing is known of those of former policies: who asks
// for them gets objects.ErrExpired, and lists anew.
//
// Unlike objects that are stored, several share one revision. [Watcher] says what follows
// from that.
package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/discovery"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// Kind is one of the kinds. Its Version has no program: nothing is ever decoded.
type Kind struct {
	*policy.Version
	// shown are what objects are made of.
	shown func(*policy.Form) []*entry
	// render makes an object of one.
	render func(*entry, metav1.TypeMeta, metav1.ObjectMeta) any
	// find finds what has the name of an object, shown or not; nil if nothing has.
	find func(f *policy.Form, name string) *entry
}

var (
	created = schemas.Column{Name: "Created At", Type: "string", JSONPath: ".metadata.creationTimestamp"}
	grant   = []schemas.Column{
		{Name: "Role", Type: "string", JSONPath: "{.roleRef.kind}/{.roleRef.name}"},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
		{Name: "Users", Type: "string", JSONPath: `{.subjects[?(@.kind=="User")].name}`, Priority: 1},
		{Name: "Groups", Type: "string", JSONPath: `{.subjects[?(@.kind=="Group")].name}`, Priority: 1},
		{Name: "ServiceAccounts", Type: "string", JSONPath: `{range .subjects[?(@.kind=="ServiceAccount")]}{.namespace}/{.name} {end}`, Priority: 1},
	}
)

var kinds = []*Kind{
	{version(rbacv1.ClusterRole{}, "clusterroles", false, created), roles, (*entry).clusterRole, findRole},
	{version(rbacv1.ClusterRoleBinding{}, "clusterrolebindings", false, grant...), everywhere, (*entry).clusterRoleBinding, findBinding},
	{version(rbacv1.RoleBinding{}, "rolebindings", true, grant...), somewhere, (*entry).roleBinding, findBinding},
	{version(rbacv1.Role{}, "roles", true, created), none, nil, findNone},
}

// version describes a kind, given by its Go type, as the kinds of policies are.
func version(object any, plural string, namespaced bool, columns ...schemas.Column) *policy.Version {
	name, content := describe(object)
	v := &policy.Version{
		Version: &schemas.Version{Name: rbacv1.SchemeGroupVersion.Version, Served: true, Schema: content, Columns: columns},
		Kind: &policy.Kind{Kind: &schemas.Kind{
			Group: rbacv1.GroupName, Kind: name, ListKind: name + "List", Plural: plural, Singular: strings.ToLower(name),
			Namespaced: namespaced, StorageVersion: rbacv1.SchemeGroupVersion.Version, Builtin: true,
		}},
	}
	v.Kind.Versions = []*policy.Version{v}
	return v
}

// Find returns the kind that is served as a resource, or nil.
func Find(r schema.GroupVersionResource) *Kind {
	for _, k := range kinds {
		if k.GroupVersionResource() == r {
			return k
		}
	}
	return nil
}

// Versions are the kinds, for OpenAPI. There they can be written: kubectl asks OpenAPI how
// the server checks a write, and only then sends it and hears why it is refused.
func Versions() (all []*policy.Version) {
	for _, k := range kinds {
		all = append(all, k.Version)
	}
	return all
}

// Resources are for discovery.
func Resources() (all []discovery.Resource) {
	for _, k := range kinds {
		kind := k.Version.Kind
		all = append(all, discovery.Resource{Group: kind.Group, Version: k.Name, APIResource: metav1.APIResource{
			Name: kind.Plural, SingularName: kind.Singular, Namespaced: kind.Namespaced, Kind: kind.Kind.Kind, Verbs: metav1.Verbs{"get", "list", "watch"},
		}})
	}
	return all
}

// Rule returns the id and the place of the rule that the objects of a name are made of;
// the id is "" if there is none.
func (k *Kind) Rule(f *policy.Form, name string) (id string, source schemas.Position) {
	if e := k.find(f, name); e != nil {
		return e.id, e.source
	}
	return "", source
}

func roles(f *policy.Form) (list []*entry) {
	for i := range f.Roles {
		list = append(list, ofRole(&f.Roles[i]))
	}
	return list
}

func everywhere(f *policy.Form) (list []*entry) {
	for _, b := range grants(f) {
		if b.Everywhere() {
			list = append(list, ofBinding(b))
		}
	}
	return list
}

func somewhere(f *policy.Form) (list []*entry) {
	for _, b := range grants(f) {
		if !b.Everywhere() {
			list = append(list, ofBinding(b))
		}
	}
	return list
}

// grants are the bindings that are shown: those which grant what their role says and
// nothing less, as bindings do in Kubernetes.
func grants(f *policy.Form) (list []*policy.Binding) {
	for i := range f.Bindings {
		if b := &f.Bindings[i]; b.When == nil { // on a condition it is less than it would seem
			list = append(list, b)
		}
	}
	return list
}

func none(*policy.Form) []*entry { return nil }

func findRole(f *policy.Form, name string) *entry {
	for i := range f.Roles {
		if f.Roles[i].Name == name {
			return ofRole(&f.Roles[i])
		}
	}
	return nil
}

func findBinding(f *policy.Form, name string) *entry {
	for i := range f.Bindings {
		if bindingName(f.Bindings[i].ID) == name {
			return ofBinding(&f.Bindings[i])
		}
	}
	return nil
}

func findNone(*policy.Form, string) *entry { return nil }
