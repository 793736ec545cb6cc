package crd

import (
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"stele.dev/stele/schemas"
)

// OpenAPI returns the schema of a version as upstream publishes it, without the fields that every object
// has. It returns nil if the kind has no CustomResourceDefinition.
func OpenAPI(k *schemas.Kind, version string) *spec.Schema {
	if k.Definition.IsZero() {
		return nil
	}
	written, err := schemaOf(k, version)
	if err != nil {
		return nil // cannot happen: the version was compiled from the definition
	}
	var props apiextensions.JSONSchemaProps
	if err := Scheme.Converter().Convert(written, &props, nil); err != nil {
		return nil
	}
	s, err := structural.NewStructural(&props)
	if err != nil {
		return nil
	}
	return s.Unfold().ToKubeOpenAPI()
}
