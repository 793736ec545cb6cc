package layer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas/brought"
	"stele.dev/stele/schemas/celtype"
)

// webhooksOf returns the webhooks of a configuration as JSON.
func webhooksOf(x *Stored) ([]admissionv1.MutatingWebhook, error) {
	if x.Resource == brought.MutatingWebhooks.GroupResource() {
		o, err := brought.Decode[admissionv1.MutatingWebhookConfiguration](x.JSON)
		return brought.Mutating(o), err
	}
	o, err := brought.Decode[admissionv1.ValidatingWebhookConfiguration](x.JSON)
	return brought.Validating(o), err
}

// hooksOf returns the webhooks of a stored configuration. A condition that cannot be compiled is one that fails, so that the failure policy of the webhook decides;
// the error names it.
func hooksOf(x *Stored) (list []policy.Reviewer, failed error) {
	hooks, err := webhooksOf(x)
	if err != nil {
		return nil, err
	}
	for i := range hooks {
		r, err := hookOf(x, &hooks[i])
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("webhook %q: %w", hooks[i].Name, err))
		}
		list = append(list, *r)
	}
	return list, failed
}

// failing is a condition that compiles and cannot be evaluated.
const failing = "[true][1]"

func hookOf(x *Stored, h *admissionv1.MutatingWebhook) (r *policy.Reviewer, failed error) {
	r = &policy.Reviewer{
		ID: nameOf(x) + "/" + h.Name, Mutating: x.Resource == brought.MutatingWebhooks.GroupResource(), NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector,
		Exact: ptr.Deref(h.MatchPolicy, "") == admissionv1.Exact, Ignore: ptr.Deref(h.FailurePolicy, "") == admissionv1.Ignore,
		Timeout: time.Duration(ptr.Deref(h.TimeoutSeconds, 10)) * time.Second, SideEffects: string(ptr.Deref(h.SideEffects, policy.SideEffectsSome)),
		Again:   ptr.Deref(h.ReinvocationPolicy, "") == admissionv1.IfNeededReinvocationPolicy,
		Webhook: &policy.WebhookClient{URL: ptr.Deref(h.ClientConfig.URL, ""), CABundle: string(h.ClientConfig.CABundle)}, Configuration: x.Name, Source: x.at(),
	}
	if s := h.ClientConfig.Service; s != nil {
		r.Webhook.Service = &policy.WebhookService{Namespace: s.Namespace, Name: s.Name, Path: ptr.Deref(s.Path, ""), Port: int(ptr.Deref(s.Port, 443))}
	}
	for i := range h.Rules {
		of := &h.Rules[i]
		rule := policy.ReviewRule{ID: fmt.Sprintf("%s/%d", r.ID, i), APIGroups: of.APIGroups, APIVersions: of.APIVersions, Resources: of.Resources, Source: x.at()}
		if scope := ptr.Deref(of.Scope, admissionv1.AllScopes); scope != admissionv1.AllScopes {
			rule.Scope = string(scope)
		}
		for _, o := range of.Operations {
			rule.Operations = append(rule.Operations, string(o))
		}
		r.Rules = append(r.Rules, rule)
	}
	for _, c := range h.MatchConditions {
		checked, message := conditionOf(c.Expression)
		if message != "" {
			failed = fmt.Errorf("matchCondition %q: %s", c.Name, message)
			if checked, message = conditionOf(failing); message != "" {
				panic(message) // it is always the same
			}
		}
		r.Conditions = append(r.Conditions, policy.Variable{Name: c.Name, Expression: policy.Expression{Text: c.Expression, Checked: checked, Source: x.at()}})
	}
	return r, failed
}

// conditions is the scope of match conditions. As in kube-apiserver they may be about objects of any kind, so that they are checked without schemas.
var conditions = sync.OnceValues(func() (*expr.Scope, error) {
	scope, err := expr.Root().With(map[string]*celtype.Type{
		expr.VarRequest: expr.AdmissionType, expr.VarObject: celtype.Dynamic, expr.VarOldObject: celtype.Dynamic, expr.VarNamespace: celtype.Dynamic,
	})
	if err != nil {
		return nil, err
	}
	return scope.WithAuthorizer()
})

// conditionOf compiles a match condition. message says what is wrong with it; "" if nothing is.
func conditionOf(text string) (checked []byte, message string) {
	scope, err := conditions()
	if err != nil {
		return nil, err.Error()
	}
	c, fault := scope.Compile(text, cel.BoolType)
	if fault != nil {
		message, _ := fault.Explain(text)
		return nil, message
	}
	return c.AST, ""
}

// order sorts the webhooks of a layer as kube-apiserver asks them: by the names of their configurations, and after all that the bundle has. A configuration of the
// bundle hides one of the same name.
func order(f *policy.Form, l *policy.Layer) {
	last, shown := int64(0), map[string]bool{}
	for i := range f.Mutations {
		last = max(last, f.Mutations[i].Order)
	}
	sort := func(r *policy.Reviewer) string { return fmt.Sprint(r.Mutating, " ", r.ShownName()) }
	for i := range f.Reviewers {
		r := &f.Reviewers[i]
		last = max(last, r.Order)
		if r.Webhook != nil {
			shown[sort(r)] = true
		}
	}
	l.Reviewers = slices.DeleteFunc(l.Reviewers, func(r policy.Reviewer) bool { return shown[sort(&r)] })
	slices.SortStableFunc(l.Reviewers, func(a, b policy.Reviewer) int { return cmp.Compare(a.Configuration, b.Configuration) })
	for i := range l.Reviewers {
		if r := &l.Reviewers[i]; r.Mutating {
			last++
			r.Order = last
		}
	}
}

// Check returns why an object that kube-apiserver's validation has accepted cannot be in force here. content is the object without its metadata.
func Check(k *brought.Kind, content map[string]any) (errs field.ErrorList, err error) {
	if k.Section != brought.SectionWebhooks {
		return nil, nil
	}
	text, err := json.Marshal(map[string]any{"webhooks": content["webhooks"]})
	if err != nil {
		return nil, err
	}
	hooks, err := webhooksOf(&Stored{Resource: k.GroupResource(), JSON: text})
	if err != nil {
		return nil, err
	}
	for i := range hooks {
		at := field.NewPath("webhooks").Index(i)
		if c := hooks[i].ClientConfig.CABundle; len(c) > 0 {
			if why := policy.WrongCABundle(string(c)); why != "" {
				errs = append(errs, field.Invalid(at.Child("clientConfig", "caBundle"), field.OmitValueType{}, "unable to load root certificates: "+why))
			}
		}
		for j, c := range hooks[i].MatchConditions {
			if _, message := conditionOf(c.Expression); message != "" {
				errs = append(errs, field.Invalid(at.Child("matchConditions").Index(j).Child("expression"), c.Expression, "compilation failed: "+message))
			}
		}
	}
	return errs, nil
}
