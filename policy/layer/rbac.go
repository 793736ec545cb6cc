package layer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/component-helpers/auth/rbac/validation"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/brought"
)

// role is a role that a client brought. selectors select, by label, the roles whose rules it has; they are empty if it has rules of its own.
type role struct {
	policy.Role
	selectors []labels.Selector
}

// binding is a binding that a client brought. Its Role is set when the roles are known.
type binding struct {
	policy.Binding
	namespace string
	ref       rbacv1.RoleRef
}

// rbac is what clients brought of RBAC.
type rbac struct {
	roles    []*role
	bindings []*binding
}

// roleOf returns the role of a stored ClusterRole or Role.
func roleOf(x *Stored) (*role, error) {
	o, err := brought.Decode[rbacv1.ClusterRole](x.JSON) // a Role has the same fields but one
	if err != nil {
		return nil, err
	}
	r := &role{Role: policy.Role{Name: nameOf(x), Shown: x.Name, Namespace: x.Namespace, Source: x.at()}}
	r.ID = r.Name
	if x.Namespace != "" { // only ClusterRoles are aggregated
		r.Rules = rulesOf(r.ID, x, o.Rules)
		return r, nil
	}
	r.Labels = o.Labels
	if o.AggregationRule == nil {
		r.Rules = rulesOf(r.ID, x, o.Rules)
		return r, nil
	}
	for i := range o.AggregationRule.ClusterRoleSelectors {
		s, err := metav1.LabelSelectorAsSelector(&o.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		r.selectors = append(r.selectors, s)
	}
	return r, nil
}

// nameOf returns the name of an object among all roles and bindings. No role of a bundle has a "/" in its name.
func nameOf(x *Stored) string {
	if x.Namespace != "" {
		return x.Resource.Resource + "/" + x.Namespace + "/" + x.Name
	}
	return x.Resource.Resource + "/" + x.Name
}

func rulesOf(id string, x *Stored, rules []rbacv1.PolicyRule) (list []policy.Rule) {
	for i := range rules {
		r := &rules[i]
		list = append(list, policy.Rule{
			ID: fmt.Sprintf("%s/%d", id, i), Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames, NonResourceURLs: r.NonResourceURLs, Source: x.at(),
		})
	}
	return list
}

// bindingOf returns the binding of a stored ClusterRoleBinding or RoleBinding.
func bindingOf(x *Stored) (*binding, error) {
	o, err := brought.Decode[rbacv1.RoleBinding](x.JSON) // a ClusterRoleBinding has the same fields
	if err != nil {
		return nil, err
	}
	b := &binding{Binding: policy.Binding{ID: nameOf(x), Shown: x.Name, Namespaces: []string{"*"}, Source: x.at()}, namespace: x.Namespace, ref: o.RoleRef}
	if x.Namespace != "" {
		b.Namespaces = []string{x.Namespace}
	}
	for _, s := range o.Subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			b.Subjects = append(b.Subjects, policy.Subject{User: s.Name})
		case rbacv1.GroupKind:
			b.Subjects = append(b.Subjects, policy.Subject{Group: s.Name})
		case rbacv1.ServiceAccountKind:
			if in := cmp.Or(s.Namespace, x.Namespace); in != "" {
				b.Subjects = append(b.Subjects, policy.Subject{User: serviceaccount.MakeUsername(in, s.Name)})
			}
		}
	}
	return b, nil
}

// over adds to a layer the roles and bindings that are in force over a bundle. The bundle is stronger: what it has of a name hides what clients brought, and
// its powers limit what that grants.
func (r *rbac) over(f *policy.Form, l *policy.Layer) {
	shown := map[[2]string]*policy.Role{}
	for i := range f.Roles {
		shown[[2]string{f.Roles[i].Namespace, f.Roles[i].ShownName()}] = &f.Roles[i]
	}
	r.roles = slices.DeleteFunc(r.roles, func(x *role) bool { return shown[[2]string{x.Namespace, x.Shown}] != nil })
	powers := f.Dynamic[brought.SectionRBAC].Powers
	joined := r.aggregate(f, powers)
	own := map[string]*policy.Role{}
	for _, x := range r.roles {
		of := x.Role
		if of.Rules = within(powers, of.Rules); len(x.selectors) > 0 {
			of.Rules = joined[of.Name]
		}
		l.Roles = append(l.Roles, of)
		own[of.Name] = &of
	}
	l.Joined = map[string][]policy.Rule{}
	for i := range f.Roles {
		if name := f.Roles[i].Name; len(joined[name]) > 0 {
			l.Joined[name] = joined[name]
		}
	}
	shows, covered := shownBindings(f), map[*policy.Role]bool{}
	for _, x := range r.bindings {
		b := x.Binding
		in := ""
		if x.ref.Kind == "Role" {
			in = x.namespace
		}
		of := shown[[2]string{in, x.ref.Name}]
		if of == nil {
			of = own[refName(x.ref, in)]
		} else {
			if _, known := covered[of]; !known {
				covered[of] = len(within(powers, of.Rules)) == len(of.Rules)
			}
			if !covered[of] {
				continue
			}
		}
		if of == nil || shows(x.namespace, b.Shown) {
			continue // as in Kubernetes, a binding grants nothing as long as its role does not exist
		}
		b.Role = of.Name
		l.Bindings = append(l.Bindings, b)
	}
}

// shownBindings returns a function that reports whether the bundle has a binding that an object shows.
func shownBindings(f *policy.Form) func(namespace, name string) bool {
	byName := map[string][]*policy.Binding{}
	for i := range f.Bindings {
		if b := &f.Bindings[i]; b.When == nil {
			byName[b.ShownName()] = append(byName[b.ShownName()], b)
		}
	}
	return func(namespace, name string) bool {
		return slices.ContainsFunc(byName[name], func(b *policy.Binding) bool {
			return b.Everywhere() == (namespace == "") && (namespace == "" || b.In(namespace))
		})
	}
}

// refName returns the name of the role of a client that a binding in a namespace names.
func refName(ref rbacv1.RoleRef, in string) string {
	if ref.Kind == "Role" {
		return brought.Roles.Plural + "/" + in + "/" + ref.Name
	}
	return brought.ClusterRoles.Plural + "/" + ref.Name
}

// within returns the rules that powers cover; all if powers are nil.
func within(powers, rules []policy.Rule) []policy.Rule {
	if powers == nil {
		return rules
	}
	most := Rules(powers)
	return slices.DeleteFunc(slices.Clone(rules), func(r policy.Rule) bool {
		rule := Rules([]policy.Rule{r})
		if TooMany(rule) {
			return true
		}
		covered, _ := validation.Covers(most, rule)
		return !covered
	})
}

// MaxSingle limits into how many single rights rules are broken down to compare them, which takes memory for each.
const MaxSingle = 1 << 14

// TooMany reports whether rules together have more than [MaxSingle] single rights.
func TooMany(lists ...[]rbacv1.PolicyRule) bool {
	n := 0
	for _, rules := range lists {
		for i := range rules {
			r := &rules[i]
			n += len(r.Verbs) * (len(r.APIGroups)*len(r.Resources)*max(1, len(r.ResourceNames)) + len(r.NonResourceURLs))
		}
	}
	return n > MaxSingle
}

// Rules returns rules as Kubernetes has them.
func Rules(rules []policy.Rule) []rbacv1.PolicyRule {
	list := make([]rbacv1.PolicyRule, len(rules))
	for i, r := range rules {
		list[i] = rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames, NonResourceURLs: r.NonResourceURLs}
	}
	return list
}

// aggregate returns the rules that aggregated roles have, by name: all of a role that a client brought, and of a role of the bundle those that come from
// roles that clients brought. As in Kubernetes, the rules of an aggregated role join those that select it, too.
func (r *rbac) aggregate(f *policy.Form, powers []policy.Rule) map[string][]policy.Rule {
	type node struct {
		name    string
		labels  labels.Set
		rules   []policy.Rule // that it has anyway
		selects func(labels.Set) bool
		bundle  bool
	}
	var nodes []*node
	for i := range f.Roles {
		x := &f.Roles[i]
		if x.Namespace != "" {
			continue
		}
		n := &node{name: x.Name, labels: x.Labels, rules: x.Rules, bundle: true}
		if len(x.Aggregate) > 0 {
			selector := labels.SelectorFromSet(x.Aggregate)
			n.selects = func(of labels.Set) bool { return selector.Matches(of) }
		}
		nodes = append(nodes, n)
	}
	aggregates := false
	for _, x := range r.roles {
		if x.Namespace != "" {
			continue
		}
		n := &node{name: x.Name, labels: x.Labels, rules: within(powers, x.Rules)}
		if len(x.selectors) > 0 {
			n.selects = func(of labels.Set) bool {
				return slices.ContainsFunc(x.selectors, func(s labels.Selector) bool { return s.Matches(of) })
			}
		}
		aggregates = aggregates || n.selects != nil || len(x.Labels) > 0
		nodes = append(nodes, n)
	}
	joined := map[string]map[string]policy.Rule{}
	for changed := aggregates; changed; {
		changed = false
		for _, n := range nodes {
			if n.selects == nil {
				continue
			}
			for _, of := range nodes {
				if of == n || !n.selects(of.labels) {
					continue
				}
				more := slices.Collect(maps.Values(joined[of.name]))
				if !of.bundle || !n.bundle { // what a bundle's role has of the bundle is there
					more = append(more, within(powers, of.rules)...)
				}
				for _, rule := range more {
					if _, has := joined[n.name][rule.ID]; !has {
						if joined[n.name] == nil {
							joined[n.name] = map[string]policy.Rule{}
						}
						joined[n.name][rule.ID], changed = rule, true
					}
				}
			}
		}
	}
	lists := map[string][]policy.Rule{}
	for name, rules := range joined {
		for _, id := range slices.Sorted(maps.Keys(rules)) {
			lists[name] = append(lists[name], rules[id])
		}
	}
	return lists
}
