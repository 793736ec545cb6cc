package flows

import (
	"strings"
	"sync"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/policy"
)

// builtins are the objects that every kube-apiserver makes.
type builtins struct {
	levels  []Level
	schemas []policy.FlowSchema
}

// builtin returns upstream's mandatory and suggested objects, converted once.
var builtin = sync.OnceValue(func() *builtins {
	b := &builtins{}
	for _, list := range [][]*flowcontrolv1.PriorityLevelConfiguration{bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations} {
		for _, o := range list {
			b.levels = append(b.levels, builtinLevel(o))
		}
	}
	for _, list := range [][]*flowcontrolv1.FlowSchema{bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas} {
		for _, o := range list {
			b.schemas = append(b.schemas, builtinSchema(o))
		}
	}
	return b
})

// Mandatory reports whether a name is that of a flow schema and priority level that a bundle cannot replace.
func Mandatory(name string) bool {
	return name == flowcontrolv1.FlowSchemaNameExempt || name == flowcontrolv1.FlowSchemaNameCatchAll
}

func builtinLevel(o *flowcontrolv1.PriorityLevelConfiguration) Level {
	l := Level{PriorityLevel: policy.PriorityLevel{ID: "flow/priorityLevels/" + o.Name, Name: o.Name}, Builtin: true,
		UID: policy.UIDOf(flowcontrolv1.GroupName, LevelResource, "", o.Name)}
	if exempt := o.Spec.Exempt; exempt != nil {
		l.Exempt, l.NominalConcurrencyShares, l.LendablePercent = true, int(*exempt.NominalConcurrencyShares), int(*exempt.LendablePercent)
		return l
	}
	limited := o.Spec.Limited
	l.NominalConcurrencyShares, l.LendablePercent = int(*limited.NominalConcurrencyShares), int(*limited.LendablePercent)
	if b := limited.BorrowingLimitPercent; b != nil {
		percent := int(*b)
		l.BorrowingLimitPercent = &percent
	}
	if q := limited.LimitResponse.Queuing; q != nil {
		l.Queuing = &policy.Queuing{Queues: int(q.Queues), HandSize: int(q.HandSize), QueueLengthLimit: int(q.QueueLengthLimit)}
	}
	return l
}

// builtinSchema converts a flow schema. All of its rules have the same subjects.
func builtinSchema(o *flowcontrolv1.FlowSchema) policy.FlowSchema {
	s := policy.FlowSchema{ID: "flow/flowSchemas/" + o.Name, Name: o.Name, MatchingPrecedence: int(o.Spec.MatchingPrecedence), PriorityLevel: o.Spec.PriorityLevelConfiguration.Name}
	if d := o.Spec.DistinguisherMethod; d != nil {
		s.Distinguisher = string(d.Type)
	}
	for _, part := range o.Spec.Rules {
		s.Subjects = s.Subjects[:0]
		for _, x := range part.Subjects {
			s.Subjects = append(s.Subjects, subjectOf(x))
		}
		for _, r := range part.ResourceRules {
			s.Rules = append(s.Rules, policy.FlowRule{ID: s.ID + "/resources", Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, Namespaces: Namespaces(&r)})
		}
		for _, r := range part.NonResourceRules {
			s.Rules = append(s.Rules, policy.FlowRule{ID: s.ID + "/paths", Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
		}
	}
	return s
}

func subjectOf(x flowcontrolv1.Subject) policy.Subject {
	switch x.Kind {
	case flowcontrolv1.SubjectKindUser:
		return policy.Subject{User: x.User.Name}
	case flowcontrolv1.SubjectKindGroup:
		return policy.Subject{Group: x.Group.Name}
	}
	return policy.Subject{User: serviceaccount.ServiceAccountUsernamePrefix + strings.Join([]string{x.ServiceAccount.Namespace, x.ServiceAccount.Name}, ":")}
}

// Namespaces returns the namespaces and the scope of a rule of the API as [policy.FlowRule] has them. The rule must be valid.
func Namespaces(r *flowcontrolv1.ResourcePolicyRule) []string {
	switch {
	case !r.ClusterScope:
		return r.Namespaces
	case len(r.Namespaces) == 1 && r.Namespaces[0] == flowcontrolv1.NamespaceEvery:
		return nil
	}
	return append([]string{""}, r.Namespaces...)
}
