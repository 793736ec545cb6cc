package openapi

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// NewVersion returns a version of a kind in the form that the policy's kinds have.
func NewVersion(k schemas.Kind, content *schemas.Node) *policy.Version {
	k.ListKind, k.Singular, k.Builtin = k.Kind+"List", strings.ToLower(k.Kind), true
	v := &policy.Version{
		Version: &schemas.Version{Name: k.StorageVersion, Served: true, Schema: content},
		Kind:    &policy.Kind{Kind: &k},
	}
	v.Kind.Versions = []*policy.Version{v}
	return v
}

// Describe returns the name of a Go type's kind, and the schema of its content: all fields except apiVersion, kind and
// metadata. The schema is for OpenAPI only and validates nothing. It includes the texts of SwaggerDoc.
func Describe(object any) (kind string, content *schemas.Node) {
	t := reflect.TypeOf(object)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name(), node(t)
}

// node returns the schema of a Go type. It knows the types that the kinds use: scalars, lists, maps, structs, and raw
// JSON, which is any value.
func node(t reflect.Type) *schemas.Node {
	switch {
	case t == raw:
		return &schemas.Node{Kinds: schemas.AnyKind}
	case t.Implements(textMarshaler):
		return &schemas.Node{Kinds: schemas.StringKind}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return node(t.Elem())
	case reflect.Interface:
		return &schemas.Node{Kinds: schemas.AnyKind}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return &schemas.Node{Kinds: schemas.StringKind} // Base64
		}
		return &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Items: node(t.Elem())}}
	case reflect.Map:
		entries := schemas.KeyPattern{Key: &schemas.Node{Kinds: schemas.StringKind}, Value: node(t.Elem())}
		return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Patterns: []schemas.KeyPattern{entries}}}
	case reflect.Struct:
		docs := map[string]string{}
		if d, ok := reflect.Zero(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
			docs = d.SwaggerDoc()
		}
		n := &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{}, Doc: docs[""]}
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Type == typeMeta || f.Type == objectMeta || name == "-" || !f.IsExported() {
				continue // OpenAPI adds these itself
			}
			if f.Anonymous && name == "" {
				n.Struct.Fields = append(n.Struct.Fields, node(f.Type).Struct.Fields...)
				continue
			}
			field := schemas.Field{Name: name, Presence: schemas.Optional, Schema: node(f.Type)}
			field.Schema.Doc = docs[name]
			n.Struct.Fields = append(n.Struct.Fields, field)
		}
		return n
	}
	if scalarKinds[t.Kind()] == 0 {
		panic("openapi: no schema describes " + t.String())
	}
	return &schemas.Node{Kinds: scalarKinds[t.Kind()]}
}

var (
	raw           = reflect.TypeFor[json.RawMessage]()
	typeMeta      = reflect.TypeFor[metav1.TypeMeta]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	objectMeta    = reflect.TypeFor[metav1.ObjectMeta]()
)

var scalarKinds = map[reflect.Kind]schemas.Kinds{
	reflect.String: schemas.StringKind, reflect.Bool: schemas.BoolKind, reflect.Int: schemas.IntegerKind, reflect.Int32: schemas.IntegerKind, reflect.Int64: schemas.IntegerKind, reflect.Uint64: schemas.IntegerKind,
	reflect.Float64: schemas.NumberKind | schemas.IntegerKind,
}
