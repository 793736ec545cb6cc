package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
)

// Reviewer is a webhook or a plugin that a write may concern.
type Reviewer struct {
	*policy.Reviewer
	// As is the version in which it sees objects.
	As *policy.Version

	rule  *rule
	match *policy.Match // its selectors and conditions
}

// loadReviewers indexes the reviewers of a form: mutating ones by their order, validating ones by their ids.
func (r *loaded) loadReviewers(p *policy.Policy) error {
	form := p.Form()
	r.reviewers = map[subject][]Reviewer{}
	for i := range form.Reviewers {
		x := Reviewer{Reviewer: &form.Reviewers[i]}
		x.match = &policy.Match{
			NamespaceSelector: x.NamespaceSelector, ObjectSelector: x.ObjectSelector, Conditions: x.Conditions,
			ResourceNames: x.ResourceNames, Excludes: x.Excludes, Exact: x.Exact,
		}
		var err error
		if x.rule, err = newRule(x.match, nil, nil); err != nil {
			return fmt.Errorf("policy: %s: %w", x.ID, err)
		}
		for s, as := range x.subjects(p) {
			next := x
			next.As = as
			r.reviewers[s] = append(r.reviewers[s], next)
		}
	}
	for _, list := range r.reviewers {
		slices.SortStableFunc(list, func(a, b Reviewer) int { return cmp.Compare(a.Order, b.Order) })
	}
	return nil
}

// subjects returns all that a reviewer's rules name, and the version in which it sees it. As in Kubernetes, the version of
// the request comes first, whichever rule names it; then those of the rules in their order.
func (x *Reviewer) subjects(p *policy.Policy) map[subject]*policy.Version {
	found := map[subject]*policy.Version{}
	for i := range x.Rules {
		rule := &x.Rules[i]
		for s, as := range subjects(p, rule.Reads()) {
			if known := found[s]; !rule.Scopes(s.version.Kind.Namespaced) || known == s.version || known != nil && as != s.version || x.Exact && as != s.version || alwaysExcluded(x.match, s) {
				continue
			}
			found[s] = as
		}
	}
	return found
}

// Reviewers returns the reviewers that may be about such writes. The caller must not change the list.
func (r Rules) Reviewers(v *policy.Version, subresource string, operation policy.Operation) []Reviewer {
	return r.reviewers[subject{v, subresource, operation}]
}

// ConditionError reports that a match condition of a reviewer cannot be evaluated, and that its failure policy refuses the
// write.
type ConditionError struct {
	*policy.Reviewer
	At  *policy.Variable
	Err error
}

// Error names the condition.
func (e *ConditionError) Error() string {
	return fmt.Sprintf("the condition %s of the %s %s cannot be evaluated: %v", e.At.Name, e.What(), e.Name(), e.Err)
}

func (e *ConditionError) Unwrap() error { return e.Err }

// Concerns reports whether a write is to be reviewed: whether selectors and conditions of the reviewer match. As in
// Kubernetes, a condition that cannot be evaluated is an error, or does not match if the failure policy is Ignore.
func (r Rules) Concerns(ctx context.Context, x *Reviewer, v *policy.Version, a *Attributes) (bool, error) {
	if x.NamespaceSelector == nil && x.ObjectSelector == nil && len(x.Conditions)+len(x.ResourceNames)+len(x.Excludes) == 0 {
		return true, nil
	}
	ctx, cancel := expr.Limited(ctx)
	defer cancel()
	vars := &variables{p: r.policy, v: v, a: a, ctx: ctx}
	vars.begin(x.rule, x.As)
	if !x.rule.selects(v, a, x.match) {
		vars.consider(x.ID, x.Source.String(), "does not select it")
		return false, nil
	}
	applies, failed := x.rule.meets(vars, x.ID, x.match)
	if failed != nil && !x.Ignore {
		return false, &ConditionError{x.Reviewer, failed.at, failed.err}
	}
	return applies, nil
}

// Labels returns the labels of the namespace of the object; nil if it has none. From then on the write depends on them.
func (a *Attributes) Labels() map[string]string {
	if ns := a.inNamespace(); ns != nil {
		return ns.Meta.Labels
	}
	return nil
}

// Shown returns an object of the request in the version in which the reviewer sees it.
func (x *Reviewer) Shown(v *policy.Version, subresource string, o *policy.Object) (*policy.Version, *policy.Object, error) {
	as := x.As.Seen(subresource)
	if o != nil && x.As != v && v.Differs(x.As) && subresource != "scale" {
		content, err := v.Converted(o.Content, x.As)
		if err != nil {
			return nil, nil, err
		}
		o = &policy.Object{Meta: o.Meta, Content: content}
	}
	return as, o, nil
}

// Unshown returns the content of an object that the reviewer has changed, in the version of the request. is is the object before.
func (x *Reviewer) Unshown(v *policy.Version, subresource string, content, is map[string]any) (map[string]any, error) {
	if x.As != v && v.Differs(x.As) && subresource != "scale" {
		return v.Unconverted(content, x.As, is)
	}
	return content, nil
}
