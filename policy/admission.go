package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas/celtype"
)

// Operation is what a write does to an object, as admission rules name it.
type Operation string

// The operations.
const (
	Create Operation = "CREATE"
	Update Operation = "UPDATE"
	Delete Operation = "DELETE"
)

// Admission is a write as admission rules see it. It belongs to one goroutine.
type Admission struct {
	Request   *Request
	Operation Operation
	DryRun    bool
	// Object is what is to be written, nil of a delete; Old what is there, nil of a create.
	// In requests for the scale they are Scales.
	Object, Old *Object
	// Namespace is that of the object, asked for at most once; it returns nil if the object
	// has none.
	Namespace func() *Object
	// Considered, if not nil, is told of each rule and what it makes of the write.
	Considered func(Considered)

	object, old, request, namespace any // as CEL sees them
	asked                           *Object
	hasAsked                        bool
}

// Finding is a validation that does not hold.
type Finding struct {
	Rule    string // its id
	Source  string // file:line
	Message string
	Reason  metav1.StatusReason
	// Actions are of Deny, Warn and Audit.
	Actions []string
}

// Denies tells whether the finding refuses the write.
func (f *Finding) Denies() bool { return slices.Contains(f.Actions, "Deny") }

// Admit tells what the rules of validating admission find wrong with a write, in the
// order of their ids. A rule that cannot be evaluated counts as broken.
func (p *Policy) Admit(ctx context.Context, v *Version, a *Admission) []Finding {
	if !v.Admits(a.Request.Subresource, a.Operation) {
		return nil
	}
	ctx, cancel := expr.Limited(ctx)
	defer cancel()
	return p.admit(ctx, v, a)
}

func (p *Policy) admit(ctx context.Context, v *Version, a *Admission) (findings []Finding) {
	vars := &admissionVars{p: p, v: v, a: a, ctx: ctx}
	for _, rule := range v.admission[admissionKey{a.Request.Subresource, a.Operation}] {
		vars.r, vars.budget = rule.admissionRule, expr.NewBudget()
		vars.see(rule.as)
		clear(vars.known)
		findings = rule.evaluate(vars, findings)
	}
	return findings
}

// Admits tells whether there are rules of validating admission about a write.
func (v *Version) Admits(subresource string, operation Operation) bool {
	return len(v.admission[admissionKey{subresource, operation}]) > 0
}

// admissionKey is what a version's rules are indexed by.
type admissionKey struct {
	subresource string
	operation   Operation
}

// matchedRule is a rule that is about a version, and the version in which it sees objects.
type matchedRule struct {
	*admissionRule
	as *Version
}

// admissionRule is a Validation made ready to be enforced.
type admissionRule struct {
	*Validation
	params     any // as CEL sees them
	namespaces labels.Selector
	objects    labels.Selector
	conditions []*expr.Program
	variables  map[string]*expr.Program // by "variables.name"
	checks     []check
}

type check struct {
	*ValidationCheck
	program *expr.Program
	message *expr.Program
}

func newValidation(r *Validation) (*admissionRule, error) {
	v := &admissionRule{Validation: r, variables: map[string]*expr.Program{}, params: celtype.Dynamic.Value(nil)}
	if len(r.Params) > 0 {
		var value any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(r.Params, &value); err != nil {
			return nil, err
		}
		v.params = celtype.OfValue("stele.Params", value).Value(value)
	}
	var err error
	load := func(e *Expression) *expr.Program {
		program, loadErr := expr.Load(e.Checked, e.Text)
		err = errors.Join(err, loadErr)
		return program
	}
	selector := func(s *metav1.LabelSelector) labels.Selector {
		if s == nil {
			return labels.Everything()
		}
		parsed, parseErr := metav1.LabelSelectorAsSelector(s)
		err = errors.Join(err, parseErr)
		return parsed
	}
	v.namespaces, v.objects = selector(r.Match.NamespaceSelector), selector(r.Match.ObjectSelector)
	for i := range r.Match.Conditions {
		v.conditions = append(v.conditions, load(&r.Match.Conditions[i].Expression))
	}
	for i := range r.Variables {
		v.variables[expr.VarVariables+r.Variables[i].Name] = load(&r.Variables[i].Expression)
	}
	for i := range r.Validations {
		c := check{ValidationCheck: &r.Validations[i], program: load(&r.Validations[i].Expression)}
		if c.MessageExpression != nil {
			c.message = load(c.MessageExpression)
		}
		v.checks = append(v.checks, c)
	}
	return v, err
}

// indexAdmission gives each version the rules about it: what a write costs does not
// depend on rules for other kinds.
func (p *Policy) indexAdmission(rules []Validation) error {
	for i := range rules {
		rule, err := newValidation(&rules[i])
		if err != nil {
			return fmt.Errorf("policy: %s: %w", rules[i].ID, err)
		}
		for _, k := range p.kinds {
			for _, v := range k.Versions {
				for _, subresource := range []string{"", "status", "scale"} {
					if !v.Serves(subresource) {
						continue
					}
					as := rule.Match.version(v, subresource)
					if as == nil {
						continue
					}
					for _, operation := range []Operation{Create, Update, Delete} {
						if slices.Contains(rule.Match.Operations, string(operation)) || slices.Contains(rule.Match.Operations, "*") {
							key := admissionKey{subresource, operation}
							v.admission[key] = append(v.admission[key], matchedRule{rule, as})
						}
					}
				}
			}
		}
	}
	return nil
}

// version is the one in which a rule sees objects that are written in a version of their
// kind, nil if it is not about them: that version, if the rule names it, else another one
// that it names, of the same kind or of one that has the same objects, as with upstream's
// matchPolicy Equivalent.
func (m *Match) version(v *Version, subresource string) *Version {
	if m.resource(v, subresource) {
		return v
	}
	for _, other := range v.Kind.Versions {
		if other.Served && other.Serves(subresource) && m.resource(other, subresource) {
			return other
		}
	}
	for _, k := range v.Kind.Equivalent {
		for _, other := range k.Versions {
			if other.Served && m.resource(other, subresource) {
				return other
			}
		}
	}
	return nil
}

// resource tells whether a rule is about a resource, by upstream's rules: "*" is any but
// no subresource, "*/*" and "widgets/*" are any subresource, too.
func (m *Match) resource(v *Version, subresource string) bool {
	has := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, "*")
	}
	if !has(m.APIGroups, v.Kind.Group) || !has(m.APIVersions, v.Name) {
		return false
	}
	return slices.ContainsFunc(m.Resources, func(r string) bool {
		resource, sub, _ := strings.Cut(r, "/")
		return (resource == "*" || resource == v.Kind.Plural) && (sub == subresource || sub == "*")
	})
}

// evaluate adds what a rule finds wrong.
func (r *admissionRule) evaluate(vars *admissionVars, findings []Finding) []Finding {
	ctx, a := vars.ctx, vars.a
	if !r.selects(vars.v, a) {
		a.consider(r.ID, r.Source.String(), "does not select it")
		return findings
	}
	var broken *Finding // a condition that cannot be evaluated, unless another one is not met
	for i, c := range r.conditions {
		at := &r.Match.Conditions[i]
		switch met, err := c.Bool(ctx, vars, &vars.budget); {
		case err != nil && broken == nil:
			broken = &Finding{Rule: r.ID, Source: at.Source.String(), Actions: r.Actions, Reason: metav1.StatusReasonInvalid, Message: "condition " + at.Name + ": " + err.Error()}
		case err == nil && !met:
			a.consider(r.ID, at.Source.String(), "its condition "+at.Name+" does not hold")
			return findings
		}
	}
	if broken != nil {
		a.consider(r.ID, broken.Source, "its condition cannot be evaluated")
		return append(findings, *broken)
	}
	for i := range r.checks {
		c := &r.checks[i]
		holds, err := c.program.Bool(ctx, vars, &vars.budget)
		if holds && err == nil {
			a.consider(c.ID, c.Source.String(), "holds")
			continue
		}
		a.consider(c.ID, c.Source.String(), "does not hold")
		f := Finding{Rule: c.ID, Source: c.Source.String(), Actions: r.Actions, Reason: metav1.StatusReason(c.Reason)}
		switch {
		case err != nil:
			f.Message = err.Error()
		case c.message != nil:
			f.Message = c.message.Message(ctx, vars, &vars.budget)
		}
		if f.Message == "" {
			f.Message = strings.TrimSpace(c.Message)
		}
		if f.Message == "" {
			f.Message = "failed expression: " + strings.TrimSpace(c.Expression.Text)
		}
		findings = append(findings, f)
	}
	return findings
}

func (a *Admission) consider(rule, source, verdict string) {
	if a.Considered != nil {
		a.Considered(Considered{Rule: rule, Source: source, Verdict: verdict})
	}
}

// selects tells whether the rule's selectors name the write: that of objects the object
// as it is or as it was, that of namespaces its namespace, and of namespaces themselves.
func (r *admissionRule) selects(v *Version, a *Admission) bool {
	if r.Match.ObjectSelector != nil && !labelled(r.objects, a.Object) && !labelled(r.objects, a.Old) {
		return false
	}
	if r.Match.NamespaceSelector == nil {
		return true
	}
	if v.Kind.Group == "" && v.Kind.Plural == "namespaces" {
		if a.Object != nil {
			return labelled(r.namespaces, a.Object)
		}
		return labelled(r.namespaces, a.Old)
	}
	if !v.Kind.Namespaced {
		return true
	}
	return labelled(r.namespaces, a.inNamespace())
}

func labelled(s labels.Selector, o *Object) bool {
	return o != nil && s.Matches(labels.Set(o.Meta.Labels))
}

// AskedNamespace tells whether a rule looked at the namespace.
func (a *Admission) AskedNamespace() bool { return a.hasAsked }

func (a *Admission) inNamespace() *Object {
	if !a.hasAsked {
		a.asked, a.hasAsked = a.Namespace(), true
	}
	return a.asked
}

// admissionVars are what a rule's expressions can name.
type admissionVars struct {
	ctx    context.Context
	p      *Policy
	v      *Version // of the request
	as     *Version // in which objects are seen
	a      *Admission
	r      *admissionRule
	budget expr.Budget
	known  map[string]any // variables that were evaluated
}

// see makes the version one in which expressions see objects.
func (v *admissionVars) see(as *Version) {
	if v.as != as {
		v.as = as
		v.a.object, v.a.old, v.a.request = nil, nil, nil
	}
}

// seen is an object of the request as expressions see it.
func (v *admissionVars) seen(o *Object) any {
	if o != nil && v.as.Kind != v.v.Kind {
		o = &Object{Meta: o.Meta, Content: v.v.Kind.Convert(o.Content, v.as.Kind)}
	}
	return v.as.Seen(v.a.Request.Subresource).value(o)
}

func (v *admissionVars) Parent() interpreter.Activation { return nil }

func (v *admissionVars) ResolveName(name string) (any, bool) {
	once := func(at *any, make func() any) (any, bool) {
		if *at == nil {
			*at = make()
		}
		return *at, true
	}
	switch name {
	case expr.VarObject:
		return once(&v.a.object, func() any { return v.seen(v.a.Object) })
	case expr.VarOldObject:
		return once(&v.a.old, func() any { return v.seen(v.a.Old) })
	case expr.VarRequest:
		return once(&v.a.request, func() any { return expr.AdmissionType.Value(v.a.fields(v.v, v.as)) })
	case expr.VarNamespace:
		return once(&v.a.namespace, func() any { return v.p.namespaceValue(v.a.inNamespace()) })
	case expr.VarParams:
		return v.r.params, true
	case "authorizer":
		return library.NewAuthorizerVal(v.a.Request.userInfo(), v.p.Authorizer()), true
	case "authorizer.requestResource":
		return library.NewResourceAuthorizerVal(v.a.Request.userInfo(), v.p.Authorizer(), requestResource{v.a.Request}), true
	}
	program := v.r.variables[name]
	if program == nil {
		return nil, false
	}
	value, ok := v.known[name]
	if !ok {
		result, err := program.Eval(v.ctx, v, &v.budget)
		if value = result; err != nil {
			value = types.WrapErr(err)
		}
		if v.known == nil {
			v.known = map[string]any{}
		}
		v.known[name] = value
	}
	return value, true
}

// fields are what admission rules see of the request: the version as which they see the
// object, and as request... the one that was asked for.
func (a *Admission) fields(v, as *Version) map[string]any {
	fields := a.Request.fields()
	kind := func(v *Version) map[string]any {
		v = v.Seen(a.Request.Subresource)
		return map[string]any{"group": v.Kind.Group, "version": v.Name, "kind": v.Kind.Kind.Kind}
	}
	fields["operation"], fields["dryRun"] = string(a.Operation), a.DryRun
	fields["kind"], fields["requestKind"] = kind(as), kind(v)
	fields["requestResource"], fields["requestSubResource"] = fields["resource"], a.Request.Subresource
	if as != v {
		fields["resource"] = map[string]any{"group": as.Kind.Group, "version": as.Name, "resource": as.Kind.Plural}
	}
	if a.Object != nil && a.Object.Meta.Name != "" {
		fields["name"] = a.Object.Meta.Name
	}
	return fields
}

func (p *Policy) namespaceValue(o *Object) any {
	if o == nil || p.namespaces == nil {
		return celtype.Dynamic.Value(nil)
	}
	return p.namespaces.value(o)
}

func (r *Request) userInfo() user.Info {
	return &user.DefaultInfo{Name: r.User, UID: r.UID, Groups: r.Groups, Extra: r.Extra}
}

// requestResource is what the library asks of the request's resource.
type requestResource struct{ *Request }

func (r requestResource) GetName() string { return r.Name }

func (r requestResource) GetResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

func (r requestResource) GetNamespace() string { return r.Namespace }

func (r requestResource) GetSubresource() string { return r.Subresource }

// Authorizer is the policy as Kubernetes' libraries ask it. What depends on the object is
// not allowed. Each check of an expression asks the whole chain: one that ends in a webhook or a plugin
// takes what that takes, out of the time that expressions have.
func (p *Policy) Authorizer() authorizer.UnconditionalAuthorizer { return asAuthorizer{p} }

type asAuthorizer struct{ p *Policy }

func (a asAuthorizer) Authorize(ctx context.Context, at authorizer.Attributes) (authorizer.Decision, string, error) {
	r := &Request{
		User: at.GetUser().GetName(), UID: at.GetUser().GetUID(), Groups: at.GetUser().GetGroups(), Extra: at.GetUser().GetExtra(),
		Verb: at.GetVerb(), IsResource: at.IsResourceRequest(), Group: at.GetAPIGroup(), Version: at.GetAPIVersion(), Resource: at.GetResource(),
		Subresource: at.GetSubresource(), Namespace: at.GetNamespace(), Name: at.GetName(), Path: at.GetPath(),
	}
	s := &Selectors{}
	s.Fields, s.FieldsError = at.GetFieldSelector()
	s.Labels, s.LabelsError = at.GetLabelSelector()
	if !s.empty() {
		r.Selectors = s
	}
	d := a.p.Authorize(ctx, r)
	switch {
	case d.Denied:
		return authorizer.DecisionDeny, d.Reason, nil
	case d.Allowed:
		return authorizer.DecisionAllow, d.Reason, nil
	}
	return authorizer.DecisionNoOpinion, d.Reason, nil
}
