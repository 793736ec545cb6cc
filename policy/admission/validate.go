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
	checks      []check
	annotations []*expr.Program
}

// Annotation is what a rule adds to the audit log.
type Annotation struct{ Key, Value string }

type check struct {
	*policy.ValidationCheck
	program *expr.Program
	message *expr.Program
}

func newValidation(p *policy.Policy, r *policy.Validation) (*validation, error) {
	common, err := newRule(&r.Match, r.Params, r.Variables)
	if err != nil {
		return nil, err
	}
	err = common.reads(p, r.Objects, r.ParamSource)
	v, errs := &validation{Validation: r, rule: common}, []error{err}
	for i := range r.Validations {
		c := check{ValidationCheck: &r.Validations[i]}
		c.program, err = common.load((*policy.Expression).Load, &c.Expression)
		errs = append(errs, err)
		if c.MessageExpression != nil {
			c.message, err = common.load((*policy.Expression).Load, c.MessageExpression)
			errs = append(errs, err)
		}
		v.checks = append(v.checks, c)
	}
	for i := range r.Annotations {
		program, err := common.load((*policy.Expression).Load, &r.Annotations[i].Expression)
		v.annotations, errs = append(v.annotations, program), append(errs, err)
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
		if a.Stored == nil && x.readsStored() {
			a.Undecided = append(a.Undecided, x.ID)
			continue
		}
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
		if x.ID == id && a.Stored == nil && x.readsStored() {
			a.Undecided = append(a.Undecided, id)
			return nil, false
		}
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
	if !r.selects(vars.v, vars.a, &r.Match) {
		vars.a.consider(r.ID, r.Source.String(), policy.VerdictUnselected)
		return findings
	}
	err := r.forEachParam(vars, r.ID, func() { findings = r.evaluateWith(vars, findings) })
	if err != nil {
		vars.a.consider(r.ID, r.ParamSource.Source.String(), "its params cannot be found")
		findings = r.failed(findings, r.ParamSource.Source.String(), err.Error(), []string{"Deny"})
	}
	return findings
}

// failed appends the finding that a part of the rule cannot be evaluated, unless its failure policy is Ignore.
func (r *validation) failed(findings []Finding, source, message string, actions []string) []Finding {
	if r.Ignore {
		return findings
	}
	return append(findings, Finding{Rule: r.ID, Source: source, Actions: actions, Reason: metav1.StatusReasonInvalid, Message: message})
}

// evaluateWith appends the rule's findings with the params in vars.
func (r *validation) evaluateWith(vars *variables, findings []Finding) []Finding {
	met, broken := r.meets(vars, r.ID, &r.Match)
	if broken != nil {
		return r.failed(findings, broken.at.Source.String(), "condition "+broken.at.Name+": "+broken.err.Error(), r.Actions)
	}
	if !met {
		return findings
	}
	for i := range r.checks {
		c := &r.checks[i]
		holds, err := c.program.Bool(vars.ctx, vars, &vars.budget)
		if holds && err == nil {
			vars.consider(c.ID, c.Source.String(), policy.VerdictHolds)
			continue
		}
		if err != nil && r.Ignore {
			vars.consider(c.ID, c.Source.String(), "cannot be evaluated, which its failurePolicy ignores: "+err.Error())
			continue
		}
		vars.consider(c.ID, c.Source.String(), policy.VerdictFails)
		reason := metav1.StatusReason(c.Reason)
		if err != nil {
			reason = metav1.StatusReasonInvalid // as in kube-apiserver
		}
		findings = append(findings, Finding{Rule: c.ID, Source: c.Source.String(), Actions: r.Actions, Reason: reason, Message: c.text(vars, err)})
	}
	return r.annotate(vars, findings)
}

// maxAnnotation is the maximum length of the value of an annotation, as in kube-apiserver.
const maxAnnotation = 10 << 10

// annotate evaluates the audit annotations. One that cannot be evaluated refuses the write, unless the failure policy is Ignore.
func (r *validation) annotate(vars *variables, findings []Finding) []Finding {
	if len(r.annotations) == 0 {
		return findings
	}
	budget := expr.NewBudget()
	for i, program := range r.annotations {
		of := &r.Annotations[i]
		value, err := program.Eval(vars.ctx, vars, &budget)
		if err != nil {
			findings = r.failed(findings, of.Source.String(), "audit annotation "+of.Name+": "+err.Error(), []string{"Deny"})
			continue
		}
		text, _ := value.Value().(string) // null is left out
		if text = strings.TrimSpace(text); text != "" {
			vars.a.annotate(r.ID+"/"+of.Name, text[:min(len(text), maxAnnotation)])
		}
	}
	return findings
}

// annotate adds an annotation. Further values of a key are added to the first, unless it has them.
func (a *Attributes) annotate(key, value string) {
	for i := range a.Annotations {
		if x := &a.Annotations[i]; x.Key == key {
			if !slices.Contains(strings.Split(x.Value, ", "), value) {
				x.Value += ", " + value
			}
			return
		}
	}
	a.Annotations = append(a.Annotations, Annotation{key, value})
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
