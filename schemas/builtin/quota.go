package builtin

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// prepareResourceQuota rewrites quantities in their canonical form, as Kubernetes stores them. What is no quantity stays:
// the schema rejects it.
func prepareResourceQuota(obj, _ map[string]any) {
	canonicalQuantities(entries(entries(obj, "spec"), "hard"))
	canonicalQuantities(entries(entries(obj, "status"), "hard"))
	canonicalQuantities(entries(entries(obj, "status"), "used"))
}

func canonicalQuantities(list map[string]any) {
	for _, name := range slices.Collect(maps.Keys(list)) {
		text, ok := list[name].(string)
		if !ok {
			raw, err := json.Marshal(list[name])
			if err != nil {
				continue
			}
			text = string(raw)
		}
		if q, err := resource.ParseQuantity(strings.TrimSpace(text)); err == nil {
			list[name] = q.String()
		}
	}
}

// Names of what quotas limit. Kubernetes knows those without a prefix; count/ and others have one.
var (
	standardQuotaResources = sets.New("cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.storage",
		"requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage", "pods", "resourcequotas", "services",
		"replicationcontrollers", "secrets", "persistentvolumeclaims", "configmaps", "services.nodeports", "services.loadbalancers")
	integerResources = sets.New("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
		"persistentvolumeclaims", "services.nodeports", "services.loadbalancers")
	podResources = sets.New("pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
)

// scopeResources are the standard resources that each scope of Kubernetes can be about.
var scopeResources = map[string]sets.Set[string]{
	"Terminating": podResources, "NotTerminating": podResources, "NotBestEffort": podResources, "PriorityClass": podResources,
	"CrossNamespacePodAffinity": podResources, "BestEffort": sets.New("pods"),
	"VolumeAttributesClass": sets.New("persistentvolumeclaims", "requests.storage"),
}

// existsOnly are the scopes without values.
var existsOnly = sets.New("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity")

// QuotaNames are what quotas may name besides what Kubernetes knows: a policy has defined it.
type QuotaNames interface {
	// HasQuotaResource reports whether the policy defines a resource of this name.
	HasQuotaResource(name string) bool
	// HasQuotaScope reports whether the policy defines a scope of this name, and whether it has values.
	HasQuotaScope(name string) (has, values bool)
}

// IsStandardQuotaResource reports whether Kubernetes gives a name without prefix a meaning in quotas.
func IsStandardQuotaResource(name string) bool {
	return standardQuotaResources.Has(name) || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) || strings.HasPrefix(name, corev1.ResourceRequestsHugePagesPrefix)
}

// IsStandardQuotaScope reports whether Kubernetes has a scope of this name.
func IsStandardQuotaScope(name string) bool { return scopeResources[name] != nil }

// ValidateResourceQuota returns the violations of Kubernetes' rules for a ResourceQuota, with its wording. Names that the
// policy defines are valid, too; names may be nil. old is nil on create.
func ValidateResourceQuota(obj, old map[string]any, names QuotaNames) field.ErrorList {
	v := quotaValidation{names: names}
	spec := entries(obj, "spec")
	v.limits(entries(spec, "hard"), field.NewPath("spec", "hard"))
	hard := slices.Sorted(maps.Keys(entries(spec, "hard")))
	v.scopes(spec, hard)
	if selector := entries(spec, "scopeSelector"); selector != nil {
		v.selector(selector, spec, hard)
	}
	v.limits(entries(entries(obj, "status"), "hard"), field.NewPath("status", "hard"))
	v.limits(entries(entries(obj, "status"), "used"), field.NewPath("status", "used"))
	if old != nil {
		is, was := textsOf(spec["scopes"]), textsOf(entries(old, "spec")["scopes"])
		if !sets.New(is...).Equal(sets.New(was...)) {
			v.add(field.Invalid(field.NewPath("spec", "scopes"), is, apivalidation.FieldImmutableErrorMsg))
		}
	}
	return v.errs
}

type quotaValidation struct {
	names QuotaNames
	errs  field.ErrorList
}

func (v *quotaValidation) add(errs ...*field.Error) { v.errs = append(v.errs, errs...) }

func (v *quotaValidation) ownResource(name string) bool {
	return v.names != nil && v.names.HasQuotaResource(name)
}

func (v *quotaValidation) ownScope(name string) (has, values bool) {
	if v.names == nil {
		return false, false
	}
	return v.names.HasQuotaScope(name)
}

// limits checks names and values of a list of resources.
func (v *quotaValidation) limits(list map[string]any, path *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at, own := path.Key(name), v.ownResource(name)
		if !own {
			v.resourceName(name, at)
		}
		text, _ := list[name].(string)
		q, err := resource.ParseQuantity(text)
		if err != nil {
			continue // the schema rejects it
		}
		if q.Sign() < 0 {
			v.add(field.Invalid(at, q.String(), apivalidation.IsNegativeErrorMsg))
		}
		if !own && isInteger(name) && q.MilliValue()%1000 != 0 {
			v.add(field.Invalid(at, text, "must be an integer"))
		}
	}
}

func (v *quotaValidation) resourceName(name string, at *field.Path) {
	messages := validation.IsQualifiedName(name)
	for _, message := range messages {
		v.add(field.Invalid(at, name, message))
	}
	if strings.Contains(name, "/") || IsStandardQuotaResource(name) {
		return
	}
	if len(messages) == 0 && name != "storage" {
		v.add(field.Invalid(at, name, "must be a standard resource type or fully qualified"))
	}
	v.add(field.Invalid(at, name, "must be a standard resource for quota"))
}

// isInteger reports whether Kubernetes counts a resource in whole numbers: its own counts, and everything that a prefix
// other than kubernetes.io names.
func isInteger(name string) bool {
	if integerResources.Has(name) {
		return true
	}
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) && len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}

func (v *quotaValidation) scopes(spec map[string]any, hard []string) {
	scopes, path := textsOf(spec["scopes"]), field.NewPath("spec", "scopes")
	for _, scope := range scopes {
		has, values := v.ownScope(scope)
		switch {
		case has && values:
			v.add(field.Invalid(path, scopes, "the scope "+scope+" has values; name them in scopeSelector"))
		case !has && !IsStandardQuotaScope(scope):
			v.add(field.Invalid(path, scopes, "unsupported scope"))
		}
		if v.misfits(scope, hard) {
			v.add(field.Invalid(path, scopes, "unsupported scope applied to resource"))
		}
	}
	v.conflicts(scopes, spec, path)
}

// misfits reports whether a scope of Kubernetes cannot be about one of the standard resources in hard.
func (v *quotaValidation) misfits(scope string, hard []string) bool {
	return slices.ContainsFunc(hard, func(name string) bool {
		return IsStandardQuotaScope(scope) && IsStandardQuotaResource(name) && !scopeResources[scope].Has(name)
	})
}

func (v *quotaValidation) conflicts(scopes []string, spec map[string]any, path *field.Path) {
	for _, pair := range [...][2]string{{"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"}} {
		if slices.Contains(scopes, pair[0]) && slices.Contains(scopes, pair[1]) {
			v.add(field.Invalid(path, textsOf(spec["scopes"]), "conflicting scopes"))
		}
	}
}

func (v *quotaValidation) selector(selector, spec map[string]any, hard []string) {
	path := field.NewPath("spec", "scopeSelector", "matchExpressions")
	list, _ := selector["matchExpressions"].([]any)
	var scopes []string
	for _, item := range list {
		e, _ := item.(map[string]any)
		scope, operator, values := text(e, "scopeName"), text(e, "operator"), textsOf(e["values"])
		scopes = append(scopes, scope)
		has, valued := v.ownScope(scope)
		if !has && !IsStandardQuotaScope(scope) {
			v.add(field.Invalid(path.Child("scopeName"), scope, "unsupported scope"))
		}
		if v.misfits(scope, hard) {
			v.add(field.Invalid(path, selector, "unsupported scope applied to resource"))
		}
		if existsOnly.Has(scope) && operator != "Exists" {
			v.add(field.Invalid(path.Child("operator"), operator, "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
		}
		switch operator {
		case "In", "NotIn":
			if len(values) == 0 {
				v.add(field.Required(path.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
			}
			if has && !valued {
				v.add(field.Invalid(path.Child("operator"), operator, "must be 'Exists' or 'DoesNotExist': the scope "+scope+" has no values"))
			}
		case "Exists", "DoesNotExist":
			if len(values) != 0 {
				v.add(field.Invalid(path.Child("values"), values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
			}
		default:
			v.add(field.Invalid(path.Child("operator"), operator, "not a valid selector operator"))
		}
	}
	v.conflicts(scopes, spec, path)
}

// textsOf returns the strings of a list.
func textsOf(list any) (texts []string) {
	items, _ := list.([]any)
	for _, item := range items {
		if s, ok := item.(string); ok {
			texts = append(texts, s)
		}
	}
	return texts
}
