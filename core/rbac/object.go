package rbac

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
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

// entry is a role or a binding, under the name that its objects have.
type entry struct {
	name, id string
	source   schemas.Position
	role     *policy.Role
	binding  *policy.Binding
}

func ofRole(r *policy.Role) *entry {
	return &entry{name: r.Name, id: r.ID, source: r.Source, role: r}
}

func ofBinding(b *policy.Binding) *entry {
	return &entry{name: bindingName(b.ID), id: b.ID, source: b.Source, binding: b}
}

// bindingName makes team:name of team/bindings/name. Teams may have colons in their names,
// but not at the ends; doubled, they are told apart from the one that follows.
func bindingName(id string) string {
	team, name, _ := strings.Cut(id, "/bindings/")
	return strings.ReplaceAll(team, ":", "::") + ":" + name
}

// object renders what the entry is in a place.
func (e *entry) object(k *Kind, p place) *objects.Object {
	r := k.Version.Kind.GroupResource()
	meta := metav1.ObjectMeta{
		Namespace: p.namespace, Name: e.name, Annotations: map[string]string{ruleAnnotation: e.id},
		// The same on every replica, and under every policy.
		UID: types.UID(uuid.NewSHA1(uuid.NameSpaceURL, []byte(strings.Join([]string{r.Group, r.Resource, p.namespace, e.name}, "/"))).String()),
	}
	if !e.source.IsZero() {
		meta.Annotations[sourceAnnotation] = e.source.String()
	}
	gvk := k.GroupVersionKind()
	payload, err := json.Marshal(k.render(e, metav1.TypeMeta{Kind: gvk.Kind, APIVersion: gvk.GroupVersion().String()}, meta))
	if err != nil {
		panic(fmt.Sprintf("rbac: %v", err)) // it is plain data
	}
	o, err := objects.Parse(r, payload, p.since)
	if err != nil {
		panic(fmt.Sprintf("rbac: %v", err)) // it has metadata
	}
	return o
}

func (e *entry) clusterRole(t metav1.TypeMeta, meta metav1.ObjectMeta) any {
	meta.Labels = e.role.Labels
	role := &rbacv1.ClusterRole{TypeMeta: t, ObjectMeta: meta, Rules: make([]rbacv1.PolicyRule, len(e.role.Rules))}
	for i, r := range e.role.Rules {
		role.Rules[i] = rbacv1.PolicyRule{
			Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames, NonResourceURLs: r.NonResourceURLs}
	}
	if len(e.role.Aggregate) > 0 {
		role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: e.role.Aggregate}}}
	}
	return role
}

func (e *entry) clusterRoleBinding(t metav1.TypeMeta, meta metav1.ObjectMeta) any {
	return &rbacv1.ClusterRoleBinding{TypeMeta: t, ObjectMeta: meta, Subjects: e.subjects(), RoleRef: e.roleRef()}
}

func (e *entry) roleBinding(t metav1.TypeMeta, meta metav1.ObjectMeta) any {
	return &rbacv1.RoleBinding{TypeMeta: t, ObjectMeta: meta, Subjects: e.subjects(), RoleRef: e.roleRef()}
}

func (e *entry) roleRef() rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: e.binding.Role}
}

func (e *entry) subjects() []rbacv1.Subject {
	list := make([]rbacv1.Subject, len(e.binding.Subjects))
	for i, s := range e.binding.Subjects {
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
