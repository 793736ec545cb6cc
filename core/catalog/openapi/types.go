package openapi

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"stele.dev/stele/core/object/gotypes"
)

// goType is one of Kubernetes' own Go types. It has a name in OpenAPI, and descriptions of its fields.
type goType struct {
	reflect.Type
	name string
	docs map[string]string // by JSON field name; "" is the type itself
}

func goTypeOf(t reflect.Type) goType {
	g, zero := goType{Type: t}, reflect.Zero(t).Interface()
	if named, ok := zero.(interface{ OpenAPIModelName() string }); ok {
		g.name = named.OpenAPIModelName()
	}
	if told, ok := zero.(interface{ SwaggerDoc() map[string]string }); ok {
		g.docs = told.SwaggerDoc()
	}
	return g
}

// nameTypes gives the schema of a built-in kind the descriptions of Kubernetes' Go type, and makes its parts separate
// definitions with the names that clients know: kubectl explain shows <LeaseSpec> instead of <Object>.
func (b *builder) nameTypes(s *spec.Schema, gvk schema.GroupVersionKind) {
	object, err := gotypes.New(gvk)
	if err != nil {
		return
	}
	b.describe(s, goTypeOf(reflect.TypeOf(object).Elem()))
}

// describe adds the descriptions of a type's fields.
func (b *builder) describe(s *spec.Schema, t goType) {
	if doc := t.docs[""]; doc != "" {
		s.Description = doc
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		property, ok := s.Properties[name]
		if !ok || name == "metadata" && f.Anonymous {
			continue
		}
		if doc := t.docs[name]; doc != "" {
			property.Description = doc
		}
		s.Properties[name] = b.part(property, f.Type)
	}
}

// part returns the schema of a field: a reference if its type has a name.
func (b *builder) part(s spec.Schema, t reflect.Type) spec.Schema {
	switch t.Kind() {
	case reflect.Pointer:
		return b.part(s, t.Elem())
	case reflect.Slice:
		if s.Items != nil && s.Items.Schema != nil {
			items := b.part(*s.Items.Schema, t.Elem())
			s.Items = &spec.SchemaOrArray{Schema: &items}
		}
	case reflect.Map:
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			values := b.part(*s.AdditionalProperties.Schema, t.Elem())
			s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &values}
		}
	case reflect.Struct:
		if g := goTypeOf(t); g.name != "" && len(s.Properties) > 0 && isEmpty(s.Default) {
			return b.named(s, g)
		}
	}
	return s
}

// isEmpty reports whether a default is that of a reference: none, or an empty struct.
func isEmpty(value any) bool {
	fields, ok := value.(map[string]any)
	return value == nil || ok && len(fields) == 0
}

// named makes a schema a definition, and returns a reference to it. It returns the schema itself if another definition
// has that name.
func (b *builder) named(s spec.Schema, t goType) spec.Schema {
	description := s.Description
	if _, own := b.meta()[t.name]; own {
		return b.refWith(b.define(t.name), description)
	}
	s.Description, s.Default = "", nil
	b.describe(&s, t)
	if there, ok := b.schemas[t.name]; ok && !reflect.DeepEqual(*there, s) {
		s.Description = description
		return s
	}
	b.schemas[t.name] = &s
	return b.refWith(t.name, description)
}
