package rendered

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/object/difference"
	"stele.dev/stele/core/read"
	"stele.dev/stele/policy/layer"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/brought"
)

// difference returns in what an object differs from the rendered one, such as "rules[0].verbs"; "" if both mean the same, with the defaults of
// kube-apiserver. Labels, annotations, what the server sets in metadata, status and descriptions do not count.
func (w *write) difference(after []byte) (string, error) {
	var said [2]metav1.Object
	for i, text := range [][]byte{w.there.JSON, after} {
		o := reflect.New(w.v.kind.Type).Interface()
		if err := json.Unmarshal(text, o); err != nil {
			return "", call.Unfit(w.c.Kind.GroupVersionKind(), err)
		}
		brought.Default(o)
		said[i] = o.(metav1.Object)
	}
	was, is := said[0], said[1]
	if is.GetNamespace() == "" {
		is.SetNamespace(was.GetNamespace())
	}
	for _, o := range said {
		v := reflect.ValueOf(o).Elem()
		v.FieldByName("ObjectMeta").Set(reflect.ValueOf(metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: o.GetName(), OwnerReferences: o.GetOwnerReferences(), Finalizers: o.GetFinalizers(),
		}))
		v.FieldByName("TypeMeta").SetZero() // the path says it
		if s := v.FieldByName("Status"); s.IsValid() {
			s.SetZero()
		}
	}
	alike(was, is)
	if apiequality.Semantic.DeepEqual(was, is) {
		return "", nil
	}
	return differing(was, is)
}

// differing returns the first path in which two objects differ.
func differing(was, is any) (string, error) {
	var said [2]map[string]any
	for i, o := range []any{was, is} {
		text, err := json.Marshal(o)
		if err != nil {
			return "", err
		}
		if said[i], err = read.DecodePayload(text); err != nil {
			return "", err
		}
	}
	for _, schema := range []*schemas.Node{named, nil} { // the second one finds another order of named ones
		if entries := difference.Between(said[0], said[1], difference.Options{Schema: schema, Everything: true}); len(entries) > 0 {
			return entries[0].Path, nil
		}
	}
	return "its contents", nil // JSON leaves out what differs
}

// named are the lists whose items a path names, because they were sorted before they were compared.
var named = &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{{
	Name: "webhooks", Schema: &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Type: schemas.ListMap, MapKeys: []string{"name"}}},
}}}}

// alike makes those parts of two objects equal that mean the same.
func alike(was, is any) {
	switch is := is.(type) {
	case *rbacv1.ClusterRole:
		was := was.(*rbacv1.ClusterRole)
		if was.AggregationRule != nil && len(is.Rules) == 0 && apiequality.Semantic.DeepEqual(was.AggregationRule, is.AggregationRule) {
			is.Rules = was.Rules // the server fills them in
		}
		sameRules(was.Rules, &is.Rules)
	case *rbacv1.Role:
		sameRules(was.(*rbacv1.Role).Rules, &is.Rules)
	case *rbacv1.ClusterRoleBinding:
		sameSubjects(was.(*rbacv1.ClusterRoleBinding).Subjects, &is.Subjects)
	case *rbacv1.RoleBinding:
		sameSubjects(was.(*rbacv1.RoleBinding).Subjects, &is.Subjects)
	case *admissionv1.ValidatingWebhookConfiguration:
		was := was.(*admissionv1.ValidatingWebhookConfiguration)
		for _, list := range [][]admissionv1.ValidatingWebhook{was.Webhooks, is.Webhooks} { // all are asked at once
			slices.SortStableFunc(list, func(a, b admissionv1.ValidatingWebhook) int { return strings.Compare(a.Name, b.Name) })
		}
		for i := range min(len(was.Webhooks), len(is.Webhooks)) {
			was, is := &was.Webhooks[i], &is.Webhooks[i]
			sameWebhook(&was.ClientConfig, &is.ClientConfig, was.Rules, is.Rules)
			if slices.Contains(is.AdmissionReviewVersions, "v1") { // the one that is sent
				is.AdmissionReviewVersions = was.AdmissionReviewVersions
			}
		}
	case *admissionv1.MutatingWebhookConfiguration:
		was := was.(*admissionv1.MutatingWebhookConfiguration)
		for i := range min(len(was.Webhooks), len(is.Webhooks)) {
			was, is := &was.Webhooks[i], &is.Webhooks[i]
			sameWebhook(&was.ClientConfig, &is.ClientConfig, was.Rules, is.Rules)
			if slices.Contains(is.AdmissionReviewVersions, "v1") { // the one that is sent
				is.AdmissionReviewVersions = was.AdmissionReviewVersions
			}
		}
	case *apiextensionsv1.CustomResourceDefinition:
		for _, d := range []*apiextensionsv1.CustomResourceDefinition{was.(*apiextensionsv1.CustomResourceDefinition), is} {
			for i := range d.Spec.Versions {
				if s := d.Spec.Versions[i].Schema; s != nil && s.OpenAPIV3Schema != nil {
					undescribed(s.OpenAPIV3Schema)
					implied(s.OpenAPIV3Schema)
				}
			}
		}
	}
}

// sameRules makes the second rules the first ones if they grant the same.
func sameRules(was []rbacv1.PolicyRule, is *[]rbacv1.PolicyRule) {
	if layer.TooMany(was, *is) {
		return
	}
	less, _ := validation.Covers(was, *is)
	more, _ := validation.Covers(*is, was)
	if less && more {
		*is = was
	}
}

// sameSubjects makes the second subjects the first ones if they are the same in another order.
func sameSubjects(was []rbacv1.Subject, is *[]rbacv1.Subject) {
	sorted := func(list []rbacv1.Subject) []rbacv1.Subject {
		list = slices.Clone(list)
		slices.SortFunc(list, func(a, b rbacv1.Subject) int {
			return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.APIGroup, b.APIGroup))
		})
		return slices.Compact(list)
	}
	if slices.Equal(sorted(was), sorted(*is)) {
		*is = was
	}
}

// sameWebhook sorts the rules of a webhook, and gives it the authority of the first one if it has none, as programs that fill that in do.
func sameWebhook(was, is *admissionv1.WebhookClientConfig, rules ...[]admissionv1.RuleWithOperations) {
	if len(is.CABundle) == 0 {
		is.CABundle = was.CABundle
	}
	for _, list := range rules {
		for i := range list {
			slices.Sort(list[i].Operations)
			for _, names := range [][]string{list[i].APIGroups, list[i].APIVersions, list[i].Resources} {
				slices.Sort(names)
			}
		}
		slices.SortStableFunc(list, func(a, b admissionv1.RuleWithOperations) int { return strings.Compare(a.String(), b.String()) })
	}
}

// implied removes from the schema of an object what every object has.
func implied(s *apiextensionsv1.JSONSchemaProps) {
	for name, of := range map[string]string{"apiVersion": "string", "kind": "string", "metadata": "object"} {
		if p, ok := s.Properties[name]; ok && apiequality.Semantic.DeepEqual(p, apiextensionsv1.JSONSchemaProps{Type: of}) {
			delete(s.Properties, name)
		}
	}
}

// plain writes a value as any text of it would be. v may be nil.
func plain(v *apiextensionsv1.JSON) {
	var value any
	if v == nil || kjson.UnmarshalCaseSensitivePreserveInts(v.Raw, &value) != nil {
		return // what is no JSON is compared as it is
	}
	if text, err := json.Marshal(value); err == nil {
		v.Raw = text
	}
}

// undescribed removes the descriptions from a schema, and writes its values alike.
func undescribed(s *apiextensionsv1.JSONSchemaProps) {
	if s == nil {
		return
	}
	s.Description = ""
	plain(s.Default)
	plain(s.Example)
	for i := range s.Enum {
		plain(&s.Enum[i])
	}
	for _, all := range []map[string]apiextensionsv1.JSONSchemaProps{s.Properties, s.PatternProperties, s.Definitions} {
		for name, of := range all {
			undescribed(&of)
			all[name] = of
		}
	}
	for _, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			undescribed(&list[i])
		}
	}
	undescribed(s.Not)
	if s.Items != nil {
		undescribed(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		undescribed(s.AdditionalProperties.Schema)
	}
}

// lastApplied is the annotation in which kubectl keeps what it has applied.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
