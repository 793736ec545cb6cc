package rendered_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"stele.dev/stele/core/run/plane/planetest"
)

const bundle = `package p

import "stele.dev/policy"

bundle: policy.#Bundle & {cluster: "test", teams: t: {
	contact: "#t", groups: ["*"], namespaces: ["*"]
	admission: validate: {
		whole: {
			match: {
				apiGroups: [""], resources: ["configmaps"], resourceNames: ["a"], matchPolicy: "Exact", namespaceSelector: matchLabels: x: "y"
				excludeResourceRules: e: {apiGroups: [""], resources: ["configmaps"], operations: ["DELETE"]}
				conditions: named: "object.metadata.name != ''"
			}
			paramKind: {apiVersion: "v1", kind: "Secret"}
			paramRef: {name: "limits", namespace: "default", parameterNotFoundAction: "Deny"}
			variables: who: "request.userInfo.username"
			validations: x: {expression: "has(params.data) || variables.who == ''", messageExpression: "'no'", reason: "Forbidden"}
			validationActions: ["Warn", "Audit"]
			auditAnnotations: who: valueExpression: "variables.who"
			failurePolicy: "Ignore"
		}
		plain: {match: {apiGroups: [""], resources: ["secrets"]}, validations: x: expression: "true"}
		constant: {
			match: {apiGroups: [""], resources: ["secrets"], conditions: c: "params.a > 0"}, params: {a: 1, b: [1, 2]}
			variables: double: "params.a * 2"
			validations: x: {expression: "params.a in params.b || variables.double > 1", messageExpression: "'params ' + string(params.a)"}
		}
		reader: {match: {apiGroups: [""], resources: ["secrets"]}, objects: x: {kind: "namespaces", version: "v1"}, validations: x: expression: "objects.x.count() > 0"}
	}
	admission: mutate: label: {
		order: 30, match: {apiGroups: [""], resources: ["configmaps"], operations: ["CREATE"]}, reinvocationPolicy: "IfNeeded"
		mutations: x: {patchType: "ApplyConfiguration", expression: "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}
	}
}}
`

// Clients find the rules of the policy in force as policies and bindings, complete and as they were written, and cannot change them.
func TestRulesAreShownAsAdmissionPolicies(t *testing.T) {
	p := planetest.Start(t, planetest.Options{Bundle: bundle})
	c, err := kubernetes.NewForConfig(p.Client("admin", "system:masters"))
	require.NoError(t, err)
	api := c.AdmissionregistrationV1()
	list, err := api.ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	require.Equal(t, []string{"t.constant", "t.plain", "t.whole"}, names, "a rule that says more than a policy can is not shown")

	v, err := api.ValidatingAdmissionPolicies().Get(t.Context(), "t.whole", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "t/validate/whole", v.Annotations["stele.dev/rule"])
	require.Regexp(t, `^bundle.cue:\d+$`, v.Annotations["stele.dev/source"])
	ignore, exact, all, forbidden, deny := admissionv1.Ignore, admissionv1.Exact, admissionv1.AllScopes, metav1.StatusReasonForbidden, admissionv1.DenyAction
	require.Equal(t, admissionv1.ValidatingAdmissionPolicySpec{
		ParamKind: &admissionv1.ParamKind{APIVersion: "v1", Kind: "Secret"}, FailurePolicy: &ignore,
		MatchConstraints: &admissionv1.MatchResources{
			MatchPolicy: &exact, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}, ObjectSelector: &metav1.LabelSelector{},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{ResourceNames: []string{"a"}, RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{"CREATE", "UPDATE"}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"configmaps"}, Scope: &all}}}},
			ExcludeResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{"DELETE"}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"configmaps"}, Scope: &all}}}},
		},
		MatchConditions:  []admissionv1.MatchCondition{{Name: "named", Expression: "object.metadata.name != ''"}},
		Variables:        []admissionv1.Variable{{Name: "who", Expression: "request.userInfo.username"}},
		Validations:      []admissionv1.Validation{{Expression: "has(params.data) || variables.who == ''", MessageExpression: "'no'", Reason: &forbidden}},
		AuditAnnotations: []admissionv1.AuditAnnotation{{Key: "who", ValueExpression: "variables.who"}},
	}, v.Spec)
	b, err := api.ValidatingAdmissionPolicyBindings().Get(t.Context(), "t.whole", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "t.whole", ParamRef: &admissionv1.ParamRef{Name: "limits", Namespace: "default", ParameterNotFoundAction: &deny},
		ValidationActions: []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit},
	}, b.Spec)

	v, err = api.ValidatingAdmissionPolicies().Get(t.Context(), "t.constant", metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, v.Spec.ParamKind)
	require.Equal(t, []admissionv1.MatchCondition{{Name: "c", Expression: "1 > 0"}}, v.Spec.MatchConditions)
	require.Equal(t, []admissionv1.Variable{{Name: "params_a", Expression: "1"}, {Name: "params_b", Expression: "[1,2]"}, {Name: "double", Expression: "variables.params_a * 2"}}, v.Spec.Variables)
	require.Equal(t, "variables.params_a in variables.params_b || variables.double > 1", v.Spec.Validations[0].Expression)
	require.Equal(t, "'params ' + string(variables.params_a)", v.Spec.Validations[0].MessageExpression)

	m, err := api.MutatingAdmissionPolicies().Get(t.Context(), "t.label", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "30", m.Annotations["stele.dev/order"])
	require.Equal(t, admissionv1.IfNeededReinvocationPolicy, m.Spec.ReinvocationPolicy)
	require.Equal(t, []admissionv1.Mutation{{PatchType: "ApplyConfiguration", ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}}}, m.Spec.Mutations)
	mb, err := api.MutatingAdmissionPolicyBindings().Get(t.Context(), "t.label", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "t.label", mb.Spec.PolicyName)

	err = api.ValidatingAdmissionPolicies().Delete(t.Context(), "t.whole", metav1.DeleteOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "a rule of admission is defined by the policy: change bundle.cue:")
	_, err = api.MutatingAdmissionPolicies().Create(t.Context(), &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "admission.mutate of a team in the bundle")
}
