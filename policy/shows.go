package policy

import (
	"slices"

	"stele.dev/stele/schemas/brought"
)

// Shows reports whether the bundle has an object of a kind, which is shown in a namespace; "" for an object without one.
func (f *Form) Shows(k *brought.Kind, namespace, name string) bool {
	switch k {
	case brought.ClusterRoles, brought.Roles:
		return f.RoleShown(namespace, name) != nil
	case brought.ClusterRoleBindings, brought.RoleBindings:
		return slices.ContainsFunc(f.Bindings, func(b Binding) bool {
			return b.When == nil && b.ShownName() == name && b.Everywhere() == (namespace == "") && (namespace == "" || b.In(namespace))
		})
	}
	return slices.ContainsFunc(f.Reviewers, func(r Reviewer) bool {
		return r.Webhook != nil && r.Mutating == (k == brought.MutatingWebhooks) && r.ShownName() == name
	})
}

// RoleShown returns the role that a ClusterRole shows, or the Role of a namespace; nil if there is none.
func (f *Form) RoleShown(namespace, name string) *Role {
	i := slices.IndexFunc(f.Roles, func(r Role) bool { return r.Namespace == namespace && r.ShownName() == name })
	if i < 0 {
		return nil
	}
	return &f.Roles[i]
}
