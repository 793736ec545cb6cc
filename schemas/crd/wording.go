package crd

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"
	"stele.dev/stele/schemas"
)

// A Wording returns upstream's error messages for objects of a version of a custom resource. It does not
// decide validity; a [stele.dev/stele/schemas/program.Program] does. It is safe for concurrent use.
type Wording struct {
	structural *structural.Structural
	schema     validation.SchemaValidator
	status     validation.SchemaValidator
}

// NewWording returns the wording of a version of a kind, or nil if the kind has no
// CustomResourceDefinition.
func NewWording(k *schemas.Kind, version string) (*Wording, error) {
	if k.Definition.IsZero() {
		return nil, nil
	}
	schema, err := schemaOf(k, version)
	if err != nil {
		return nil, err
	}
	return newWording(schema)
}

// schemaOf returns the schema of a version from the definition of its kind.
func schemaOf(k *schemas.Kind, version string) (*apiextensionsv1.JSONSchemaProps, error) {
	var written struct {
		Spec apiextensionsv1.CustomResourceDefinitionSpec
	}
	if err := json.Unmarshal(k.Definition.Bytes(), &written); err != nil {
		return nil, fmt.Errorf("crd: %w", err)
	}
	for i := range written.Spec.Versions {
		if v := &written.Spec.Versions[i]; v.Name == version && v.Schema != nil {
			return v.Schema.OpenAPIV3Schema, nil
		}
	}
	return nil, fmt.Errorf("crd: the definition of %s has no version %q", k.Resource(), version)
}

func newWording(schema *apiextensionsv1.JSONSchemaProps) (*Wording, error) {
	var props apiextensions.JSONSchemaProps
	if err := Scheme.Converter().Convert(schema, &props, nil); err != nil {
		return nil, fmt.Errorf("crd: %w", err)
	}
	w := &Wording{}
	var err error
	if w.structural, err = structural.NewStructural(&props); err != nil {
		return nil, fmt.Errorf("crd: %w", err)
	}
	if w.schema, _, err = validation.NewSchemaValidator(&props); err != nil {
		return nil, fmt.Errorf("crd: %w", err)
	}
	if status, ok := props.Properties["status"]; ok {
		if w.status, _, err = validation.NewSchemaValidator(&status); err != nil {
			return nil, fmt.Errorf("crd: %w", err)
		}
	}
	return w, nil
}

// Errors returns upstream's errors for an object that has apiVersion, kind and metadata. old is the
// object before an update, or nil. With status, only the status is written. CEL rules are not evaluated.
func (w *Wording) Errors(ctx context.Context, object, old map[string]any, status bool) (errs field.ErrorList) {
	if old == nil {
		errs = validation.ValidateCustomResource(nil, object, w.schema)
		errs = append(errs, objectmeta.Validate(ctx, nil, object, w.structural, false)...)
		return append(errs, listtype.ValidateListSetsAndMaps(nil, w.structural, object)...)
	}
	correlated := common.NewCorrelatedObject(object, old, &model.Structural{Structural: w.structural})
	switch part, has := object["status"]; {
	case !status:
		errs = validation.ValidateCustomResourceUpdate(nil, object, old, w.schema, validation.WithRatcheting(correlated))
	case has && w.status != nil:
		errs = validation.ValidateCustomResourceUpdate(field.NewPath("status"), part, old["status"], w.status, validation.WithRatcheting(correlated.Key("status")))
	}
	errs = append(errs, objectmeta.Validate(ctx, nil, object, w.structural, false)...)
	if len(listtype.ValidateListSetsAndMaps(nil, w.structural, old)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, w.structural, object)...)
	}
	return errs
}
