package openapi

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"stele.dev/stele/core/typed"
)

// A goType is one of Kubernetes' own: it has a name in OpenAPI, and texts about its fields.
type goType struct {
	reflect.Type
	name string
	docs map[string]string // by the field's name in JSON; "" is the type itself
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

// nameTypes gives the schema of a built-in kind the texts of Kubernetes' Go type, and makes of its parts definitions of
// their own, by the names that clients know: kubectl explain shows <LeaseSpec> and not <Object>.
func (b *builder) nameTypes(s *spec.Schema, gvk schema.GroupVersionKind) {
	object, err := typed.New(gvk)
	if err != nil {
		return
	}
	b.describe(s, goTypeOf(reflect.TypeOf(object).Elem()))
}

// describe tells of a type's fields what Kubernetes does.
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

// part is the schema of a field: a reference where it is of a type that has a name.
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

// isEmpty reports whether a default is that of references: none, or a struct without fields.
func isEmpty(value any) bool {
	fields, ok := value.(map[string]any)
	return value == nil || ok && len(fields) == 0
}

// named makes a definition of a schema, and returns a reference to it; the schema itself where there is another
// definition of that name.
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
