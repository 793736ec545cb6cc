package brought

import (
	"cmp"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Default sets the defaults of kube-apiserver in an object of a kind that shows rules: a definition, an object of RBAC, of admission or of flow control.
func Default(object any) {
	switch o := object.(type) {
	case *apiextensionsv1.CustomResourceDefinition:
		apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(o)
	case *rbacv1.ClusterRoleBinding:
		defaultBinding(&o.RoleRef, o.Subjects)
	case *rbacv1.RoleBinding:
		defaultBinding(&o.RoleRef, o.Subjects)
	case *admissionv1.ValidatingAdmissionPolicy:
		setDefault(&o.Spec.FailurePolicy, admissionv1.Fail)
		if o.Spec.MatchConstraints != nil {
			Complete(o.Spec.MatchConstraints)
		}
	case *admissionv1.MutatingAdmissionPolicy:
		setDefault(&o.Spec.FailurePolicy, admissionv1.Fail)
		if o.Spec.MatchConstraints != nil {
			Complete(o.Spec.MatchConstraints)
		}
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		if o.Spec.MatchResources != nil {
			Complete(o.Spec.MatchResources)
		}
	case *admissionv1.MutatingAdmissionPolicyBinding:
		if o.Spec.MatchResources != nil {
			Complete(o.Spec.MatchResources)
		}
	case *flowcontrolv1.FlowSchema:
		if o.Spec.MatchingPrecedence == 0 {
			o.Spec.MatchingPrecedence = 1000
		}
	case *flowcontrolv1.PriorityLevelConfiguration:
		setLevelDefaults(&o.Spec)
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			h := &o.Webhooks[i]
			setWebhookDefaults(&h.FailurePolicy, &h.MatchPolicy, &h.NamespaceSelector, &h.ObjectSelector, &h.TimeoutSeconds, &h.ClientConfig, h.Rules)
		}
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			h := &o.Webhooks[i]
			setDefault(&h.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
			setWebhookDefaults(&h.FailurePolicy, &h.MatchPolicy, &h.NamespaceSelector, &h.ObjectSelector, &h.TimeoutSeconds, &h.ClientConfig, h.Rules)
		}
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func setLevelDefaults(l *flowcontrolv1.PriorityLevelConfigurationSpec) {
	if l.Exempt != nil {
		setDefault(&l.Exempt.NominalConcurrencyShares, 0)
		setDefault(&l.Exempt.LendablePercent, 0)
	}
	if l.Limited == nil {
		return
	}
	setDefault(&l.Limited.NominalConcurrencyShares, 30)
	setDefault(&l.Limited.LendablePercent, 0)
	if q := l.Limited.LimitResponse.Queuing; q != nil {
		q.HandSize, q.Queues = cmp.Or(q.HandSize, 8), cmp.Or(q.Queues, 64)
		q.QueueLengthLimit = cmp.Or(q.QueueLengthLimit, 50)
	}
}

func setWebhookDefaults(failure **admissionv1.FailurePolicyType, match **admissionv1.MatchPolicyType, namespaces, objects **metav1.LabelSelector, timeout **int32, client *admissionv1.WebhookClientConfig, rules []admissionv1.RuleWithOperations) {
	setDefault(failure, admissionv1.Fail)
	setDefault(match, admissionv1.Equivalent)
	setDefault(namespaces, metav1.LabelSelector{})
	setDefault(objects, metav1.LabelSelector{})
	setDefault(timeout, 10)
	if client.Service != nil && client.Service.Port == nil {
		client.Service.Port = ptr.To[int32](443)
	}
	for i := range rules {
		setDefault(&rules[i].Scope, admissionv1.AllScopes)
	}
}

// Complete fills in the defaults of kube-apiserver in what an admission policy matches.
func Complete(m *admissionv1.MatchResources) *admissionv1.MatchResources {
	if m.MatchPolicy == nil {
		equivalent := admissionv1.Equivalent
		m.MatchPolicy = &equivalent
	}
	for _, s := range []**metav1.LabelSelector{&m.NamespaceSelector, &m.ObjectSelector} {
		if *s == nil {
			*s = &metav1.LabelSelector{}
		}
	}
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			if rules[i].Scope == nil {
				all := admissionv1.AllScopes
				rules[i].Scope = &all
			}
		}
	}
	return m
}
