package plans

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/policy/expr"
)

// unread says why a plan does not look at objects of a resource as they have been since a revision; empty if it does. policies are those
// that decide. A resource that none of them has is not stored, and nothing is looked at.
func (o *Options) unread(ctx context.Context, r schema.GroupResource, since uint64, policies ...*policy.Policy) (why string, err error) {
	stored := func(p *policy.Policy) bool { return p != nil && p.Kind(r) != nil }
	if o.MayRead == nil || !slices.ContainsFunc(append(policies, o.InForce), stored) {
		return "", nil
	}
	if may, err := o.mayRead(ctx, r, since); err != nil || !may {
		return fmt.Sprintf("you may not list %s in all namespaces%s", r, back(since)), err
	}
	if !slices.ContainsFunc(policies, func(p *policy.Policy) bool { return readsNamespaces(p, r) }) {
		return "", nil
	}
	may, err := o.mayRead(ctx, commit.Namespaces, since)
	if err != nil || may {
		return "", err
	}
	return fmt.Sprintf("rules for %s read their namespaces, and you may not list namespaces%s", r, back(since)), nil
}

// back says that objects of the past are meant.
func back(since uint64) string {
	if since == today {
		return ""
	}
	return ", or not as they have been since then"
}

// operations are the writes that rules are about.
var operations = []policy.Operation{policy.Create, policy.Update, policy.Delete}

// RulesRead returns the resources of which rules of admission read objects for writes of a resource, besides those that are written:
// stored objects, params, and namespaces.
func RulesRead(p *policy.Policy, r schema.GroupResource) (read []schema.GroupResource) {
	if p == nil || p.Kind(r) == nil {
		return nil
	}
	rule := func(m *policy.Match, objects []policy.StoredKind, params *policy.ParamSource, of []policy.Variable) {
		for _, o := range objects {
			read = append(read, storedAs(p, o.Group, o.Resource))
		}
		if params != nil {
			read = append(read, storedAs(p, params.Group, params.Resource))
		}
		if readsNamespace(m, of) {
			read = append(read, commit.Namespaces)
		}
	}
	rules := admission.MustOf(p)
	for _, v := range p.Kind(r).Versions {
		for _, subresource := range []string{"", "status", "scale"} {
			for _, operation := range operations {
				for _, x := range rules.Validations(v, subresource, operation) {
					of := append(slices.Clone(x.Variables), x.Annotations...)
					for i := range x.Validations {
						of = append(of, policy.Variable{Expression: x.Validations[i].Expression})
						if m := x.Validations[i].MessageExpression; m != nil {
							of = append(of, policy.Variable{Expression: *m})
						}
					}
					rule(&x.Match, x.Objects, x.ParamSource, of)
				}
				for _, x := range rules.Mutations(v, subresource, operation) {
					of := slices.Clone(x.Variables)
					for i := range x.Mutation.Mutations {
						of = append(of, policy.Variable{Expression: x.Mutation.Mutations[i].Expression})
					}
					rule(&x.Match, x.Objects, x.ParamSource, of)
				}
			}
		}
	}
	slices.SortFunc(read, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(read)
}

// storedAs returns the resource of whose objects one is made: itself, unless it is a view.
func storedAs(p *policy.Policy, group, resource string) schema.GroupResource {
	r := schema.GroupResource{Group: group, Resource: resource}
	if k := p.Kind(r); k != nil {
		return k.Stored().GroupResource()
	}
	return r
}

// readsNamespaces reports whether rules for writes of a resource read the namespaces of its objects.
func readsNamespaces(p *policy.Policy, r schema.GroupResource) bool {
	return slices.Contains(RulesRead(p, r), commit.Namespaces)
}

// readsNamespace reports whether a match or expressions read the namespace of an object.
func readsNamespace(m *policy.Match, of []policy.Variable) bool {
	return m.NamespaceSelector != nil || slices.ContainsFunc(append(of, m.Conditions...), func(x policy.Variable) bool {
		selections, err := expr.SelectionsWithOptional(x.Checked)
		return err != nil || slices.ContainsFunc(selections, func(s expr.Selection) bool { return s.Variable == expr.VarNamespace })
	})
}
