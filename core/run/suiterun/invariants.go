package suiterun

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
	"stele.dev/stele/policy/suites"
	"stele.dev/stele/schemas/wording"
)

// InvariantResult is the result of an invariant.
type InvariantResult struct {
	Invariant *suites.Invariant
	// Failures are counterexamples, one of each subject; empty if the invariant holds.
	Failures []string
	// Outsiders are authorizers outside of the policy that could decide otherwise.
	Outsiders []string
}

// Decide decides an invariant for every request that can be made, from the grants and denies of the policy. The error says
// that it cannot be decided, or is the context's.
func (r *Runner) Decide(ctx context.Context, i *suites.Invariant) (*InvariantResult, error) {
	of, err := r.rights()
	if err != nil {
		return nil, fmt.Errorf("invariant %q: %w", i.Name, err)
	}
	var answer *rights.Answer
	verb := "may"
	switch {
	case i.Only != nil:
		answer, err = of.Only(ctx, subjectsOf(i.Only.Subjects), requests(&i.Only.May))
	case i.Never != nil:
		answer, err = of.Never(ctx, requests(i.Never))
	default:
		verb = "may not always"
		answer, err = of.Always(ctx, subjectsOf(i.Always.Subjects), requests(&i.Always.May))
	}
	if err != nil {
		return nil, fmt.Errorf("invariant %q: %w", i.Name, err)
	}
	result := &InvariantResult{Invariant: i, Outsiders: answer.Outsiders}
	for k := range answer.Violations {
		result.Failures = append(result.Failures, counterexample(&answer.Violations[k], verb))
	}
	return result, nil
}

func subjectsOf(list []suites.Subject) (subjects []policy.Subject) {
	for _, s := range list {
		subjects = append(subjects, s.Policy())
	}
	return subjects
}

func requests(c *suites.Can) *rights.Requests {
	return &rights.Requests{Verbs: c.Verbs, APIGroups: c.APIGroups, Resources: c.Resources, Namespaces: c.Namespaces, ResourceNames: c.ResourceNames}
}

// counterexample describes a violation: a subject, a request, and what decides it.
func counterexample(v *rights.Violation, verb string) string {
	q := &v.Request
	subject := "User " + v.Subject.User
	if v.Subject.Group != "" {
		subject = "Group " + v.Subject.Group
	}
	what := q.Path
	if q.IsResource {
		what = q.Resource
		if q.Group != "" {
			what += "." + q.Group
		}
		if q.Subresource != "" {
			what += "/" + q.Subresource
		}
		if q.Name != "" && !slices.Equal(v.Scope.Names, nil) {
			what += " " + q.Name
		}
		if q.Namespace != "" {
			what += " in namespace " + q.Namespace
		} else {
			what += " in all namespaces or in none"
		}
	}
	text := fmt.Sprintf("%s %s %s %s", subject, verb, q.Verb, what)
	if v.When != "" {
		text += ", " + v.When
	}
	var by []string
	for _, g := range v.By {
		by = append(by, g.ID+wording.At(g.Source))
	}
	if len(by) > 0 {
		return text + ", by " + strings.Join(by, ", ")
	}
	return text + ": no rule grants it"
}
