package exporting

import (
	"cmp"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/policy"
)

// mutations adds the rules that change objects, in their order, each as a policy and its binding.
func (e *exporter) mutations(f *policy.Form) {
	var exported []*policy.Mutation
	for _, i := range inOrder(f.Mutations) {
		if m := &f.Mutations[i]; e.expressible(m.ID, "MutatingAdmissionPolicy", m.Params, m.Objects, m.Source) {
			e.mutation(f, m)
			exported = append(exported, m)
		}
	}
	if len(exported) < 2 {
		return
	}
	for _, m := range exported {
		e.note(m.Source, "the order %d of %s is not exported: kube-apiserver runs policies in no certain order", m.Order, m.ID)
	}
}

// inOrder returns the indexes of mutations by their orders.
func inOrder(list []policy.Mutation) []int {
	indexes := make([]int, len(list))
	for i := range list {
		indexes[i] = i
	}
	slices.SortFunc(indexes, func(a, b int) int { return cmp.Compare(list[a].Order, list[b].Order) })
	return indexes
}

func (e *exporter) mutation(f *policy.Form, m *policy.Mutation) {
	name, failure := policyName(m.ID, "mutate"), failureOf(m.Ignore)
	spec := admissionv1.MutatingAdmissionPolicySpec{
		FailurePolicy: &failure, MatchConstraints: matchOf(&m.Match), MatchConditions: conditionsOf(&m.Match), Variables: variablesOf(m.Variables),
		ParamKind: paramKindOf(f, m.ParamSource), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
	}
	if m.Reinvoke {
		spec.ReinvocationPolicy = admissionv1.IfNeededReinvocationPolicy
	}
	for _, s := range m.Mutations {
		change := admissionv1.Mutation{PatchType: admissionv1.PatchType(s.PatchType)}
		if s.PatchType == policy.JSONPatch {
			change.JSONPatch = &admissionv1.JSONPatch{Expression: s.Expression.Text}
		} else {
			change.ApplyConfiguration = &admissionv1.ApplyConfiguration{Expression: s.Expression.Text}
		}
		spec.Mutations = append(spec.Mutations, change)
	}
	version := admissionv1.SchemeGroupVersion.String()
	e.add(&admissionv1.MutatingAdmissionPolicy{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "MutatingAdmissionPolicy"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	e.add(&admissionv1.MutatingAdmissionPolicyBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "MutatingAdmissionPolicyBinding"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name, ParamRef: paramRefOf(m.ParamSource)},
	})
}
