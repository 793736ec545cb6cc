// This file shows the admission webhooks of the policy in force as objects of
// admissionregistration.k8s.io/v1, so that Kubernetes clients find them. There is one
// configuration for each webhook, unless webhooks name a common one.

package rendered

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/catalog/openapi"

	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/brought"
)

// OrderAnnotation has the order of a mutating webhook, for which configurations have no field.
const OrderAnnotation = "stele.dev/order"

// Webhooks are the kinds of the group.
var Webhooks = []*Kind{
	webhookKind(admissionregistrationv1.MutatingWebhookConfiguration{}, "mutatingwebhookconfigurations", true),
	webhookKind(admissionregistrationv1.ValidatingWebhookConfiguration{}, "validatingwebhookconfigurations", false),
}

// webhookKind returns the rendered kind of a Go type.
func webhookKind(object any, plural string, mutating bool) *Kind {
	name, content := openapi.Describe(object)
	v := openapi.NewVersion(schemas.Kind{
		Group: admissionregistrationv1.GroupName, Kind: name, Plural: plural, StorageVersion: admissionregistrationv1.SchemeGroupVersion.Version,
	}, content)
	v.AllowCreateOnUpdate = true // the error of a refused create names the place in the policy
	part := "admission.webhooks.validating"
	if mutating {
		part = "admission.webhooks.mutating"
	}
	entriesOf := func(f *policy.Form) []*Entry { return webhookEntries(f, mutating) }
	return &Kind{Version: v, Type: reflect.TypeOf(object), Entries: entriesOf, Find: ByName(entriesOf), Counted: true, Section: brought.SectionWebhooks, Brought: broughtRule, Says: "an admission webhook is", Part: part + " of a team in the bundle"}
}

// webhookEntries returns a configuration for the webhooks that name it, and one for each webhook that names none.
func webhookEntries(f *policy.Form, mutating bool) (list []*Entry) {
	shown := map[string][]*policy.Reviewer{}
	for i := range f.Reviewers {
		if r := &f.Reviewers[i]; r.Webhook != nil && r.Mutating == mutating {
			shown[r.ShownName()] = append(shown[r.ShownName()], r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		all := shown[name]
		slices.SortStableFunc(all, func(a, b *policy.Reviewer) int { return cmp.Compare(a.Order, b.Order) })
		e := &Entry{Name: name, ID: all[0].ID, Source: all[0].Source}
		for _, r := range all[1:] {
			e.ID += "," + r.ID
		}
		if mutating {
			e.Annotations = map[string]string{OrderAnnotation: strconv.FormatInt(all[0].Order, 10)}
		}
		e.Render = func(t metav1.TypeMeta, meta metav1.ObjectMeta) any {
			return webhookConfiguration(all, mutating, t, meta)
		}
		list = append(list, e)
	}
	return list
}

// webhookConfiguration returns the object of some webhooks.
func webhookConfiguration(all []*policy.Reviewer, mutating bool, t metav1.TypeMeta, meta metav1.ObjectMeta) any {
	if !mutating {
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{TypeMeta: t, ObjectMeta: meta}
		for _, r := range all {
			c.Webhooks = append(c.Webhooks, validatingWebhook(r))
		}
		return c
	}
	c := &admissionregistrationv1.MutatingWebhookConfiguration{TypeMeta: t, ObjectMeta: meta}
	for _, r := range all {
		v, again := validatingWebhook(r), admissionregistrationv1.NeverReinvocationPolicy
		if r.Again {
			again = admissionregistrationv1.IfNeededReinvocationPolicy
		}
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: v.Name, ClientConfig: v.ClientConfig, Rules: v.Rules, FailurePolicy: v.FailurePolicy, MatchPolicy: v.MatchPolicy, NamespaceSelector: v.NamespaceSelector,
			ObjectSelector: v.ObjectSelector, SideEffects: v.SideEffects, TimeoutSeconds: v.TimeoutSeconds, AdmissionReviewVersions: v.AdmissionReviewVersions,
			ReinvocationPolicy: &again, MatchConditions: v.MatchConditions,
		})
	}
	return c
}

// validatingWebhook returns what both sorts of webhooks have.
func validatingWebhook(r *policy.Reviewer) admissionregistrationv1.ValidatingWebhook {
	failure, match, effects, seconds := admissionregistrationv1.Fail, admissionregistrationv1.Equivalent, admissionregistrationv1.SideEffectClass(r.SideEffects), int32(r.Timeout.Seconds())
	if r.Ignore {
		failure = admissionregistrationv1.Ignore
	}
	if r.Exact {
		match = admissionregistrationv1.Exact
	}
	v := admissionregistrationv1.ValidatingWebhook{
		Name: r.Name(), ClientConfig: clientConfig(r.Webhook), FailurePolicy: &failure, MatchPolicy: &match, SideEffects: &effects, TimeoutSeconds: &seconds,
		NamespaceSelector: selector(r.NamespaceSelector), ObjectSelector: selector(r.ObjectSelector), AdmissionReviewVersions: []string{"v1"},
	}
	for i := range r.Rules {
		v.Rules = append(v.Rules, webhookRule(&r.Rules[i]))
	}
	for i := range r.Conditions {
		v.MatchConditions = append(v.MatchConditions, admissionregistrationv1.MatchCondition{Name: r.Conditions[i].Name, Expression: r.Conditions[i].Text})
	}
	return v
}

// selector returns a selector as kube-apiserver has it: an empty one selects all.
func selector(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s == nil {
		return &metav1.LabelSelector{}
	}
	return s
}

func webhookRule(r *policy.ReviewRule) admissionregistrationv1.RuleWithOperations {
	scope := admissionregistrationv1.AllScopes
	if r.Scope != "" {
		scope = admissionregistrationv1.ScopeType(r.Scope)
	}
	x := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{APIGroups: r.APIGroups, APIVersions: r.APIVersions, Resources: r.Resources, Scope: &scope}}
	for _, o := range r.Operations {
		x.Operations = append(x.Operations, admissionregistrationv1.OperationType(o))
	}
	return x
}

func clientConfig(w *policy.WebhookClient) admissionregistrationv1.WebhookClientConfig {
	c := admissionregistrationv1.WebhookClientConfig{CABundle: []byte(w.CABundle)}
	if w.URL != "" {
		c.URL = &w.URL
	}
	if s := w.Service; s != nil {
		port := int32(s.Port)
		c.Service = &admissionregistrationv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Port: &port}
		if s.Path != "" {
			c.Service.Path = &s.Path
		}
	}
	return c
}
