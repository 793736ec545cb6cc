package rendered

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"stele.dev/stele/policy"
)

// ofRole returns a role as an entry to render.
func ofRole(r *policy.Role) *Entry {
	return &Entry{Name: r.Name, ID: r.ID, Source: r.Source, Builtin: policy.OwningTeam(r.ID) == policy.BuiltinTeam, Labels: r.Labels, Render: func(t metav1.TypeMeta, meta metav1.ObjectMeta) any {
		return clusterRole(r, t, meta)
	}}
}

// ofBinding returns a binding as an entry to render, in every namespace or in those that it grants in.
func ofBinding(b *policy.Binding) *Entry {
	return &Entry{Name: bindingName(b.ID), ID: b.ID, Source: b.Source, Builtin: policy.OwningTeam(b.ID) == policy.BuiltinTeam, In: b.In, Namespaces: b.Namespaces, Render: func(t metav1.TypeMeta, meta metav1.ObjectMeta) any {
		if b.Everywhere() {
			return &rbacv1.ClusterRoleBinding{TypeMeta: t, ObjectMeta: meta, Subjects: subjects(b), RoleRef: roleRef(b)}
		}
		return &rbacv1.RoleBinding{TypeMeta: t, ObjectMeta: meta, Subjects: subjects(b), RoleRef: roleRef(b)}
	}}
}

// bindingName returns team:name for team/bindings/name. Colons inside a team's name are doubled, so that the name
// stays unambiguous; a team's name does not start or end with a colon.
func bindingName(id string) string {
	team, name, _ := strings.Cut(id, "/bindings/")
	return strings.ReplaceAll(team, ":", "::") + ":" + name
}

func clusterRole(r *policy.Role, t metav1.TypeMeta, meta metav1.ObjectMeta) any {
	role := &rbacv1.ClusterRole{TypeMeta: t, ObjectMeta: meta, Rules: make([]rbacv1.PolicyRule, len(r.Rules))}
	for i, rule := range r.Rules {
		role.Rules[i] = rbacv1.PolicyRule{
			Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames, NonResourceURLs: rule.NonResourceURLs}
	}
	if len(r.Aggregate) > 0 {
		role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: r.Aggregate}}}
	}
	return role
}

func roleRef(b *policy.Binding) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.Role}
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
