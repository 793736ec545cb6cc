package brought

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
	"stele.dev/stele/schemas"
)

// The kinds of admission webhooks, with the validation of kube-apiserver's package admissionregistration. What CEL expressions say is validated by
// those that compile them.
var (
	ValidatingWebhooks = ofWebhooks(newKind(admissionv1.GroupName, "validatingwebhookconfigurations", webhookContent(false),
		func(c, old *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
			return validateWebhooks(Validating(c), Validating(old))
		}))
	MutatingWebhooks = ofWebhooks(newKind(admissionv1.GroupName, "mutatingwebhookconfigurations", webhookContent(true),
		func(c, old *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
			return validateWebhooks(Mutating(c), Mutating(old))
		}))

	webhooks = []*Kind{MutatingWebhooks, ValidatingWebhooks}
)

// SectionWebhooks is the field of the section dynamic that is about webhooks.
const SectionWebhooks = "webhooks"

func ofWebhooks(k *Kind) *Kind {
	k.Section, k.Counted, k.Names = SectionWebhooks, true, apivalidation.NameIsDNSSubdomain
	return k
}

// Validating returns the webhooks of a configuration as mutating ones, which have one field more. The configuration may be nil.
func Validating(c *admissionv1.ValidatingWebhookConfiguration) (list []admissionv1.MutatingWebhook) {
	if c == nil {
		return nil
	}
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		list = append(list, admissionv1.MutatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector,
			ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		})
	}
	return list
}

// Mutating returns the webhooks of a configuration, which may be nil.
func Mutating(c *admissionv1.MutatingWebhookConfiguration) []admissionv1.MutatingWebhook {
	if c == nil {
		return nil
	}
	return c.Webhooks
}

func webhookContent(mutating bool) *schemas.Node {
	service := fields{}.with("name", text()).with("namespace", text()).with("path", text()).with("port", number()).object()
	hook := fields{}.with("name", text()).
		with("clientConfig", fields{}.with("url", text()).with("service", service).with("caBundle", text()).object()).
		with("rules", atomic()).with("failurePolicy", text()).with("matchPolicy", text()).
		with("namespaceSelector", whole()).with("objectSelector", whole()).with("sideEffects", text()).with("timeoutSeconds", number()).
		with("admissionReviewVersions", atomic()).
		with("matchConditions", keyed(fields{}.with("name", text()).with("expression", text()).object()))
	if mutating {
		hook = hook.with("reinvocationPolicy", text())
	}
	return fields{}.with("webhooks", keyed(hook.object())).object()
}

const (
	maxMatchConditions = 64
	recognizedVersions = "v1, v1beta1"
)

// validateWebhooks validates the webhooks of a configuration. old are those of the stored one. As upstream, what has become stricter is asked only of those
// that were so before.
func validateWebhooks(hooks, old []admissionv1.MutatingWebhook) (errs field.ErrorList) {
	names := map[string]bool{}
	unique := uniqueNames(old)
	for i := range hooks {
		at := field.NewPath("webhooks").Index(i)
		h := &hooks[i]
		errs = append(errs, validateWebhook(h, at)...)
		errs = append(errs, validateReviewVersions(h.AdmissionReviewVersions, at.Child("admissionReviewVersions"))...)
		if h.Name != "" && unique {
			if names[h.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), h.Name))
			}
			names[h.Name] = true
		}
	}
	return errs
}

func uniqueNames(hooks []admissionv1.MutatingWebhook) bool {
	seen := map[string]bool{}
	for i := range hooks {
		if seen[hooks[i].Name] {
			return false
		}
		seen[hooks[i].Name] = true
	}
	return true
}

func validateWebhook(h *admissionv1.MutatingWebhook, at *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(at.Child("name"), h.Name)
	for i := range h.Rules {
		errs = append(errs, validateOperations(h.Rules[i].Operations, at.Child("rules").Index(i))...)
		errs = append(errs, ValidateRule(&h.Rules[i].Rule, true, at.Child("rules").Index(i))...)
	}
	errs = append(errs, among(h.FailurePolicy, at.Child("failurePolicy"), admissionv1.Fail, admissionv1.Ignore)...)
	errs = append(errs, among(h.MatchPolicy, at.Child("matchPolicy"), admissionv1.Equivalent, admissionv1.Exact)...)
	effects := []string{string(admissionv1.SideEffectClassNone), string(admissionv1.SideEffectClassNoneOnDryRun)}
	if h.SideEffects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of "+strings.Join(effects, ", ")))
	} else {
		errs = append(errs, among(h.SideEffects, at.Child("sideEffects"), admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun)...)
	}
	errs = append(errs, among(h.ReinvocationPolicy, at.Child("reinvocationPolicy"), admissionv1.NeverReinvocationPolicy, admissionv1.IfNeededReinvocationPolicy)...)
	if t := h.TimeoutSeconds; t != nil && (*t < 1 || *t > 30) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, validateSelector(h.NamespaceSelector, at.Child("namespaceSelector"))...)
	errs = append(errs, validateSelector(h.ObjectSelector, at.Child("objectSelector"))...)
	c, client := &h.ClientConfig, at.Child("clientConfig")
	switch {
	case (c.URL == nil) == (c.Service == nil):
		errs = append(errs, field.Required(client, "exactly one of url or service is required"))
	case c.URL != nil:
		errs = append(errs, webhook.ValidateWebhookURL(client.Child("url"), *c.URL, true)...)
	default:
		port := int32(443)
		if c.Service.Port != nil {
			port = *c.Service.Port
		}
		errs = append(errs, webhook.ValidateWebhookService(client.Child("service"), c.Service.Name, c.Service.Namespace, c.Service.Path, port)...)
	}
	return append(errs, ValidateMatchConditions(h.MatchConditions, at.Child("matchConditions"))...)
}

// among returns an error for a value that is none of those that are supported. The value may be missing.
func among[T ~string](value *T, at *field.Path, supported ...T) field.ErrorList {
	if value == nil || slices.Contains(supported, *value) {
		return nil
	}
	names := make([]string, len(supported))
	for i, s := range supported {
		names[i] = string(s)
	}
	return field.ErrorList{field.NotSupported(at, *value, names)}
}

func validateSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
}

func validateReviewVersions(versions []string, at *field.Path) (errs field.ErrorList) {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "must specify one of "+recognizedVersions)}
	}
	seen, recognized := map[string]bool{}, false
	for i, v := range versions {
		if seen[v] {
			errs = append(errs, field.Invalid(at.Index(i), v, "duplicate version"))
			continue
		}
		seen[v] = true
		for _, message := range validation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(at.Index(i), v, message))
		}
		recognized = recognized || v == "v1" || v == "v1beta1"
	}
	if !recognized {
		return append(errs, field.Invalid(at, versions, "must include at least one of "+recognizedVersions))
	}
	if !seen["v1"] {
		errs = append(errs, field.Invalid(at, versions, "this server asks webhooks by AdmissionReview v1 only: must include v1"))
	}
	return errs
}

// ValidateMatchConditions returns the errors of conditions but for those of their expressions.
func ValidateMatchConditions(all []admissionv1.MatchCondition, at *field.Path) (errs field.ErrorList) {
	if len(all) > maxMatchConditions {
		errs = append(errs, field.TooMany(at, len(all), maxMatchConditions))
	}
	seen := map[string]bool{}
	for i := range all {
		c, at := &all[i], at.Index(i)
		if strings.TrimSpace(c.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		}
		if c.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		for _, message := range apivalidation.NameIsDNSSubdomain(c.Name, false) {
			if len(validation.IsQualifiedName(c.Name)) > 0 {
				errs = append(errs, field.Invalid(at.Child("name"), c.Name, message))
			}
		}
		if seen[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		seen[c.Name] = true
	}
	return errs
}

func validateOperations(operations []admissionv1.OperationType, at *field.Path) (errs field.ErrorList) {
	at = at.Child("operations")
	if len(operations) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	if len(operations) > 1 && slices.Contains(operations, admissionv1.OperationAll) {
		errs = append(errs, field.Invalid(at, operations, "if '*' is present, must not specify other operations"))
	}
	for i := range operations {
		errs = append(errs, among(&operations[i], at.Index(i), admissionv1.Connect, admissionv1.Create, admissionv1.Delete, admissionv1.OperationAll, admissionv1.Update)...)
	}
	return errs
}

// ValidateRule returns the errors of what a webhook or an admission policy matches, besides operations. subresources is set if resources may have "/".
func ValidateRule(r *admissionv1.Rule, subresources bool, at *field.Path) (errs field.ErrorList) {
	list := func(name, plural string, values []string, empty bool) {
		at := at.Child(name)
		if len(values) == 0 {
			errs = append(errs, field.Required(at, ""))
		}
		if len(values) > 1 && slices.Contains(values, "*") {
			errs = append(errs, field.Invalid(at, values, "if '*' is present, must not specify other "+plural))
		}
		for i, v := range values {
			if v == "" && !empty {
				errs = append(errs, field.Required(at.Index(i), ""))
			}
		}
	}
	list("apiGroups", "API groups", r.APIGroups, true)
	list("apiVersions", "API versions", r.APIVersions, false)
	errs = append(errs, validateResources(r.Resources, subresources, at.Child("resources"))...)
	return append(errs, among(r.Scope, at.Child("scope"), admissionv1.ClusterScope, admissionv1.NamespacedScope, admissionv1.AllScopes)...)
}

func validateResources(resources []string, subresources bool, at *field.Path) (errs field.ErrorList) {
	if len(resources) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	allOf, ofAll := map[string]bool{}, map[string]bool{} // "x/*", "*/x"
	plain := false
	for i, r := range resources {
		if r == "" {
			errs = append(errs, field.Required(at.Index(i), ""))
			continue
		}
		of, sub, found := strings.Cut(r, "/")
		if !found {
			plain = plain || r != "*"
			continue
		}
		if !subresources {
			errs = append(errs, field.Invalid(at.Index(i), r, "must not specify subresources"))
			continue
		}
		if allOf[of] {
			errs = append(errs, field.Invalid(at.Index(i), r, fmt.Sprintf("if '%s/*' is present, must not specify %s", of, r)))
		}
		if ofAll[sub] {
			errs = append(errs, field.Invalid(at.Index(i), r, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, r)))
		}
		allOf[of], ofAll[sub] = allOf[of] || sub == "*", ofAll[sub] || of == "*"
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(at, resources, "if '*/*' is present, must not specify other resources"))
	}
	if slices.Contains(resources, "*") && plain {
		errs = append(errs, field.Invalid(at, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}
