// This file shows who may do what as objects of rbac.authorization.k8s.io/v1, so that Kubernetes clients find it.
// They are rendered from the policy in force.
//
// A role is a ClusterRole, or a Role if it names its namespace. A binding in every namespace is a ClusterRoleBinding. Any other binding
// is a RoleBinding in each existing namespace that its patterns match. What RBAC cannot express is not shown: denies,
// so access that is shown may be denied, and that system:masters may do everything.

package rendered

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"reflect"
	"stele.dev/stele/core/catalog/openapi"
	"strconv"

	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/brought"
)

// RBAC are the kinds of the group. OpenAPI describes them as writable: kubectl asks OpenAPI how to validate a write
// before it sends it, and only then shows why it was refused.
var RBAC = []*Kind{
	withMeaning(rbacKind(rbacv1.ClusterRole{}, "clusterroles", false, roleEntries, findRole, "rbac.clusterRoles of a team in the bundle")),
	rbacKind(rbacv1.ClusterRoleBinding{}, "clusterrolebindings", false, everywhere, findBinding, "rbac.bindings of a team in the bundle"),
	rbacKind(rbacv1.RoleBinding{}, "rolebindings", true, somewhere, findBinding, "rbac.bindings of a team in the bundle"),
	rbacKind(rbacv1.Role{}, "roles", true, rolesOfNamespaces, findRole, "rbac.clusterRoles of a team in the bundle"),
}

// rbacKind returns the rendered kind of a Go type.
func rbacKind(object any, plural string, namespaced bool, entries func(*policy.Form) []*Entry, find func(f *policy.Form, namespace, name string) *Entry, part string) *Kind {
	name, content := openapi.Describe(object)
	v := openapi.NewVersion(schemas.Kind{
		Group: rbacv1.GroupName, Kind: name, Plural: plural, Namespaced: namespaced, StorageVersion: rbacv1.SchemeGroupVersion.Version,
	}, content)
	v.AllowCreateOnUpdate = true // as in kube-apiserver; the error of a refused create names the place in the policy
	return &Kind{Version: v, Type: reflect.TypeOf(object), Entries: entries, Find: find, Section: brought.SectionRBAC, Brought: broughtRule, Says: "access is", Part: part}
}

// withMeaning makes labels of a kind mean what they mean in roles.
func withMeaning(k *Kind) *Kind {
	k.Meaning = aggregated
	return k
}

func roleEntries(f *policy.Form) (list []*Entry) {
	for i := range f.Roles {
		if f.Roles[i].Namespace == "" {
			list = append(list, ofRole(&f.Roles[i]))
		}
	}
	return list
}

func rolesOfNamespaces(f *policy.Form) (list []*Entry) {
	for i := range f.Roles {
		if f.Roles[i].Namespace != "" {
			list = append(list, ofRole(&f.Roles[i]))
		}
	}
	return list
}

func everywhere(f *policy.Form) (list []*Entry) {
	shown := shownOtherwise(f)
	for _, b := range grants(f) {
		if b.Everywhere() {
			list = append(list, ofBinding(shown, b))
		}
	}
	return list
}

func somewhere(f *policy.Form) (list []*Entry) {
	shown := shownOtherwise(f)
	for _, b := range grants(f) {
		if !b.Everywhere() {
			list = append(list, ofBinding(shown, b))
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

// aggregated returns a label by which other labels would make a role a part of another one, or no part of it; "" if there is none.
func aggregated(f *policy.Form, before, after map[string]string) string {
	for i := range f.Roles {
		selects := f.Roles[i].Aggregate
		for key, value := range selects {
			if before[key] != after[key] && (before[key] == value || after[key] == value) {
				return "metadata.labels[" + strconv.Quote(key) + "]"
			}
		}
	}
	return ""
}

func findRole(f *policy.Form, namespace, name string) *Entry {
	for i := range f.Roles {
		if r := &f.Roles[i]; r.ShownName() == name && r.Namespace == namespace {
			return ofRole(r)
		}
	}
	return nil
}

func findBinding(f *policy.Form, namespace, name string) *Entry {
	for i := range f.Bindings {
		if b := &f.Bindings[i]; b.ShownName() == name && b.Everywhere() == (namespace == "") && b.In(namespace) {
			return ofBinding(shownOtherwise(f), b)
		}
	}
	return nil
}
