package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	openapi "k8s.io/kube-openapi/pkg/validation/spec"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/schemas/crd"
)

// Definition is a CustomResourceDefinition.
type Definition = apiextensionsv1.CustomResourceDefinition

// Decode decodes a definition that is stored, as JSON.
func Decode(text []byte) (*Definition, error) {
	d := &Definition{}
	return d, kjson.UnmarshalCaseSensitivePreserveInts(text, d)
}

// Is reports whether a stored object of the resource is a definition that the API brought. What clients have written beside a definition of
// the bundle has no spec.
func Is(text []byte) bool {
	return gjson.GetBytes(text, "spec").IsObject()
}

// of returns a definition with the content of an object: all its fields but metadata. It decodes no schemas that nest too deeply. strict are the errors of strict decoding.
func of(content map[string]any) (d *Definition, strict []error, err error) {
	if path := crd.TooDeep(content); path != "" {
		return nil, nil, fmt.Errorf("%s: schemas nest too deeply", path)
	}
	text, err := json.Marshal(map[string]any{"spec": content["spec"], "status": content["status"]})
	if err != nil {
		return nil, nil, err
	}
	d = &Definition{}
	strict, err = kjson.UnmarshalStrict(text, d)
	return d, strict, err
}

// write makes the content that of a definition.
func write(d *Definition, content map[string]any) error {
	text, err := json.Marshal(map[string]any{"spec": &d.Spec, "status": &d.Status})
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &fields); err != nil {
		return err
	}
	content["spec"], content["status"] = fields["spec"], fields["status"]
	return nil
}

// Prepare fills in the defaults of a definition, and drops fields that definitions do not have, whose paths it returns. A content that cannot be
// decoded stays as it is.
func Prepare(content map[string]any) (unknown []string) {
	d, strict, err := of(content)
	if err != nil {
		return nil // the validation refuses what nests too deeply
	}
	for _, e := range strict {
		if _, quoted, ok := strings.Cut(e.Error(), `unknown field "`); ok {
			unknown = append(unknown, strings.TrimSuffix(quoted, `"`))
		}
	}
	crd.Scheme.Default(d)
	var internal apiextensions.CustomResourceDefinition
	if crd.Scheme.Convert(d, &internal, nil) == nil { // as upstream, which stores what it converts
		again := &Definition{}
		if crd.Scheme.Convert(&internal, again, nil) == nil {
			d = again
		}
	}
	if write(d, content) != nil {
		return nil
	}
	return unknown
}

// KeepStatus sets the status of a definition that is created, or written without its status: that of the stored one, whose content is old, and the storage
// version among the stored versions. old is nil for a create.
func KeepStatus(content, old map[string]any) {
	d, _, err := of(content)
	if err != nil {
		return
	}
	d.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	if old != nil {
		if was, _, err := of(old); err == nil {
			d.Status = was.Status
		}
	}
	for i := range d.Spec.Versions {
		if v := &d.Spec.Versions[i]; v.Storage {
			if !slices.Contains(d.Status.StoredVersions, v.Name) {
				d.Status.StoredVersions = append(d.Status.StoredVersions, v.Name)
			}
			break
		}
	}
	_ = write(d, content) // it was decoded from JSON
}

// Written is a write of a definition.
type Written struct {
	Meta, OldMeta *metav1.ObjectMeta
	// Content and OldContent are all other fields. OldMeta and OldContent are nil for a create.
	Content, OldContent map[string]any
	// Status is set for a write to the subresource status.
	Status bool
}

// Validate returns the errors and the warnings of kube-apiserver. A content that cannot be decoded has no errors: the type of the object says that.
func Validate(ctx context.Context, w *Written) (errs field.ErrorList, warnings []string) {
	if path := crd.TooDeep(w.Content); path != "" {
		return field.ErrorList{{Type: field.ErrorTypeTooLong, Field: path, BadValue: field.OmitValueType{}, Detail: "schemas nest too deeply"}}, nil
	}
	is := internalOf(w.Meta, w.Content)
	if is == nil {
		return nil, nil
	}
	var was *apiextensions.CustomResourceDefinition
	if w.OldContent != nil {
		was = internalOf(w.OldMeta, w.OldContent)
	}
	if was != nil { // that the write is about the newest one was decided before
		is.ResourceVersion, was.ResourceVersion = "1", "1"
	}
	switch {
	case was == nil:
		errs = validation.ValidateCustomResourceDefinition(ctx, is)
	case w.Status:
		return validation.ValidateUpdateCustomResourceDefinitionStatus(ctx, is, was), nil
	default:
		errs = validation.ValidateCustomResourceDefinitionUpdate(ctx, is, was)
	}
	if len(errs) > 0 {
		return errs, nil
	}
	warnings = warningsOf(&is.Spec)
	if was != nil {
		known := warningsOf(&was.Spec)
		warnings = slices.DeleteFunc(warnings, func(text string) bool { return slices.Contains(known, text) })
	}
	return errs, warnings
}

// internalOf returns a definition in kube-apiserver's internal version; nil if the content cannot be decoded.
func internalOf(meta *metav1.ObjectMeta, content map[string]any) *apiextensions.CustomResourceDefinition {
	d, err := Of(meta, content)
	if err != nil {
		return nil
	}
	internal := &apiextensions.CustomResourceDefinition{}
	if crd.Scheme.Convert(d, internal, nil) != nil {
		return nil
	}
	return internal
}

// Of returns the definition that an object is.
func Of(meta *metav1.ObjectMeta, content map[string]any) (*Definition, error) {
	d, _, err := of(content)
	if err != nil {
		return nil, err
	}
	d.ObjectMeta = *meta
	return d, nil
}

// warningsOf returns kube-apiserver's warnings about the schemas of a definition: unknown formats, and sets of items that are not scalars.
func warningsOf(spec *apiextensions.CustomResourceDefinitionSpec) []string {
	var formats []string
	sorts := sets.New[string]()
	look := func(s *apiextensions.JSONSchemaProps) bool {
		if s.Format != "" {
			of := &openapi.Schema{SchemaProps: openapi.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
			for _, format := range apiservervalidation.GetUnrecognizedFormats(of, environment.DefaultCompatibilityVersion()) {
				formats = append(formats, fmt.Sprintf("unrecognized format %q", format))
			}
		}
		if s.XListType != nil && *s.XListType == "set" && s.Items != nil && s.Items.Schema != nil {
			if t := s.Items.Schema.Type; t == "object" || t == "array" {
				sorts.Insert(fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules", t))
			}
		}
		return false
	}
	if spec.Validation != nil && spec.Validation.OpenAPIV3Schema != nil {
		validation.SchemaHas(spec.Validation.OpenAPIV3Schema, look)
	}
	for i := range spec.Versions {
		if s := spec.Versions[i].Schema; s != nil && s.OpenAPIV3Schema != nil {
			validation.SchemaHas(s.OpenAPIV3Schema, look)
		}
	}
	return append(formats, sets.List(sorts)...)
}
