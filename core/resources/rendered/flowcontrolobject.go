package rendered

import (
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/flows"
)

// PriorityLevelSpec returns the spec of a priority level.
func PriorityLevelSpec(l *flows.Level) flowcontrolv1.PriorityLevelConfigurationSpec {
	shares, lendable := int32(l.NominalConcurrencyShares), int32(l.LendablePercent)
	if l.Exempt {
		return flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementExempt,
			Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: &shares, LendablePercent: &lendable}}
	}
	limited := &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares, LendablePercent: &lendable,
		LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}}
	if l.BorrowingLimitPercent != nil {
		percent := int32(*l.BorrowingLimitPercent)
		limited.BorrowingLimitPercent = &percent
	}
	if q := l.Queuing; q != nil {
		limited.LimitResponse = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue,
			Queuing: &flowcontrolv1.QueuingConfiguration{Queues: int32(q.Queues), HandSize: int32(q.HandSize), QueueLengthLimit: int32(q.QueueLengthLimit)}}
	}
	return flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: limited}
}

// FlowSchemaSpec returns the spec of a flow schema.
func FlowSchemaSpec(s *policy.FlowSchema) flowcontrolv1.FlowSchemaSpec {
	spec := flowcontrolv1.FlowSchemaSpec{MatchingPrecedence: int32(s.MatchingPrecedence),
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: s.PriorityLevel}}
	if s.Distinguisher != "" {
		spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodType(s.Distinguisher)}
	}
	var rules flowcontrolv1.PolicyRulesWithSubjects
	for _, x := range s.Subjects {
		rules.Subjects = append(rules.Subjects, flowSubject(x))
	}
	for i := range s.Rules {
		if r := &s.Rules[i]; len(r.NonResourceURLs) > 0 {
			rules.NonResourceRules = append(rules.NonResourceRules, flowcontrolv1.NonResourcePolicyRule{Verbs: nonNil(r.Verbs), NonResourceURLs: nonNil(r.NonResourceURLs)})
		} else {
			rules.ResourceRules = append(rules.ResourceRules, flowResourceRule(r))
		}
	}
	if len(rules.ResourceRules)+len(rules.NonResourceRules) > 0 {
		spec.Rules = []flowcontrolv1.PolicyRulesWithSubjects{rules}
	}
	return spec
}

func flowResourceRule(r *policy.FlowRule) flowcontrolv1.ResourcePolicyRule {
	rule := flowcontrolv1.ResourcePolicyRule{Verbs: nonNil(r.Verbs), APIGroups: nonNil(r.APIGroups), Resources: nonNil(r.Resources), ClusterScope: true, Namespaces: []string{flowcontrolv1.NamespaceEvery}}
	if len(r.Namespaces) > 0 {
		rule.ClusterScope = slices.Contains(r.Namespaces, "")
		rule.Namespaces = nonNil(slices.DeleteFunc(slices.Clone(r.Namespaces), func(n string) bool { return n == "" }))
	}
	return rule
}

// nonNil returns a list as the API has it: "*" stands alone.
func nonNil(list []string) []string {
	if slices.Contains(list, "*") {
		return []string{"*"}
	}
	return list
}

func flowSubject(s policy.Subject) flowcontrolv1.Subject {
	if s.Group != "" {
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: s.Group}}
	}
	if account, is := strings.CutPrefix(s.User, serviceaccount.ServiceAccountUsernamePrefix); is {
		if namespace, name, is := strings.Cut(account, serviceaccount.ServiceAccountUsernameSeparator); is {
			return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: namespace, Name: name}}
		}
	}
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: s.User}}
}
