package admission

import (
	"context"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
)

// Finding is a validation that failed.
type Finding struct {
	Rule    string // id of the rule
	Source  string // file:line
	Message string
	Reason  metav1.StatusReason
	// Actions are Deny, Warn and Audit.
	Actions []string
}

// Denies reports whether the finding rejects the write.
func (f *Finding) Denies() bool { return slices.Contains(f.Actions, "Deny") }

// validation is a policy.Validation with its expressions loaded.
type validation struct {
	*policy.Validation
	*rule
	checks []check
}

type check struct {
	*policy.ValidationCheck
	program *expr.Program
	message *expr.Program
}

func newValidation(r *policy.Validation) (*validation, error) {
	common, err := newRule(&r.Match, r.Params, r.Variables)
	v, errs := &validation{Validation: r, rule: common}, []error{err}
	for i := range r.Validations {
		c := check{ValidationCheck: &r.Validations[i]}
		c.program, err = c.Expression.Load()
		errs = append(errs, err)
		if c.MessageExpression != nil {
			c.message, err = c.MessageExpression.Load()
			errs = append(errs, err)
		}
		v.checks = append(v.checks, c)
	}
	return v, errors.Join(errs...)
}

// Validate returns the failed validations of a write, in the order of their ids. A rule that cannot be evaluated counts as
// failed.
func (r Rules) Validate(ctx context.Context, v *policy.Version, a *Attributes) (findings []Finding) {
	if !r.Validates(v, a.Request.Subresource, a.Operation) {
		return nil
	}
	ctx, cancel := expr.Limited(ctx)
	defer cancel()
	return r.ValidateFully(ctx, v, a)
}

// ValidateFully is Validate without a limit of time.
func (r Rules) ValidateFully(ctx context.Context, v *policy.Version, a *Attributes) (findings []Finding) {
	vars := &variables{p: r.policy, v: v, a: a, ctx: ctx}
	for _, x := range r.validations[subject{v, a.Request.Subresource, a.Operation}] {
		vars.begin(x.rule, x.as)
		findings = x.evaluate(vars, findings)
	}
	return findings
}

// ValidateBy evaluates one validation, as [Rules.Validate] does. asked is false if the rule does not apply to writes of the
// version, or does not exist.
func (r Rules) ValidateBy(ctx context.Context, v *policy.Version, a *Attributes, id string) (findings []Finding, asked bool) {
	ctx, cancel := expr.Limited(ctx)
	defer cancel()
	for _, x := range r.validations[subject{v, a.Request.Subresource, a.Operation}] {
		if x.ID == id {
			vars := &variables{p: r.policy, v: v, a: a, ctx: ctx}
			vars.begin(x.rule, x.as)
			return x.evaluate(vars, nil), true
		}
	}
	return nil, false
}

// evaluate appends the rule's findings.
func (r *validation) evaluate(vars *variables, findings []Finding) []Finding {
	applies, broken := r.applies(vars, r.ID, r.Source.String(), &r.Match)
	if broken != nil {
		return append(findings, Finding{Rule: r.ID, Source: broken.at.Source.String(), Actions: r.Actions, Reason: metav1.StatusReasonInvalid,
			Message: "condition " + broken.at.Name + ": " + broken.err.Error()})
	}
	if !applies {
		return findings
	}
	for i := range r.checks {
		c := &r.checks[i]
		holds, err := c.program.Bool(vars.ctx, vars, &vars.budget)
		if holds && err == nil {
			vars.a.consider(c.ID, c.Source.String(), policy.VerdictHolds)
			continue
		}
		vars.a.consider(c.ID, c.Source.String(), policy.VerdictFails)
		findings = append(findings, Finding{
			Rule: c.ID, Source: c.Source.String(), Actions: r.Actions, Reason: metav1.StatusReason(c.Reason), Message: c.text(vars, err),
		})
	}
	return findings
}

// text returns the message of a check that failed, or that could not be evaluated because of err.
func (c *check) text(vars *variables, err error) string {
	if err != nil {
		return err.Error()
	}
	if c.message != nil {
		if text := c.message.Message(vars.ctx, vars, &vars.budget); text != "" {
			return text
		}
	}
	if text := strings.TrimSpace(c.Message); text != "" {
		return text
	}
	return "failed expression: " + strings.TrimSpace(c.Expression.Text)
}
