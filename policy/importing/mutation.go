package importing

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// mutations imports MutatingAdmissionPolicies, each with its bindings and params. Their order is that of their names.
func (m *importer) mutations() error {
	var rules fields
	var names []*object
	taken := map[string]bool{}
	m.startOrder()
	err := m.bound("MutatingAdmissionPolicy", func(o, b *object) error {
		var p admissionv1.MutatingAdmissionPolicy
		var binding admissionv1.MutatingAdmissionPolicyBinding
		if err := errors.Join(o.decode(&p), b.decode(&binding)); err != nil {
			return err
		}
		of := &admissionPolicy{p.Name, p.Spec.ParamKind, p.Spec.MatchConstraints, p.Spec.MatchConditions, p.Spec.Variables, p.Spec.FailurePolicy}
		to := &admissionBinding{binding.Name, binding.Spec.ParamRef, binding.Spec.MatchResources}
		before := len(rules)
		for _, rule := range m.rulesOf(o, b, of, to, true) {
			rule = append(fields{{"order", m.nextOrder()}}, rule...)
			rules = append(rules, member{unique(taken, nameFor(p.Name)), from(append(rule, changesOf(o, &p)...), o)})
		}
		if len(rules) > before {
			names = append(names, o)
		}
		return nil
	})
	if err != nil || len(rules) == 0 {
		return err
	}
	if len(names) > 1 {
		m.note(names[0], nil, "the %d rules that change objects run in the order of the names of their policies, %q first: kube-apiserver runs policies in no certain order", len(rules), names[0].name())
	}
	if rules, err = m.dynamic("mutate", rules); err != nil {
		return err
	}
	m.counts["mutations"] = len(rules)
	m.write("admission.cue", m.ofTeam("admission", "mutate"), rules)
	return nil
}

// mutatedRules returns the resource rules of a policy that changes objects, with those together that differ in one list only. It
// notes what is left out of them.
func (m *importer) mutatedRules(o *object, p *admissionPolicy, matched []admissionv1.NamedRuleWithOperations) (rules []admissionv1.NamedRuleWithOperations) {
	at := []string{"spec", "matchConstraints", "resourceRules"}
	for i, r := range matched {
		if slices.Contains(r.Operations, admissionv1.Delete) {
			m.note(o, append(at, fmt.Sprint(i)), "the operation DELETE of the policy %q is left out: a delete has no object that could be changed", p.name)
			r.Operations = slices.DeleteFunc(slices.Clone(r.Operations), func(x admissionv1.OperationType) bool { return x == admissionv1.Delete })
		}
		if len(r.Operations) > 0 {
			rules = joined(rules, r)
		}
	}
	for i := range rules {
		if len(earlier(rules[:i], &rules[i])) > 0 {
			m.note(o, at, "resource rules of the policy %q match the same requests: a rule leaves out what those before it match, so that no object is changed twice", p.name)
			break
		}
	}
	return rules
}

// earlier returns those of the rules that may match requests which a rule matches.
func earlier(rules []admissionv1.NamedRuleWithOperations, r *admissionv1.NamedRuleWithOperations) (list []admissionv1.NamedRuleWithOperations) {
	for i := range rules {
		if overlap(&rules[i], r) {
			list = append(list, rules[i])
		}
	}
	return list
}

// joined adds a resource rule to others: to one that differs from it in one list only, or else as another one.
func joined(rules []admissionv1.NamedRuleWithOperations, r admissionv1.NamedRuleWithOperations) []admissionv1.NamedRuleWithOperations {
	for i := range rules {
		if one, ok := union(rules[i], r); ok {
			rules[i] = one
			return rules
		}
	}
	return append(rules, r)
}

// union returns a resource rule that matches what either of two rules matches; false if they differ in more than one list.
func union(a, b admissionv1.NamedRuleWithOperations) (admissionv1.NamedRuleWithOperations, bool) {
	differ := 0
	lists := func(a, b []string) []string {
		list := slices.Clone(a)
		for _, x := range b {
			if !slices.Contains(list, x) {
				list = append(list, x)
			}
		}
		if len(list) != len(a) || len(list) != len(b) {
			differ++
		}
		return list
	}
	if (len(a.ResourceNames) == 0) != (len(b.ResourceNames) == 0) {
		differ++ // one of them is about all names
		a.ResourceNames, b.ResourceNames = nil, nil
	}
	one := admissionv1.NamedRuleWithOperations{ResourceNames: lists(a.ResourceNames, b.ResourceNames)}
	one.APIGroups, one.APIVersions = lists(a.APIGroups, b.APIGroups), lists(a.APIVersions, b.APIVersions)
	one.Resources, one.Scope = lists(a.Resources, b.Resources), a.Scope
	for _, x := range lists(operationsOf(a.Operations), operationsOf(b.Operations)) {
		one.Operations = append(one.Operations, admissionv1.OperationType(x))
	}
	return one, differ <= 1 && scopeOf(&a) == scopeOf(&b)
}

// overlap reports whether a request may match both resource rules. Versions are not compared, because a request for one
// version of a kind matches a rule for another one.
func overlap(a, b *admissionv1.NamedRuleWithOperations) bool {
	share := func(a, b []string) bool {
		return slices.ContainsFunc(slices.Concat(a, b), func(x string) bool { return strings.Contains(x, "*") }) || slices.ContainsFunc(a, func(x string) bool { return slices.Contains(b, x) })
	}
	return share(a.APIGroups, b.APIGroups) && share(a.Resources, b.Resources) && share(operationsOf(a.Operations), operationsOf(b.Operations)) &&
		(len(a.ResourceNames) == 0 || len(b.ResourceNames) == 0 || share(a.ResourceNames, b.ResourceNames))
}

// changesOf returns the changes of a policy.
func changesOf(o *object, p *admissionv1.MutatingAdmissionPolicy) (f fields) {
	var changes fields
	for i, c := range p.Spec.Mutations {
		var change fields
		if len(p.Spec.Mutations) > 1 {
			change.add("order", i+1)
		}
		change.add("patchType", string(c.PatchType))
		switch {
		case c.ApplyConfiguration != nil:
			change.add("expression", c.ApplyConfiguration.Expression)
		case c.JSONPatch != nil:
			change.add("expression", c.JSONPatch.Expression)
		}
		changes = append(changes, member{fmt.Sprintf("change-%d", i+1), from(change, o, "spec", "mutations", fmt.Sprint(i))})
	}
	f = append(f, member{"mutations", changes})
	if p.Spec.ReinvocationPolicy == admissionv1.IfNeededReinvocationPolicy {
		f.add("reinvocationPolicy", string(p.Spec.ReinvocationPolicy))
	}
	return f
}
