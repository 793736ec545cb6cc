package openapi

import (
	"maps"
	"slices"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// swagger returns the OpenAPI v2 document of all versions of all kinds.
func swagger(versions []Resource, version string) *spec.Swagger {
	b := newBuilder(version2, versions)
	s := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: info(version), Definitions: spec.Definitions{}, Paths: &spec.Paths{Paths: map[string]spec.PathItem{}},
	}}
	for name, definition := range b.schemas {
		s.Definitions[name] = *definition
	}
	for path, of := range b.paths {
		s.Paths.Paths[path] = spec.PathItem{PathItemProps: spec.PathItemProps{
			Parameters: parameters(of.Parameters),
			Get:        operation2(of.Get), Put: operation2(of.Put), Post: operation2(of.Post), Patch: operation2(of.Patch), Delete: operation2(of.Delete),
		}}
	}
	return s
}

func parameters(of []*spec3.Parameter) []spec.Parameter {
	var all []spec.Parameter
	for _, p := range of {
		all = append(all, spec.Parameter{
			ParamProps:        spec.ParamProps{Name: p.Name, In: p.In, Description: p.Description, Required: p.Required},
			SimpleSchema:      spec.SimpleSchema{Type: p.Schema.Type[0]},
			CommonValidations: spec.CommonValidations{UniqueItems: p.Schema.UniqueItems},
		})
	}
	return all
}

func operation2(of *spec3.Operation) *spec.Operation {
	if of == nil {
		return nil
	}
	op := &spec.Operation{VendorExtensible: of.VendorExtensible, OperationProps: spec.OperationProps{
		Parameters: parameters(of.Parameters),
		Responses:  &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{}}},
	}}
	for code, answer := range of.Responses.StatusCodeResponses {
		op.Produces = slices.Sorted(maps.Keys(answer.Content))
		op.Responses.StatusCodeResponses[code] = spec.Response{ResponseProps: spec.ResponseProps{
			Description: answer.Description, Schema: answer.Content[op.Produces[0]].Schema,
		}}
	}
	if body := of.RequestBody; body != nil {
		op.Consumes = slices.Sorted(maps.Keys(body.Content))
		op.Parameters = append(op.Parameters, spec.Parameter{ParamProps: spec.ParamProps{
			Name: "body", In: "body", Required: body.Required, Schema: body.Content[op.Consumes[0]].Schema,
		}})
	}
	return op
}

// downgrade converts a structural schema to OpenAPI v2 in a way that clients of v2 understand, like apiextensions'
// ToStructuralOpenAPIV2 without defaults. It changes s.
func downgrade(s *spec.Schema) *spec.Schema {
	s.AllOf, s.AnyOf, s.OneOf, s.Not, s.Default = nil, nil, nil, nil, nil
	keeps := s.Extensions["x-kubernetes-preserve-unknown-fields"] == true
	if s.Nullable || keeps {
		s.Items, s.Properties = nil, nil
	}
	if s.Nullable || keeps && s.Type.Contains("object") || s.Items == nil && s.Type.Contains("array") {
		s.Type = nil
	}
	s.Nullable = false
	for name, property := range s.Properties {
		if property.Nullable {
			s.Required = slices.DeleteFunc(s.Required, func(required string) bool { return required == name })
		}
		s.Properties[name] = *downgrade(&property)
	}
	if s.Items != nil {
		downgrade(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		if s.AdditionalProperties.Schema.Nullable {
			s.Required = nil
		}
		downgrade(s.AdditionalProperties.Schema)
	}
	return s
}
