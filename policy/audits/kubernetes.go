package audits

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"stele.dev/stele/policy"
)

// FromKubernetes returns the rules of a Policy of audit.k8s.io. A rule with several groups of resources becomes a rule for each
// of them, one after the other. The rules have no IDs.
func FromKubernetes(p *auditv1.Policy) policy.Audit {
	a := policy.Audit{OmitStages: StageTexts(p.OmitStages), OmitManagedFields: p.OmitManagedFields}
	for i := range p.Rules {
		a.Rules = append(a.Rules, RulesFromKubernetes(&p.Rules[i])...)
	}
	return a
}

// RulesFromKubernetes returns one rule of a Policy of audit.k8s.io as rules of a bundle, in their order.
func RulesFromKubernetes(r *auditv1.PolicyRule) (list []policy.AuditRule) {
	base := policy.AuditRule{Level: string(r.Level), Verbs: r.Verbs, Namespaces: r.Namespaces, NonResourceURLs: r.NonResourceURLs,
		OmitStages: StageTexts(r.OmitStages), OmitManagedFields: r.OmitManagedFields}
	for _, name := range r.Users {
		base.Subjects = append(base.Subjects, policy.Subject{User: name})
	}
	if len(r.Users) > 0 {
		base.MemberOf = r.UserGroups
	} else {
		for _, name := range r.UserGroups {
			base.Subjects = append(base.Subjects, policy.Subject{Group: name})
		}
	}
	if len(r.Resources) == 0 {
		return []policy.AuditRule{base}
	}
	for _, g := range r.Resources {
		one := base
		one.APIGroups, one.Resources, one.Names = []string{g.Group}, g.Resources, g.ResourceNames
		list = append(list, one)
	}
	return list
}

// StageTexts returns stages as texts.
func StageTexts(stages []auditv1.Stage) (names []string) {
	for _, s := range stages {
		names = append(names, string(s))
	}
	return names
}

// ToKubernetes returns a Policy of audit.k8s.io that records the same. A rule whose subjects are users as well as groups
// becomes two. The IDs of the rules and the field sync are lost: that format does not have them.
func ToKubernetes(a *policy.Audit) *auditv1.Policy {
	p := &auditv1.Policy{TypeMeta: metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "Policy"},
		OmitStages: stagesOf(a.OmitStages), OmitManagedFields: a.OmitManagedFields}
	if len(a.Rules) == 0 {
		p.Rules = unruledPolicy
	}
	for i := range a.Rules {
		r := &a.Rules[i]
		one := auditv1.PolicyRule{Level: auditv1.Level(r.Level), Verbs: r.Verbs, Namespaces: r.Namespaces, NonResourceURLs: r.NonResourceURLs,
			UserGroups: r.MemberOf, OmitStages: stagesOf(r.OmitStages), OmitManagedFields: r.OmitManagedFields}
		groups := r.APIGroups
		if len(groups) == 0 && len(r.Resources) > 0 || slices.Contains(groups, wildcard) {
			groups = []string{wildcard}
		}
		for _, g := range groups {
			one.Resources = append(one.Resources, auditv1.GroupResources{Group: g, Resources: r.Resources, ResourceNames: r.Names})
		}
		var inGroups []string
		for _, s := range r.Subjects {
			if s.Group != "" {
				inGroups = append(inGroups, s.Group)
			} else {
				one.Users = append(one.Users, s.User)
			}
		}
		if len(inGroups) == 0 || len(one.Users) > 0 {
			p.Rules = append(p.Rules, one)
		}
		if len(inGroups) > 0 {
			one.Users, one.UserGroups = nil, inGroups
			p.Rules = append(p.Rules, one)
		}
	}
	return p
}

// unruledPolicy records writes and reads of Secrets as a policy without audit rules does. Refusals of reads are recorded there as
// well, which rules cannot say, and reads of other kinds with secret fields.
var unruledPolicy = []auditv1.PolicyRule{
	{Level: auditv1.LevelMetadata, Verbs: secretVerbs, Resources: []auditv1.GroupResources{{Resources: []string{"secrets"}}}},
	{Level: auditv1.LevelNone, Verbs: []string{"get", "list", "watch", "head", "options"}},
	{Level: auditv1.LevelMetadata, OmitStages: []auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseStarted, auditv1.StagePanic}},
}

func stagesOf(names []string) (stages []auditv1.Stage) {
	for _, name := range names {
		stages = append(stages, auditv1.Stage(name))
	}
	return stages
}
