// Package rbac shows who may do what as objects of rbac.authorization.k8s.io/v1, so that
// clients which look there find it. They are rendered from the policy in force
// (package rendered).
//
// A role is a ClusterRole; there are no Roles. A binding in every namespace is a
// ClusterRoleBinding, and any other is a RoleBinding in each namespace that there is and
// that its patterns match. What RBAC has no form for is not shown: denies, so that what is
// shown as granted may still be denied, and that system:masters may do everything.
package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"stele.dev/stele/core/openapi"
	"stele.dev/stele/core/rendered"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// Kinds are those of this group. In OpenAPI they can be written: kubectl asks OpenAPI how
// the server checks a write, and only then sends it and hears why it is refused.
var Kinds = []*rendered.Kind{
	kind(rbacv1.ClusterRole{}, "clusterroles", false, roles, findRole, "rbac.clusterRoles"),
	kind(rbacv1.ClusterRoleBinding{}, "clusterrolebindings", false, everywhere, findBinding, "rbac.bindings"),
	kind(rbacv1.RoleBinding{}, "rolebindings", true, somewhere, findBinding, "rbac.bindings"),
	kind(rbacv1.Role{}, "roles", true, none, findNone, "rbac.clusterRoles"),
}

// kind describes one, given by its Go type.
func kind(object any, plural string, namespaced bool, entries func(*policy.Form) []*rendered.Entry, find func(*policy.Form, string) *rendered.Entry, part string) *rendered.Kind {
	name, content := openapi.Describe(object)
	v := openapi.NewVersion(schemas.Kind{
		Group: rbacv1.GroupName, Kind: name, Plural: plural, Namespaced: namespaced, StorageVersion: rbacv1.SchemeGroupVersion.Version,
	}, content)
	v.AllowCreateOnUpdate = true // as upstream's strategies have it: who would create hears where
	return &rendered.Kind{Version: v, Entries: entries, Find: find, Says: "access is", Part: part}
}

func roles(f *policy.Form) (list []*rendered.Entry) {
	for i := range f.Roles {
		list = append(list, ofRole(&f.Roles[i]))
	}
	return list
}

func everywhere(f *policy.Form) (list []*rendered.Entry) {
	for _, b := range grants(f) {
		if b.Everywhere() {
			list = append(list, ofBinding(b))
		}
	}
	return list
}

func somewhere(f *policy.Form) (list []*rendered.Entry) {
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

func none(*policy.Form) []*rendered.Entry { return nil }

func findRole(f *policy.Form, name string) *rendered.Entry {
	for i := range f.Roles {
		if f.Roles[i].Name == name {
			return ofRole(&f.Roles[i])
		}
	}
	return nil
}

func findBinding(f *policy.Form, name string) *rendered.Entry {
	for i := range f.Bindings {
		if bindingName(f.Bindings[i].ID) == name {
			return ofBinding(&f.Bindings[i])
		}
	}
	return nil
}

func findNone(*policy.Form, string) *rendered.Entry { return nil }
