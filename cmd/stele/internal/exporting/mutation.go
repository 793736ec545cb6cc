package exporting

import (
	"cmp"
	"slices"

	"stele.dev/stele/core/resources/rendered"
	"stele.dev/stele/policy"
)

// mutations adds the rules that change objects, in their order, each as a policy and its binding.
func (e *exporter) mutations(f *policy.Form) {
	var exported []*policy.Mutation
	for _, i := range inOrder(f.Mutations) {
		if m := &f.Mutations[i]; e.expressible(m.ID, "MutatingAdmissionPolicy", m.Objects, m.Source) {
			p, b := rendered.MutatingPolicy(f, m)
			if e.add(m.ID, m.Source, p, b) {
				exported = append(exported, m)
			}
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
