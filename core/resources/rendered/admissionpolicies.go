// This file says rules of admission as policies and bindings of admissionregistration.k8s.io/v1, and shows those of
// the policy in force, so that Kubernetes clients find them. They are rendered from the policy: a policy and a
// binding for each rule. A rule that Kubernetes' policies cannot express is not shown, because one that says less would be wrong.

package rendered

import (
	"cmp"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/catalog/openapi"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/brought"
)

// AdmissionPolicies are the kinds of policies and bindings.
var AdmissionPolicies = []*Kind{
	admissionPolicyKind(admissionv1.ValidatingAdmissionPolicy{}, "validatingadmissionpolicies", validationEntries(false)),
	admissionPolicyKind(admissionv1.ValidatingAdmissionPolicyBinding{}, "validatingadmissionpolicybindings", validationEntries(true)),
	admissionPolicyKind(admissionv1.MutatingAdmissionPolicy{}, "mutatingadmissionpolicies", mutationEntries(false)),
	admissionPolicyKind(admissionv1.MutatingAdmissionPolicyBinding{}, "mutatingadmissionpolicybindings", mutationEntries(true)),
}

// admissionPolicyKind returns the rendered kind of a Go type.
func admissionPolicyKind(object any, plural string, entries func(*policy.Form) []*Entry) *Kind {
	name, content := openapi.Describe(object)
	v := openapi.NewVersion(schemas.Kind{Group: admissionv1.GroupName, Kind: name, Plural: plural, StorageVersion: admissionv1.SchemeGroupVersion.Version}, content)
	v.AllowCreateOnUpdate = true // the error of a refused create names the place in the policy
	part := "admission.validate"
	if strings.HasPrefix(plural, "mutating") {
		part = "admission.mutate"
	}
	return &Kind{Version: v, Type: reflect.TypeOf(object), Entries: entries, Find: ByName(entries), Counted: true, Section: "admissionPolicies", Says: "a rule of admission is", Part: part + " of a team in the bundle"}
}

// validationEntries returns a function that returns the policies of the rules that check objects, or their bindings.
func validationEntries(bindings bool) func(*policy.Form) []*Entry {
	return func(f *policy.Form) (list []*Entry) {
		for i := range f.Validations {
			r := &f.Validations[i]
			if Inexpressible("", r.Objects) != "" {
				continue
			}
			list = append(list, &Entry{Name: PolicyName(r.ID), ID: r.ID, Source: r.Source, Render: func(t metav1.TypeMeta, meta metav1.ObjectMeta) any {
				p, b := ValidatingPolicy(f, r)
				if p.TypeMeta, p.ObjectMeta, b.TypeMeta, b.ObjectMeta = t, meta, t, meta; bindings {
					return b
				}
				p.Spec.MatchConstraints = brought.Complete(p.Spec.MatchConstraints)
				return p
			}})
		}
		return list
	}
}

// mutationEntries returns a function that returns the policies of the rules that change objects, or their bindings.
func mutationEntries(bindings bool) func(*policy.Form) []*Entry {
	return func(f *policy.Form) (list []*Entry) {
		for i := range f.Mutations {
			r := &f.Mutations[i]
			if Inexpressible("", r.Objects) != "" {
				continue
			}
			list = append(list, &Entry{
				Name: PolicyName(r.ID), ID: r.ID, Source: r.Source, Annotations: map[string]string{OrderAnnotation: strconv.FormatInt(r.Order, 10)},
				Render: func(t metav1.TypeMeta, meta metav1.ObjectMeta) any {
					p, b := MutatingPolicy(f, r)
					if p.TypeMeta, p.ObjectMeta, b.TypeMeta, b.ObjectMeta = t, meta, t, meta; bindings {
						return b
					}
					p.Spec.MatchConstraints = brought.Complete(p.Spec.MatchConstraints)
					return p
				},
			})
		}
		slices.SortStableFunc(list, func(a, b *Entry) int { return cmp.Compare(a.Name, b.Name) })
		return list
	}
}

// Inexpressible returns why Kubernetes' policies of a kind cannot say what a rule does; "" if they can.
func Inexpressible(kind string, objects []policy.StoredKind) string {
	if len(objects) > 0 {
		return "it reads other objects, which a " + kind + " cannot"
	}
	return ""
}

// PolicyName returns the name of the policy that a rule is shown and exported as: TEAM.NAME.
func PolicyName(id string) string {
	for _, sort := range []string{"/validate/", "/mutate/"} {
		id = strings.Replace(id, sort, ".", 1)
	}
	return strings.ReplaceAll(id, ":", "-")
}

// ValidatingPolicy returns a rule that checks objects as a policy and its binding.
func ValidatingPolicy(f *policy.Form, v *policy.Validation) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	failure, c := failureOf(v.Ignore), constantsOf(v.Params, v.Variables)
	spec := admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &failure, MatchConstraints: matchOf(&v.Match), MatchConditions: c.conditions(&v.Match), ParamKind: paramKindOf(f, v.ParamSource),
	}
	for _, a := range v.Annotations {
		spec.AuditAnnotations = append(spec.AuditAnnotations, admissionv1.AuditAnnotation{Key: a.Name, ValueExpression: c.text(a.Text)})
	}
	for _, x := range v.Validations {
		reason := metav1.StatusReason(x.Reason)
		check := admissionv1.Validation{Expression: c.text(x.Expression.Text), Message: x.Message, Reason: &reason}
		if x.MessageExpression != nil {
			check.MessageExpression = c.text(x.MessageExpression.Text)
		}
		spec.Validations = append(spec.Validations, check)
	}
	spec.Variables = c.variables()
	binding := admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: PolicyName(v.ID), ParamRef: paramRefOf(v.ParamSource)}
	for _, a := range v.Actions {
		binding.ValidationActions = append(binding.ValidationActions, admissionv1.ValidationAction(a))
	}
	return &admissionv1.ValidatingAdmissionPolicy{TypeMeta: typeMeta("ValidatingAdmissionPolicy"), ObjectMeta: metav1.ObjectMeta{Name: PolicyName(v.ID)}, Spec: spec},
		&admissionv1.ValidatingAdmissionPolicyBinding{TypeMeta: typeMeta("ValidatingAdmissionPolicyBinding"), ObjectMeta: metav1.ObjectMeta{Name: PolicyName(v.ID)}, Spec: binding}
}

// MutatingPolicy returns a rule that changes objects as a policy and its binding.
func MutatingPolicy(f *policy.Form, m *policy.Mutation) (*admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicyBinding) {
	failure, c := failureOf(m.Ignore), constantsOf(m.Params, m.Variables)
	spec := admissionv1.MutatingAdmissionPolicySpec{
		FailurePolicy: &failure, MatchConstraints: matchOf(&m.Match), MatchConditions: c.conditions(&m.Match),
		ParamKind: paramKindOf(f, m.ParamSource), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
	}
	if m.Reinvoke {
		spec.ReinvocationPolicy = admissionv1.IfNeededReinvocationPolicy
	}
	for _, s := range m.Mutations {
		change := admissionv1.Mutation{PatchType: admissionv1.PatchType(s.PatchType)}
		if s.PatchType == policy.JSONPatch {
			change.JSONPatch = &admissionv1.JSONPatch{Expression: c.text(s.Expression.Text)}
		} else {
			change.ApplyConfiguration = &admissionv1.ApplyConfiguration{Expression: c.text(s.Expression.Text)}
		}
		spec.Mutations = append(spec.Mutations, change)
	}
	spec.Variables = c.variables()
	return &admissionv1.MutatingAdmissionPolicy{TypeMeta: typeMeta("MutatingAdmissionPolicy"), ObjectMeta: metav1.ObjectMeta{Name: PolicyName(m.ID)}, Spec: spec},
		&admissionv1.MutatingAdmissionPolicyBinding{
			TypeMeta: typeMeta("MutatingAdmissionPolicyBinding"), ObjectMeta: metav1.ObjectMeta{Name: PolicyName(m.ID)},
			Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: PolicyName(m.ID), ParamRef: paramRefOf(m.ParamSource)},
		}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: kind}
}

func failureOf(ignore bool) admissionv1.FailurePolicyType {
	if ignore {
		return admissionv1.Ignore
	}
	return admissionv1.Fail
}

// constants are the params of a rule that are values of the bundle. In Kubernetes, whose params are objects, they are a variable; or, if
// their types differ, one for each of them that is read, as the values of a map have one type there.
// Conditions, which are evaluated before variables, have the values themselves.
type constants struct {
	params   any
	of       []policy.Variable // of the rule
	literal  string            // of all params, in CEL; "" if there are none
	differ   bool              // in their types
	declared []admissionv1.Variable
}

func constantsOf(params json.RawMessage, variables []policy.Variable) *constants {
	c := &constants{of: variables}
	if len(params) == 0 || string(params) == "{}" || json.Unmarshal(params, &c.params) != nil {
		return c
	}
	c.literal = expr.Literal(params)
	c.differ = strings.Contains(c.literal, "dyn(")
	return c
}

// text returns an expression that reads params as one that reads variables.
func (c *constants) text(text string) string {
	return c.replaced(text, func(path []string, literal string) string { return "variables." + c.variable(path, literal) })
}

// variable returns the variable for the params at a path, and declares it.
func (c *constants) variable(path []string, literal string) string {
	name := notInIdentifiers.ReplaceAllString(strings.Join(append([]string{expr.VarParams}, path...), "_"), "_")
	for {
		i := slices.IndexFunc(c.declared, func(v admissionv1.Variable) bool { return v.Name == name })
		if i >= 0 && c.declared[i].Expression == literal {
			return name
		}
		if i < 0 && !slices.ContainsFunc(c.of, func(v policy.Variable) bool { return v.Name == name }) {
			c.declared = append(c.declared, admissionv1.Variable{Name: name, Expression: literal})
			return name
		}
		name += "_"
	}
}

var notInIdentifiers = regexp.MustCompile(`[^A-Za-z0-9_]`)

func (c *constants) replaced(text string, by func(path []string, literal string) string) string {
	if c.literal == "" {
		return text
	}
	renamed, err := expr.RenameSelections(text, expr.VarParams, func(path []string) (int, string) {
		value, n := c.params, 0
		for c.differ && n < len(path) {
			m, _ := value.(map[string]any)
			next, ok := m[path[n]]
			if !ok {
				break
			}
			value = next
			n++
		}
		literal, err := json.Marshal(value)
		if err != nil || n == 0 {
			return 0, by(nil, c.literal)
		}
		return n, by(path[:n], expr.Literal(literal))
	})
	if err != nil {
		return text // it was parsed when the policy was compiled
	}
	return renamed
}

func (c *constants) conditions(m *policy.Match) (list []admissionv1.MatchCondition) {
	for _, x := range m.Conditions {
		list = append(list, admissionv1.MatchCondition{Name: strings.ReplaceAll(x.Name, ":", "-"), Expression: c.replaced(x.Text, func(_ []string, literal string) string {
			if strings.HasPrefix(literal, "-") {
				return "(" + literal + ")"
			}
			return literal
		})})
	}
	return list
}

// variables returns the variables of the rule behind those of the params that the policy reads. All of its other expressions are
// known.
func (c *constants) variables() []admissionv1.Variable {
	var list []admissionv1.Variable
	for _, x := range c.of {
		list = append(list, admissionv1.Variable{Name: x.Name, Expression: c.text(x.Text)})
	}
	return append(c.declared[:len(c.declared):len(c.declared)], list...)
}

func matchOf(m *policy.Match) *admissionv1.MatchResources {
	match := &admissionv1.MatchResources{
		NamespaceSelector: m.NamespaceSelector, ObjectSelector: m.ObjectSelector,
		ResourceRules: []admissionv1.NamedRuleWithOperations{resourceRule(m.APIGroups, m.APIVersions, m.Resources, m.Operations, m.ResourceNames, m.Scope)},
	}
	for _, x := range m.Excludes {
		match.ExcludeResourceRules = append(match.ExcludeResourceRules, resourceRule(x.APIGroups, x.APIVersions, x.Resources, x.Operations, x.ResourceNames, x.Scope))
	}
	if m.Exact {
		exact := admissionv1.Exact
		match.MatchPolicy = &exact
	}
	return match
}

func resourceRule(groups, versions, resources, operations, names []string, scope string) admissionv1.NamedRuleWithOperations {
	r := admissionv1.NamedRuleWithOperations{ResourceNames: names, RuleWithOperations: admissionv1.RuleWithOperations{
		Rule: admissionv1.Rule{APIGroups: groups, APIVersions: versions, Resources: resources}}}
	for _, o := range operations {
		r.Operations = append(r.Operations, admissionv1.OperationType(o))
	}
	if scope != "" {
		of := admissionv1.ScopeType(scope)
		r.Scope = &of
	}
	return r
}

// paramKindOf returns the kind of the objects that are params; nil if there are none.
func paramKindOf(f *policy.Form, p *policy.ParamSource) *admissionv1.ParamKind {
	if p == nil {
		return nil
	}
	i := slices.IndexFunc(f.Kinds, func(k schemas.Kind) bool { return k.Group == p.Group && k.Plural == p.Resource })
	return &admissionv1.ParamKind{APIVersion: schema.GroupVersion{Group: p.Group, Version: p.Version}.String(), Kind: f.Kinds[i].Kind}
}

func paramRefOf(p *policy.ParamSource) *admissionv1.ParamRef {
	if p == nil {
		return nil
	}
	action := admissionv1.AllowAction
	if p.Deny {
		action = admissionv1.DenyAction
	}
	return &admissionv1.ParamRef{Name: p.Name, Namespace: p.Namespace, Selector: p.Selector, ParameterNotFoundAction: &action}
}
