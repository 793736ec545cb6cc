// This file shows who may do what as objects of rbac.authorization.k8s.io/v1, so that Kubernetes clients find it.
// They are rendered from the policy in force.
//
// A role is a ClusterRole; there are no Roles. A binding in every namespace is a ClusterRoleBinding. Any other binding
// is a RoleBinding in each existing namespace that its patterns match. What RBAC cannot express is not shown: denies,
// so access that is shown may be denied, and that system:masters may do everything.

package rendered

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"reflect"
	"stele.dev/stele/core/catalog/openapi"

	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// RBAC are the kinds of the group. OpenAPI describes them as writable: kubectl asks OpenAPI how to validate a write
// before it sends it, and only then shows why it was refused.
var RBAC = []*Kind{
	rbacKind(rbacv1.ClusterRole{}, "clusterroles", false, roleEntries, findRole, "rbac.clusterRoles of a team in the bundle"),
	rbacKind(rbacv1.ClusterRoleBinding{}, "clusterrolebindings", false, everywhere, findBinding, "rbac.bindings of a team in the bundle"),
	rbacKind(rbacv1.RoleBinding{}, "rolebindings", true, somewhere, findBinding, "rbac.bindings of a team in the bundle"),
	rbacKind(rbacv1.Role{}, "roles", true, noEntries, findNone, "rbac.clusterRoles of a team in the bundle"),
}

// rbacKind returns the rendered kind of a Go type.
func rbacKind(object any, plural string, namespaced bool, entries func(*policy.Form) []*Entry, find func(*policy.Form, string) *Entry, part string) *Kind {
	name, content := openapi.Describe(object)
	v := openapi.NewVersion(schemas.Kind{
		Group: rbacv1.GroupName, Kind: name, Plural: plural, Namespaced: namespaced, StorageVersion: rbacv1.SchemeGroupVersion.Version,
	}, content)
	v.AllowCreateOnUpdate = true // as in kube-apiserver; the error of a refused create names the place in the policy
	return &Kind{Version: v, Type: reflect.TypeOf(object), Entries: entries, Find: find, Says: "access is", Part: part}
}

func roleEntries(f *policy.Form) (list []*Entry) {
	for i := range f.Roles {
		list = append(list, ofRole(&f.Roles[i]))
	}
	return list
}

func everywhere(f *policy.Form) (list []*Entry) {
	for _, b := range grants(f) {
		if b.Everywhere() {
			list = append(list, ofBinding(b))
		}
	}
	return list
}

func somewhere(f *policy.Form) (list []*Entry) {
	for _, b := range grants(f) {
		if !b.Everywhere() {
			list = append(list, ofBinding(b))
		}
	}
	return list
}

// grants returns the bindings without a condition. Only these grant all of their role, as bindings do in Kubernetes.
func grants(f *policy.Form) (list []*policy.Binding) {
	for i := range f.Bindings {
		if b := &f.Bindings[i]; b.When == nil { // a binding with a condition would seem to grant more than it does
			list = append(list, b)
		}
	}
	return list
}

func noEntries(*policy.Form) []*Entry { return nil }

func findRole(f *policy.Form, name string) *Entry {
	for i := range f.Roles {
		if f.Roles[i].Name == name {
			return ofRole(&f.Roles[i])
		}
	}
	return nil
}

func findBinding(f *policy.Form, name string) *Entry {
	for i := range f.Bindings {
		if bindingName(f.Bindings[i].ID) == name {
			return ofBinding(&f.Bindings[i])
		}
	}
	return nil
}

func findNone(*policy.Form, string) *Entry { return nil }
