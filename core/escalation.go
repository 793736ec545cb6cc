package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/auth/rbac/validation"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/layer"
	"stele.dev/stele/schemas/brought"
	"stele.dev/stele/schemas/wording"
)

// everything are the rules that an aggregated role may come to have.
var everything = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// noEscalation returns an error if a role or binding grants more than its writer may do, or than the bundle lets clients grant. The rules are those of
// kube-apiserver: who may "escalate" the role or "bind" the role of a binding may grant more. Unlike there, what a deny refuses to the writer counts as
// not held. As there, it is decided before the object is validated.
func (p *Pipeline) noEscalation(ctx context.Context, r *Request) error {
	b := r.Kind.Kind.Brought
	if b == nil || b.Section != brought.SectionRBAC || r.Mistyped != nil {
		return nil
	}
	refuse := func(err error) error { return status.Refused(r.Resource(), r.Key.Name, err) }
	if r.OldContent != nil && b.Same(r.Object.Content, r.OldContent) && maps.Equal(r.OldMeta.Labels, r.Object.Meta.Labels) {
		return nil // what it grants stays, also if it has lost its finalizers
	}
	object, err := b.Object(r.Object.Content)
	if err != nil { // what cannot be read is not compared
		return r.madeBad(r.Undecodable(b.Kind.Kind, err))
	}
	var granted []rbacv1.PolicyRule
	may := r.Access
	switch o := object.(type) {
	case *rbacv1.ClusterRole:
		if granted = o.Rules; o.AggregationRule != nil || r.OldContent["aggregationRule"] != nil {
			granted = append(slices.Clip(granted), everything...)
		}
		may.Verb, may.Name = "escalate", r.Key.Name
	case *rbacv1.Role:
		granted = o.Rules
		may.Verb, may.Name = "escalate", r.Key.Name
	case *rbacv1.ClusterRoleBinding:
		if granted, err = p.boundRules(ctx, r, &may, o.RoleRef); err != nil || granted == nil {
			return err
		}
	case *rbacv1.RoleBinding:
		if granted, err = p.boundRules(ctx, r, &may, o.RoleRef); err != nil || granted == nil {
			return err
		}
	}
	allowed, d := r.allows(ctx, &may), r.Tip.Policy.Base().Form().Dynamic[brought.SectionRBAC]
	if (d.Powers != nil || !allowed) && layer.TooMany(granted) {
		return refuse(fmt.Errorf("it grants more than %d combinations of verb, API group, resource and name, which are too many to compare: make it several roles", layer.MaxSingle))
	}
	if d.Powers != nil {
		if covered, missing := validation.Covers(layer.Rules(d.Powers), granted); !covered {
			return refuse(fmt.Errorf("the policy does not allow clients to grant (dynamic.powers, by %s):\n%s", d.Source, described(missing)))
		}
	}
	if allowed {
		return nil
	}
	user, groups := r.User.GetName(), r.User.GetGroups()
	held := layer.Rules(r.Tip.Policy.RulesOf(user, groups, r.Key.Namespace))
	attempts := func(text string) error {
		return refuse(errors.New(fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n", user, groups) + text))
	}
	if covered, missing := validation.Covers(held, granted); !covered {
		return attempts(described(missing))
	}
	for _, rule := range granted {
		if d := r.Tip.Policy.DeniesSome(user, groups, &rule); d != nil {
			return attempts(described([]rbacv1.PolicyRule{rule}) + "; " + d.ID + wording.At(d.Source.String()) + " denies some of it")
		}
	}
	return nil
}

// boundRules returns the rules of the role that a binding names, and makes may the question whether the writer may bind it. It returns nil if there is
// nothing to compare: the role does not exist, and the writer may bind it or the validation refuses its name.
func (p *Pipeline) boundRules(ctx context.Context, r *Request, may *policy.Request, ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, error) {
	resource, in := schema.GroupResource{Group: rbacv1.GroupName, Resource: brought.ClusterRoles.Plural}, ""
	switch {
	case ref.APIGroup != rbacv1.GroupName || ref.Name == "" || ref.Kind != "Role" && ref.Kind != "ClusterRole":
		return nil, nil
	case ref.Kind == "Role":
		resource.Resource, in = brought.Roles.Plural, r.Key.Namespace
	}
	may.Verb, may.Resource, may.Name = "bind", resource.Resource, ref.Name
	role := r.Tip.Policy.Form().RoleShown(in, ref.Name)
	switch {
	case role != nil:
		return append([]rbacv1.PolicyRule{}, layer.Rules(role.Rules)...), nil
	case r.allows(ctx, may):
		return nil, nil
	}
	return nil, status.NotFound(resource, ref.Name)
}

// allows reports whether the policy allows a request, whatever its object is.
func (r *Request) allows(ctx context.Context, a *policy.Request) bool {
	return r.Tip.Policy.Authorize(ctx, a).Allowed
}

// described returns rules as kube-apiserver says them in errors, one a line. Rules that differ in their verbs alone are one.
func described(rules []rbacv1.PolicyRule) string {
	verbs, of := map[string][]string{}, map[string]rbacv1.PolicyRule{}
	for _, r := range rules {
		what := r
		what.Verbs = nil
		key := fmt.Sprintf("%q", []any{what.APIGroups, what.Resources, what.ResourceNames, what.NonResourceURLs})
		of[key] = what
		for _, v := range r.Verbs {
			if !slices.Contains(verbs[key], v) {
				verbs[key] = append(verbs[key], v)
			}
		}
	}
	var lines []string
	for key, r := range of {
		var parts []string
		for _, part := range []struct {
			name   string
			values []string
		}{{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs}, {"ResourceNames", r.ResourceNames}, {"Verbs", verbs[key]}} {
			if len(part.values) > 0 {
				parts = append(parts, fmt.Sprintf("%s:%q", part.name, part.values))
			}
		}
		lines = append(lines, "{"+strings.ReplaceAll(strings.Join(parts, ", "), `" "`, `", "`)+"}")
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
