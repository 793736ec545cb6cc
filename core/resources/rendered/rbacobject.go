package rendered

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"stele.dev/stele/policy"
)

// ofRole returns a role as an entry to render: a ClusterRole, or the Role of a namespace.
func ofRole(r *policy.Role) *Entry {
	e := &Entry{Name: r.ShownName(), ID: r.ID, Source: r.Source, Builtin: policy.OwningTeam(r.ID) == policy.BuiltinTeam, Labels: r.Labels}
	if r.Namespace == "" {
		e.Render = func(t metav1.TypeMeta, meta metav1.ObjectMeta) any { return clusterRole(r, t, meta) }
		return e
	}
	e.Key, e.Namespaces, e.In = r.ID, []string{r.Namespace}, func(namespace string) bool { return namespace == r.Namespace }
	e.Render = func(t metav1.TypeMeta, meta metav1.ObjectMeta) any {
		return &rbacv1.Role{TypeMeta: t, ObjectMeta: meta, Rules: rulesOf(r)}
	}
	return e
}

// ofBinding returns a binding as an entry to render, in every namespace or in those that it grants in. shown is for
// [roleRef].
func ofBinding(shown map[string]*policy.Role, b *policy.Binding) *Entry {
	e := &Entry{Name: b.ShownName(), ID: b.ID, Source: b.Source, Builtin: policy.OwningTeam(b.ID) == policy.BuiltinTeam, In: b.In, Namespaces: b.Namespaces}
	if b.Shown != "" {
		e.Key = b.ID
	}
	e.Render = func(t metav1.TypeMeta, meta metav1.ObjectMeta) any {
		if b.Everywhere() {
			return &rbacv1.ClusterRoleBinding{TypeMeta: t, ObjectMeta: meta, Subjects: subjects(b), RoleRef: roleRef(shown, b)}
		}
		return &rbacv1.RoleBinding{TypeMeta: t, ObjectMeta: meta, Subjects: subjects(b), RoleRef: roleRef(shown, b)}
	}
	return e
}

func clusterRole(r *policy.Role, t metav1.TypeMeta, meta metav1.ObjectMeta) any {
	role := &rbacv1.ClusterRole{TypeMeta: t, ObjectMeta: meta, Rules: rulesOf(r)}
	if len(r.Aggregate) > 0 {
		role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: r.Aggregate}}}
	}
	return role
}

func rulesOf(r *policy.Role) []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, len(r.Rules))
	for i, rule := range r.Rules {
		rules[i] = rbacv1.PolicyRule{
			Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames, NonResourceURLs: rule.NonResourceURLs}
	}
	return rules
}

// roleRef returns the object that shows the role of a binding. shown are the roles that are not shown as ClusterRoles of their own names.
func roleRef(shown map[string]*policy.Role, b *policy.Binding) rbacv1.RoleRef {
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.Role}
	if r := shown[b.Role]; r != nil {
		if ref.Name = r.ShownName(); r.Namespace != "" {
			ref.Kind = "Role"
		}
	}
	return ref
}

// shownOtherwise returns the roles that are not shown as ClusterRoles of their own names.
func shownOtherwise(f *policy.Form) map[string]*policy.Role {
	roles := map[string]*policy.Role{}
	for i := range f.Roles {
		if r := &f.Roles[i]; r.Namespace != "" || r.Shown != "" {
			roles[r.Name] = r
		}
	}
	return roles
}

func subjects(b *policy.Binding) []rbacv1.Subject {
	list := make([]rbacv1.Subject, len(b.Subjects))
	for i, s := range b.Subjects {
		if s.Group != "" {
			list[i] = rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: s.Group}
		} else if namespace, name, err := serviceaccount.SplitUsername(s.User); err == nil {
			list[i] = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		} else {
			list[i] = rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: s.User}
		}
	}
	return list
}
