package brought

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
)

// The kinds of RBAC, with the defaults and the validation of kube-apiserver's package rbac.
var (
	ClusterRoles = ofRBAC(newKind(rbacv1.GroupName, "clusterroles", fields{}.with("aggregationRule", fields{}.with("clusterRoleSelectors", atomic()).object()).with("rules", atomic()).object(),
		validateClusterRole), false)
	Roles = ofRBAC(newKind(rbacv1.GroupName, "roles", fields{}.with("rules", atomic()).object(),
		func(r, _ *rbacv1.Role) field.ErrorList { return validateRules(r.Rules, true) }), true)
	ClusterRoleBindings = ofRBAC(newKind(rbacv1.GroupName, "clusterrolebindings", bindingContent(),
		func(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
			if old == nil {
				old = b
			}
			return validateBinding(&b.RoleRef, &old.RoleRef, b.Subjects, []string{"ClusterRole"})
		}), false)
	RoleBindings = ofRBAC(newKind(rbacv1.GroupName, "rolebindings", bindingContent(),
		func(b, old *rbacv1.RoleBinding) field.ErrorList {
			if old == nil {
				old = b
			}
			return validateBinding(&b.RoleRef, &old.RoleRef, b.Subjects, []string{"Role", "ClusterRole"})
		}), true)

	rbac = []*Kind{ClusterRoles, Roles, ClusterRoleBindings, RoleBindings}
)

// SectionRBAC is the field of the section dynamic that is about RBAC.
const SectionRBAC = "rbac"

func ofRBAC(k *Kind, namespaced bool) *Kind {
	k.Section, k.Namespaced, k.Names = SectionRBAC, namespaced, segmentName
	k.Versions[0].AllowCreateOnUpdate, k.Versions[0].AllowUnconditionalUpdate = true, true
	return k
}

// segmentName returns what is wrong with the name of an object of RBAC, which must fit into a path, or with the beginning of one.
func segmentName(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

func bindingContent() *schemas.Node {
	return fields{}.with("roleRef", whole()).with("subjects", atomic()).object()
}

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		if s := &subjects[i]; s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

func validateClusterRole(r, _ *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(r.Rules, false)
	if r.AggregationRule == nil {
		return errs
	}
	at := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		return append(errs, field.Required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		errs = append(errs, metav1validation.ValidateLabelSelector(&r.AggregationRule.ClusterRoleSelectors[i], metav1validation.LabelSelectorValidationOptions{}, at.Index(i))...)
	}
	return errs
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) (errs field.ErrorList) {
	for i := range rules {
		errs = append(errs, validateRule(&rules[i], namespaced, field.NewPath("rules").Index(i))...)
	}
	return errs
}

func validateRule(r *rbacv1.PolicyRule, namespaced bool, at *field.Path) (errs field.ErrorList) {
	if len(r.Verbs) == 0 {
		errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
	}
	if len(r.NonResourceURLs) > 0 {
		if namespaced {
			errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
		}
		if len(r.APIGroups) > 0 || len(r.Resources) > 0 || len(r.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(r.APIGroups) == 0 {
		errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(r.Resources) == 0 {
		errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}

func validateBinding(ref, old *rbacv1.RoleRef, subjects []rbacv1.Subject, kinds []string) (errs field.ErrorList) {
	at := field.NewPath("roleRef")
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	known := false
	for _, kind := range kinds {
		known = known || ref.Kind == kind
	}
	if !known {
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, kinds))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		for _, message := range content.IsPathSegmentName(ref.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), ref.Name, message))
		}
	}
	for i := range subjects {
		errs = append(errs, validateSubject(&subjects[i], len(kinds) > 1, field.NewPath("subjects").Index(i))...)
	}
	if *ref != *old {
		errs = append(errs, field.Invalid(at, *ref, "cannot change roleRef"))
	}
	return errs
}

func validateSubject(s *rbacv1.Subject, namespaced bool, at *field.Path) (errs field.ErrorList) {
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			for _, message := range validation.ValidateServiceAccountName(s.Name, false) {
				errs = append(errs, field.Invalid(at.Child("name"), s.Name, message))
			}
		}
		if s.APIGroup != "" {
			errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{""}))
		}
		if !namespaced && s.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		if s.APIGroup != rbacv1.GroupName {
			errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{rbacv1.GroupName}))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	return errs
}
