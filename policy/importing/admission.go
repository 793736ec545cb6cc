package importing

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// admissionPolicy is what a ValidatingAdmissionPolicy and a MutatingAdmissionPolicy have in common.
type admissionPolicy struct {
	name       string
	paramKind  *admissionv1.ParamKind
	match      *admissionv1.MatchResources
	conditions []admissionv1.MatchCondition
	variables  []admissionv1.Variable
	failure    *admissionv1.FailurePolicyType
}

// admissionBinding is what the bindings of both have in common.
type admissionBinding struct {
	name     string
	paramRef *admissionv1.ParamRef
	match    *admissionv1.MatchResources
}

// admission imports mutating and validating policies, each with its bindings and params, and webhooks.
func (m *importer) admission() error {
	if err := m.mutations(); err != nil {
		return err
	}
	var rules fields
	taken := map[string]bool{}
	err := m.bound("ValidatingAdmissionPolicy", func(o, b *object) error {
		var p admissionv1.ValidatingAdmissionPolicy
		var binding admissionv1.ValidatingAdmissionPolicyBinding
		if err := errors.Join(o.decode(&p), b.decode(&binding)); err != nil {
			return err
		}
		of := &admissionPolicy{p.Name, p.Spec.ParamKind, p.Spec.MatchConstraints, p.Spec.MatchConditions, p.Spec.Variables, p.Spec.FailurePolicy}
		to := &admissionBinding{binding.Name, binding.Spec.ParamRef, binding.Spec.MatchResources}
		for _, rule := range m.rulesOf(o, b, of, to, false) {
			rules = append(rules, member{unique(taken, nameFor(p.Name)), from(append(rule, m.checksOf(o, &p, &binding)...), o)})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if rules, err = m.dynamic("validate", rules); err != nil {
		return err
	}
	if len(rules) > 0 {
		m.counts["rules"] = len(rules)
		m.write("admission.cue", m.ofTeam("admission", "validate"), rules)
	}
	return m.webhooks()
}

// bound calls a function with each policy of a kind and each of its bindings, by their names. It notes those that have no
// effect, because a policy has no binding, or a binding no policy.
func (m *importer) bound(kind string, each func(policy, binding *object) error) error {
	named := map[string]bool{}
	byName := func(a, b *object) int { return cmp.Compare(a.name(), b.name()) }
	bindings := slices.SortedStableFunc(slices.Values(m.objectsOf(kind+"Binding")), byName)
	for _, o := range slices.SortedStableFunc(slices.Values(m.objectsOf(kind)), byName) {
		n := 0
		for _, b := range bindings {
			if textAt(b.content, "spec", "policyName") != o.name() {
				continue
			}
			n++
			if err := each(o, b); err != nil {
				return err
			}
		}
		named[o.name()] = true
		if n == 0 {
			m.note(o, nil, "the policy %q is left out: no binding of it is in the input, so that it has no effect", o.name())
		}
	}
	for _, b := range bindings {
		if name := textAt(b.content, "spec", "policyName"); !named[name] {
			m.note(b, []string{"spec", "policyName"}, "the binding %q is left out: its policy %q is not in the input", b.name(), name)
		}
	}
	return nil
}

// rulesOf returns what rules of the bundle have of a policy under a binding: what they match, params and variables. There is
// a rule for each of the policy's resource rules and each of its params. mutates says that the rules change objects, so that no
// two of a policy may be about the same requests.
func (m *importer) rulesOf(o, b *object, p *admissionPolicy, binding *admissionBinding, mutates bool) (rules []fields) {
	refuse := func(at *object, path []string, why string) []fields {
		m.note(at, path, "the policy %q under the binding %q is left out: %s", p.name, binding.name, why)
		return nil
	}
	if p.match == nil || len(p.match.ResourceRules) == 0 {
		return refuse(o, []string{"spec", "matchConstraints"}, "it matches no resources")
	}
	more := binding.match
	namespaces, objects := p.match.NamespaceSelector, p.match.ObjectSelector
	if more != nil {
		var ok1, ok2 bool
		namespaces, ok1 = intersection(namespaces, more.NamespaceSelector)
		objects, ok2 = intersection(objects, more.ObjectSelector)
		if !ok1 || !ok2 {
			return refuse(b, []string{"spec", "matchResources"}, "selectors of policy and binding that contradict each other")
		}
	}
	params, why := m.params(p, binding)
	if why != "" {
		return refuse(b, []string{"spec", "paramRef"}, why)
	}
	var variables fields
	for i, v := range p.variables {
		variables = append(variables, member{v.Name, from(v.Expression, o, "spec", "variables", fmt.Sprint(i))})
	}
	matched := p.match.ResourceRules
	if more != nil && len(more.ResourceRules) > 0 {
		exact := isExact(p.match)
		if exact != isExact(more) {
			return refuse(b, []string{"spec", "matchResources", "matchPolicy"}, "policy and binding have resource rules with different matchPolicies")
		}
		if matched = intersections(matched, more.ResourceRules, exact); len(matched) == 0 {
			return refuse(b, []string{"spec", "matchResources"}, "it matches nothing that its policy matches")
		}
	}
	matched = m.matchedRules(o, p.name, matched)
	if mutates && len(matched) > 0 {
		if matched = m.mutatedRules(o, p, matched); len(matched) == 0 {
			return refuse(o, []string{"spec", "matchConstraints"}, "it matches no writes that have an object")
		}
	}
	for _, param := range params {
		for i := range matched {
			others := p.match.ExcludeResourceRules
			if more != nil {
				others = slices.Concat(others, earlier(more.ExcludeResourceRules, &matched[i]))
			}
			if mutates {
				others = slices.Concat(others, earlier(matched[:i], &matched[i]))
			}
			f := fields{{"match", m.matchOf(o, p, &matched[i], others, namespaces, objects)}}
			f = append(f, param...)
			f.add("variables", variables)
			if p.failure != nil && *p.failure == admissionv1.Ignore {
				f.add("failurePolicy", string(*p.failure))
			}
			rules = append(rules, f)
		}
	}
	return rules
}

// matchedRules returns the resource rules of a policy without what no kind has, and notes that.
func (m *importer) matchedRules(o *object, policy string, rules []admissionv1.NamedRuleWithOperations) (list []admissionv1.NamedRuleWithOperations) {
	for i := range rules {
		r := *rules[i].DeepCopy()
		what := fmt.Sprintf("resource rule %d of the policy %q", i+1, policy)
		n, versions := m.matched(o, what, names{r.APIGroups, r.Resources}, r.APIVersions, "spec", "matchConstraints", "resourceRules", fmt.Sprint(i))
		if r.APIGroups, r.Resources, r.APIVersions = n.groups, n.resources, versions; len(n.resources) > 0 {
			list = append(list, r)
		}
	}
	return list
}

// intersection returns a selector of what two selectors select; false if nothing can be.
func intersection(a, b *metav1.LabelSelector) (*metav1.LabelSelector, bool) {
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

// matchOf returns the match of a rule. It leaves out what others match.
func (m *importer) matchOf(o *object, p *admissionPolicy, r *admissionv1.NamedRuleWithOperations, others []admissionv1.NamedRuleWithOperations, namespaces, objects *metav1.LabelSelector) fields {
	match := fields{{"apiGroups", r.APIGroups}}
	if !slices.Contains(r.APIVersions, "*") {
		match.add("apiVersions", r.APIVersions)
	}
	match.add("resources", r.Resources)
	if operations := operationsOf(r.Operations); !slices.Equal(operations, []string{"CREATE", "UPDATE"}) {
		match.add("operations", operations)
	}
	match.add("resourceNames", r.ResourceNames)
	match.add("scope", scopeOf(r))
	if isExact(p.match) {
		match.add("matchPolicy", string(admissionv1.Exact))
	}
	match.add("excludeResourceRules", excludesOf(others))
	match.addSelector("namespaceSelector", namespaces)
	match.addSelector("objectSelector", objects)
	match.add("conditions", conditionsOf(o, p.conditions, "spec", "matchConditions"))
	return match
}

func isExact(m *admissionv1.MatchResources) bool {
	return m.MatchPolicy != nil && *m.MatchPolicy == admissionv1.Exact
}

// addSelector adds a selector, unless it selects everything.
func (f *fields) addSelector(name string, s *metav1.LabelSelector) {
	if s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		*f = append(*f, member{name, plain(s)})
	}
}

// conditionsOf returns match conditions by name.
func conditionsOf(o *object, list []admissionv1.MatchCondition, path ...string) (conditions fields) {
	taken := map[string]bool{}
	for i, c := range list {
		conditions = append(conditions, member{unique(taken, nameFor(c.Name)), from(c.Expression, o, append(slices.Clip(path), fmt.Sprint(i))...)})
	}
	return conditions
}

// scopeOf returns the scope of a rule; "" for all.
func scopeOf(r *admissionv1.NamedRuleWithOperations) string {
	if r.Scope == nil || *r.Scope == admissionv1.AllScopes {
		return ""
	}
	return string(*r.Scope)
}

func excludesOf(excluded []admissionv1.NamedRuleWithOperations) (rules fields) {
	for i := range excluded {
		r := &excluded[i]
		f := fields{{"apiGroups", r.APIGroups}}
		if !slices.Contains(r.APIVersions, "*") {
			f.add("apiVersions", r.APIVersions)
		}
		f.add("resources", r.Resources)
		f.add("operations", operationsOf(r.Operations))
		f.add("resourceNames", r.ResourceNames)
		f.add("scope", scopeOf(r))
		rules = append(rules, member{fmt.Sprintf("exclude-%d", i+1), f})
	}
	return rules
}

func operationsOf(list []admissionv1.OperationType) (operations []string) {
	for _, x := range list {
		operations = append(operations, string(x))
	}
	return operations
}

func (m *importer) checksOf(o *object, p *admissionv1.ValidatingAdmissionPolicy, binding *admissionv1.ValidatingAdmissionPolicyBinding) (f fields) {
	var checks fields
	for i, v := range p.Spec.Validations {
		check := fields{{"expression", v.Expression}}
		check.add("message", v.Message)
		check.add("messageExpression", v.MessageExpression)
		if v.Reason != nil && *v.Reason != metav1.StatusReasonInvalid {
			check.add("reason", string(*v.Reason))
		}
		checks = append(checks, member{fmt.Sprintf("check-%d", i+1), from(check, o, "spec", "validations", fmt.Sprint(i))})
	}
	f = append(f, member{"validations", checks})
	var actions []string
	for _, a := range binding.Spec.ValidationActions {
		actions = append(actions, string(a))
	}
	if !slices.Equal(actions, []string{"Deny"}) {
		f.add("validationActions", actions)
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
func (m *importer) params(p *admissionPolicy, binding *admissionBinding) ([]fields, string) {
	kind, ref := p.paramKind, binding.paramRef
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
		written, _ := o.part("metadata", "labels").(map[string]any)
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
