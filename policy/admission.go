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

// Operation is the kind of write, as admission rules name it.
type Operation string

// Operations of admission rules.
const (
	Create Operation = "CREATE"
	Update Operation = "UPDATE"
	Delete Operation = "DELETE"
)

// Admission is a write that admission rules check. It must be used by one goroutine only.
type Admission struct {
	Request   *Request
	Operation Operation
	DryRun    bool
	// Object is the object to be written, nil for a delete. Old is the current object, nil for a
	// create. For requests to the scale subresource both are Scales.
	Object, Old *Object
	// Namespace returns the object's namespace, or nil if it has none. It is called at most once.
	Namespace func() *Object
	// Considered, if not nil, is called with each rule and its verdict.
	Considered func(Considered)

	object, old, request, namespace any // as CEL values
	asked                           *Object
	hasAsked                        bool
}

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

// Admit returns the failed admission validations of a write, in the order of their ids. A rule that
// cannot be evaluated counts as failed.
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

// Admits reports whether an admission rule applies to such writes.
func (v *Version) Admits(subresource string, operation Operation) bool {
	return len(v.admission[admissionKey{subresource, operation}]) > 0
}

// admissionKey is the key of a version's admission rules.
type admissionKey struct {
	subresource string
	operation   Operation
}

// matchedRule is an admission rule that applies to a version, and the version in which it sees
// objects.
type matchedRule struct {
	*admissionRule
	as *Version
}

// admissionRule is a Validation with its expressions loaded.
type admissionRule struct {
	*Validation
	params     any // as a CEL value
	namespaces labels.Selector
	objects    labels.Selector
	conditions []*expr.Program
	variables  map[string]*expr.Program // keyed by "variables.name"
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

// indexAdmission gives each version its admission rules, so that a write does not get slower with
// rules for other kinds.
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

// version returns the version in which a rule sees objects that are written as v, or nil if the rule
// does not apply. It is v if the rule names v; otherwise another version of the kind, or of an
// equivalent kind, as with matchPolicy Equivalent in Kubernetes.
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

// resource reports whether the rule names a resource. As in Kubernetes, "*" is any resource without
// subresources; "*/*" and "widgets/*" include subresources.
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

// evaluate appends the rule's findings.
func (r *admissionRule) evaluate(vars *admissionVars, findings []Finding) []Finding {
	ctx, a := vars.ctx, vars.a
	if !r.selects(vars.v, a) {
		a.consider(r.ID, r.Source.String(), "does not select it")
		return findings
	}
	var broken *Finding // the first match condition that failed to evaluate, unless another condition is false
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
			a.consider(c.ID, c.Source.String(), VerdictHolds)
			continue
		}
		a.consider(c.ID, c.Source.String(), VerdictFails)
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

// selects reports whether the rule's selectors match a write. The object selector matches the new or
// the old object. The namespace selector matches the object's namespace, or the object itself if it
// is a namespace.
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

// AskedNamespace reports whether a rule read the namespace.
func (a *Admission) AskedNamespace() bool { return a.hasAsked }

func (a *Admission) inNamespace() *Object {
	if !a.hasAsked {
		a.asked, a.hasAsked = a.Namespace(), true
	}
	return a.asked
}

// admissionVars are the CEL variables of an admission rule.
type admissionVars struct {
	ctx    context.Context
	p      *Policy
	v      *Version // of the request
	as     *Version // in which expressions see objects
	a      *Admission
	r      *admissionRule
	budget expr.Budget
	known  map[string]any // variables evaluated so far
}

// see sets the version in which expressions see objects.
func (v *admissionVars) see(as *Version) {
	if v.as != as {
		v.as = as
		v.a.object, v.a.old, v.a.request = nil, nil, nil
	}
}

// seen returns an object of the request as a CEL value.
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

// fields returns the CEL variable "request". as is the version in which the rule sees the object;
// v is the version that the client requested.
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

// requestResource adapts a request to the interface of Kubernetes' CEL library.
type requestResource struct{ *Request }

func (r requestResource) GetName() string { return r.Name }

func (r requestResource) GetResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

func (r requestResource) GetNamespace() string { return r.Namespace }

func (r requestResource) GetSubresource() string { return r.Subresource }

// Authorizer returns the policy as an authorizer of k8s.io/apiserver. It does not allow requests
// whose decision depends on the object. Each check of a CEL expression asks the whole chain; the
// time of webhooks and plugins counts towards the expression's time limit.
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

// AdmissionRules returns the rules that apply to writes of a subresource, in the order of their ids. The caller must not
// change them.
func (v *Version) AdmissionRules(subresource string, operation Operation) (rules []*Validation) {
	for _, r := range v.admission[admissionKey{subresource, operation}] {
		rules = append(rules, r.Validation)
	}
	return rules
}
