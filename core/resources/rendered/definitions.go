// This file shows the kinds of the policy in force as CustomResourceDefinitions, so that clients find them:
// kubectl wait, and controllers that start when their kinds are established. They are rendered. To
// change one, change the policy.
//
// A kind that was written as a definition is shown as that, with defaults. Another kind has the part of its schema
// that OpenAPI can express; its CEL rules, and columns that are templates, are not shown.

package rendered

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"stele.dev/stele/core/catalog/openapi"

	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/crd/definitions"
	schemaopenapi "stele.dev/stele/schemas/openapi"
)

// Definitions is the kind of the definitions.
var Definitions = &Kind{
	Version: withStatus(openapi.NewVersion(schemas.Kind{
		Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition", Plural: "customresourcedefinitions",
		ShortNames: []string{"crd", "crds"}, Categories: []string{"api-extensions"}, StorageVersion: "v1",
	}, definitionContent())),
	Type:    reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](),
	Brought: func(o *objects.Object) bool { return definitions.Is(o.JSON) },
	Entries: definitionEntries, Find: findDefinition, Counted: true, Section: "customresourcedefinitions", Says: "kinds are", Part: "kinds or crds of a team in the bundle",
}

// withStatus returns a version with the subresource status.
func withStatus(v *policy.Version) *policy.Version {
	v.Status = true
	return v
}

// definitionContent returns the schema for OpenAPI, with Kubernetes' descriptions.
func definitionContent() *schemas.Node {
	open := func(doc string) *schemas.Node {
		return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Open: true}, Doc: doc}
	}
	return &schemas.Node{
		Kinds: schemas.StructKind,
		Doc:   "CustomResourceDefinition represents a resource that should be exposed on the API server.  Its name MUST be in the format <.spec.name>.<.spec.group>.",
		Struct: &schemas.Struct{Fields: []schemas.Field{
			{Name: "spec", Presence: schemas.Required, Schema: open("spec describes how the user wants the resources to appear")},
			{Name: "status", Presence: schemas.Optional, Schema: open("status indicates the actual state of the CustomResourceDefinition")},
		}},
	}
}

func definitionEntries(f *policy.Form) (list []*Entry) {
	for i := range f.Kinds {
		if k := &f.Kinds[i]; !k.Builtin {
			list = append(list, definitionEntry(k))
		}
	}
	return list
}

func findDefinition(f *policy.Form, _, name string) *Entry {
	i := slices.IndexFunc(f.Kinds, func(k schemas.Kind) bool { return !k.Builtin && k.Resource() == name })
	if i < 0 {
		return nil
	}
	return definitionEntry(&f.Kinds[i])
}

func definitionEntry(k *schemas.Kind) *Entry {
	e := &Entry{Name: k.Resource(), ID: "kinds/" + k.Resource(), Source: k.Source, Rule: k}
	if k.Definition.IsZero() {
		e.Hint = ", or keep it as a definition (`stele policy import --keep-crds`): a kind in CUE is shown without what OpenAPI cannot say"
	} else {
		written := definitionOf(k)
		e.Labels, e.Annotations = written.Metadata.Labels, written.Metadata.Annotations
	}
	e.Render = func(t metav1.TypeMeta, meta metav1.ObjectMeta) any {
		var spec any
		if k.Definition.IsZero() {
			spec = specOf(k)
		} else {
			spec = definitionOf(k).Spec // entries stay in memory, so they do not hold it
		}
		return &struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Spec              any                                            `json:"spec"`
			Status            apiextensionsv1.CustomResourceDefinitionStatus `json:"status"`
		}{t, meta, spec, statusOf(k, meta.CreationTimestamp)}
	}
	return e
}

// definition is a definition that a bundle has.
type definition struct {
	Metadata struct{ Labels, Annotations map[string]string }
	Spec     json.RawMessage
}

// definitionOf returns the definition of a kind that was written as one.
func definitionOf(k *schemas.Kind) (d definition) {
	if err := json.Unmarshal(k.Definition.Bytes(), &d); err != nil {
		panic(fmt.Sprintf("definitions: %v", err)) // the compiler wrote valid JSON
	}
	return d
}

func definitionNames(k *schemas.Kind) apiextensionsv1.CustomResourceDefinitionNames {
	return apiextensionsv1.CustomResourceDefinitionNames{
		Plural: k.Plural, Singular: k.Singular, ShortNames: k.ShortNames, Kind: k.Kind, ListKind: k.ListKind, Categories: k.Categories,
	}
}

// statusOf returns the status of a definition in force, as Kubernetes' controllers write it when it is created.
func statusOf(k *schemas.Kind, created metav1.Time) apiextensionsv1.CustomResourceDefinitionStatus {
	return apiextensionsv1.CustomResourceDefinitionStatus{
		Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: created, Reason: "NoConflicts", Message: "no conflicts found"},
			{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: created, Reason: "InitialNamesAccepted", Message: "the initial names have been accepted"},
		},
		AcceptedNames: definitionNames(k), StoredVersions: []string{k.StorageVersion},
	}
}

// specOf returns the spec of a kind that was not written as a definition.
func specOf(k *schemas.Kind) *apiextensionsv1.CustomResourceDefinitionSpec {
	s := &apiextensionsv1.CustomResourceDefinitionSpec{
		Group: k.Group, Names: definitionNames(k), Scope: apiextensionsv1.ClusterScoped,
		Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
	}
	if k.Namespaced {
		s.Scope = apiextensionsv1.NamespaceScoped
	}
	for i := range k.Versions {
		v := &k.Versions[i]
		out := apiextensionsv1.CustomResourceDefinitionVersion{
			Name: v.Name, Served: v.Served, Storage: v.Name == k.StorageVersion,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schemaOf(v.Schema)},
		}
		if v.Deprecated != "" {
			out.Deprecated, out.DeprecationWarning = true, &v.Deprecated
		}
		out.Subresources = subresourcesOf(v)
		for _, c := range v.Columns {
			if !strings.HasPrefix(c.JSONPath, "{") {
				out.AdditionalPrinterColumns = append(out.AdditionalPrinterColumns, apiextensionsv1.CustomResourceColumnDefinition{
					Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority, JSONPath: c.JSONPath})
			}
		}
		for _, path := range v.SelectableFields {
			out.SelectableFields = append(out.SelectableFields, apiextensionsv1.SelectableField{JSONPath: path})
		}
		s.Versions = append(s.Versions, out)
	}
	return s
}

func subresourcesOf(v *schemas.Version) *apiextensionsv1.CustomResourceSubresources {
	if !v.Status && v.Scale == nil {
		return nil
	}
	s := &apiextensionsv1.CustomResourceSubresources{}
	if v.Status {
		s.Status = &apiextensionsv1.CustomResourceSubresourceStatus{}
	}
	if v.Scale != nil {
		s.Scale = &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: v.Scale.SpecReplicasPath, StatusReplicasPath: v.Scale.StatusReplicasPath}
		if path := v.Scale.LabelSelectorPath; path != "" {
			s.Scale.LabelSelectorPath = &path
		}
	}
	return s
}

// schemaOf returns the part of a schema that OpenAPI can express.
func schemaOf(n *schemas.Node) *apiextensionsv1.JSONSchemaProps {
	s := schemaopenapi.Of(n)
	if s.Properties == nil {
		s.Properties = map[string]spec.Schema{}
	}
	s.Properties["apiVersion"], s.Properties["kind"] = *spec.StringProperty(), *spec.StringProperty()
	s.Properties["metadata"] = spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
	out := &apiextensionsv1.JSONSchemaProps{}
	text, err := s.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		panic(fmt.Sprintf("definitions: %v", err)) // both have the same JSON
	}
	return out
}
