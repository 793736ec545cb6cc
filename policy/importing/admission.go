package importing

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// admission imports ValidatingAdmissionPolicies, each with its bindings and params, and webhooks.
func (m *importer) admission() error {
	var rules fields
	taken := map[string]bool{}
	bound := map[string]bool{}
	for _, o := range m.of("ValidatingAdmissionPolicy") {
		var p admissionv1.ValidatingAdmissionPolicy
		if err := o.decode(&p); err != nil {
			return err
		}
		n := 0
		for _, b := range m.of("ValidatingAdmissionPolicyBinding") {
			if textAt(b.content, "spec", "policyName") != p.Name {
				continue
			}
			n++
			bound[b.name()] = true
			var binding admissionv1.ValidatingAdmissionPolicyBinding
			if err := b.decode(&binding); err != nil {
				return err
			}
			for _, rule := range m.validation(o, b, &p, &binding) {
				rules = append(rules, member{unique(taken, nameFor(p.Name)), rule})
			}
		}
		if n == 0 {
			m.note(o, nil, "the policy %q is left out: no binding of it is in the input, so that it has no effect", p.Name)
		}
	}
	for _, b := range m.of("ValidatingAdmissionPolicyBinding") {
		if !bound[b.name()] {
			m.note(b, []string{"spec", "policyName"}, "the binding %q is left out: its policy %q is not in the input", b.name(), textAt(b.content, "spec", "policyName"))
		}
	}
	if len(rules) > 0 {
		m.counts["rules"] = len(rules)
		m.parts = append(m.parts, part{file: "admission.cue", text: m.team("admission: validate: ") + structText(rules) + "\n"})
	}
	return m.webhooks()
}

// validation returns a policy under a binding as rules: one for each of its resource rules and params.
func (m *importer) validation(o, b *object, p *admissionv1.ValidatingAdmissionPolicy, binding *admissionv1.ValidatingAdmissionPolicyBinding) (rules []fields) {
	refuse := func(at *object, path []string, why string) []fields {
		m.note(at, path, "the policy %q under the binding %q is left out: %s", p.Name, binding.Name, why)
		return nil
	}
	match := p.Spec.MatchConstraints
	switch {
	case match == nil || len(match.ResourceRules) == 0:
		return refuse(o, []string{"spec", "matchConstraints"}, "it matches no resources")
	}
	more := binding.Spec.MatchResources
	if more != nil && (len(more.ResourceRules) > 0 || len(more.ExcludeResourceRules) > 0) {
		return refuse(b, []string{"spec", "matchResources"}, "a binding that matches other resources than its policy")
	}
	namespaces, objects := match.NamespaceSelector, match.ObjectSelector
	if more != nil {
		var ok1, ok2 bool
		namespaces, ok1 = both(namespaces, more.NamespaceSelector)
		objects, ok2 = both(objects, more.ObjectSelector)
		if !ok1 || !ok2 {
			return refuse(b, []string{"spec", "matchResources"}, "selectors of policy and binding that contradict each other")
		}
	}
	params, why := m.params(p, binding)
	if why != "" {
		return refuse(b, []string{"spec", "paramRef"}, why)
	}
	for _, param := range params {
		for i := range match.ResourceRules {
			f := fields{{"match", matchOf(p, &match.ResourceRules[i], namespaces, objects)}}
			f = append(f, param...)
			rules = append(rules, append(f, checksOf(p, binding)...))
		}
	}
	return rules
}

// both returns a selector of what two selectors select; false if nothing can be.
func both(a, b *metav1.LabelSelector) (*metav1.LabelSelector, bool) {
	if a == nil || b == nil {
		if a == nil {
			a = b
		}
		return a, true
	}
	s := &metav1.LabelSelector{MatchLabels: maps.Clone(a.MatchLabels), MatchExpressions: slices.Concat(a.MatchExpressions, b.MatchExpressions)}
	for k, v := range b.MatchLabels {
		if old, ok := s.MatchLabels[k]; ok && old != v {
			return nil, false
		}
		if s.MatchLabels == nil {
			s.MatchLabels = map[string]string{}
		}
		s.MatchLabels[k] = v
	}
	return s, true
}

func matchOf(p *admissionv1.ValidatingAdmissionPolicy, r *admissionv1.NamedRuleWithOperations, namespaces, objects *metav1.LabelSelector) fields {
	match := fields{{"apiGroups", r.APIGroups}}
	if !slices.Contains(r.APIVersions, "*") {
		match.add("apiVersions", r.APIVersions)
	}
	match.add("resources", r.Resources)
	var operations []string
	for _, x := range r.Operations {
		operations = append(operations, string(x))
	}
	if !slices.Equal(operations, []string{"CREATE", "UPDATE"}) {
		match.add("operations", operations)
	}
	match.add("resourceNames", r.ResourceNames)
	match.add("scope", scopeOf(r))
	if p := p.Spec.MatchConstraints.MatchPolicy; p != nil && *p == admissionv1.Exact {
		match.add("matchPolicy", string(*p))
	}
	match.add("excludeResourceRules", excludesOf(p))
	for _, x := range []struct {
		name     string
		selector *metav1.LabelSelector
	}{{"namespaceSelector", namespaces}, {"objectSelector", objects}} {
		if x.selector != nil && len(x.selector.MatchLabels)+len(x.selector.MatchExpressions) > 0 {
			match = append(match, member{x.name, plain(x.selector)})
		}
	}
	var conditions fields
	taken := map[string]bool{}
	for _, c := range p.Spec.MatchConditions {
		conditions = append(conditions, member{unique(taken, nameFor(c.Name)), c.Expression})
	}
	match.add("conditions", conditions)
	return match
}

// scopeOf returns the scope of a rule; "" for all.
func scopeOf(r *admissionv1.NamedRuleWithOperations) string {
	if r.Scope == nil || *r.Scope == admissionv1.AllScopes {
		return ""
	}
	return string(*r.Scope)
}

func excludesOf(p *admissionv1.ValidatingAdmissionPolicy) (rules fields) {
	for i := range p.Spec.MatchConstraints.ExcludeResourceRules {
		r := &p.Spec.MatchConstraints.ExcludeResourceRules[i]
		f := fields{{"apiGroups", r.APIGroups}}
		if !slices.Contains(r.APIVersions, "*") {
			f.add("apiVersions", r.APIVersions)
		}
		f.add("resources", r.Resources)
		var operations []string
		for _, x := range r.Operations {
			operations = append(operations, string(x))
		}
		f.add("operations", operations)
		f.add("resourceNames", r.ResourceNames)
		f.add("scope", scopeOf(r))
		rules = append(rules, member{fmt.Sprintf("exclude-%d", i+1), f})
	}
	return rules
}

func checksOf(p *admissionv1.ValidatingAdmissionPolicy, binding *admissionv1.ValidatingAdmissionPolicyBinding) (f fields) {
	var variables, checks fields
	for _, v := range p.Spec.Variables {
		variables = append(variables, member{v.Name, v.Expression})
	}
	f.add("variables", variables)
	for i, v := range p.Spec.Validations {
		check := fields{{"expression", v.Expression}}
		check.add("message", v.Message)
		check.add("messageExpression", v.MessageExpression)
		if v.Reason != nil && *v.Reason != metav1.StatusReasonInvalid {
			check.add("reason", string(*v.Reason))
		}
		checks = append(checks, member{fmt.Sprintf("check-%d", i+1), check})
	}
	f = append(f, member{"validations", checks})
	var actions []string
	for _, a := range binding.Spec.ValidationActions {
		actions = append(actions, string(a))
	}
	if !slices.Equal(actions, []string{"Deny"}) {
		f.add("validationActions", actions)
	}
	if failure := p.Spec.FailurePolicy; failure != nil && *failure == admissionv1.Ignore {
		f.add("failurePolicy", string(*failure))
	}
	var annotations fields
	for _, a := range p.Spec.AuditAnnotations {
		annotations = append(annotations, member{a.Key, fields{{"valueExpression", a.ValueExpression}}})
	}
	f.add("auditAnnotations", annotations)
	return f
}

// plain returns a value as decoded JSON.
func plain(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		return nil
	}
	return out
}

// params returns what a rule has of its params, once for each: as constants if the objects are in the input, or else as the
// objects of the server that the binding names. It returns why that is not possible.
func (m *importer) params(p *admissionv1.ValidatingAdmissionPolicy, binding *admissionv1.ValidatingAdmissionPolicyBinding) ([]fields, string) {
	kind, ref := p.Spec.ParamKind, binding.Spec.ParamRef
	if kind == nil {
		return []fields{nil}, ""
	}
	if ref == nil {
		return nil, "it has a paramKind, and the binding has no paramRef"
	}
	selector := labels.Nothing()
	if ref.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(ref.Selector); err != nil {
			return nil, err.Error()
		}
	}
	var list []fields
	for _, o := range m.objects {
		if o.kind() != kind.Kind || textAt(o.content, "apiVersion") != kind.APIVersion || o.namespace() != "" && ref.Namespace == "" || ref.Namespace != "" && o.namespace() != ref.Namespace {
			continue
		}
		set := labels.Set{}
		written, _ := o.at("metadata", "labels").(map[string]any)
		for k, v := range written {
			set[k] = text(v)
		}
		if ref.Name != "" && o.name() == ref.Name || ref.Selector != nil && selector.Matches(set) {
			param := fields{}
			for _, k := range slices.Sorted(maps.Keys(o.content)) {
				if !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, k) {
					param = append(param, member{k, o.content[k]})
				}
			}
			list = append(list, fields{{"params", param}})
		}
	}
	if len(list) == 0 {
		list = append(list, fields{{"paramKind", fields{{"apiVersion", kind.APIVersion}, {"kind", kind.Kind}}}, {"paramRef", refOf(ref)}})
	}
	return list, ""
}

func refOf(ref *admissionv1.ParamRef) (f fields) {
	f.add("name", ref.Name)
	if ref.Selector != nil {
		f = append(f, member{"selector", plain(ref.Selector)})
	}
	f.add("namespace", ref.Namespace)
	action := admissionv1.DenyAction // if it is not said, kube-apiserver refuses the binding
	if ref.ParameterNotFoundAction != nil {
		action = *ref.ParameterNotFoundAction
	}
	return append(f, member{"parameterNotFoundAction", string(action)})
}
