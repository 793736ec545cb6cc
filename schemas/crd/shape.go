package crd

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// maxDepth is how deep schemas may nest, with what may stand around them in a form.
const maxDepth = 60

// known are the fields of schemas and of rules, which upstream's types decode leniently
// where they are in each other.
var (
	knownOfSchema = fieldsOf(reflect.TypeFor[apiextensionsv1.JSONSchemaProps]())
	knownOfRule   = fieldsOf(reflect.TypeFor[apiextensionsv1.ValidationRule]())
)

func fieldsOf(t reflect.Type) map[string]bool {
	names := map[string]bool{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names[name] = true
	}
	return names
}

// shape refuses what must not reach upstream's code: schemas too deep for code that
// recurses; and fields that it would overlook.
func (t *translator) shape(raw map[string]any) {
	spec, _ := raw["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for i, v := range versions {
		version, _ := v.(map[string]any)
		schema, _ := version["schema"].(map[string]any)
		t.schemaShape(schema["openAPIV3Schema"], path{"spec", "versions", strconv.Itoa(i), "schema", "openAPIV3Schema"}, 0)
	}
}

// schemaShape looks at a schema. What is of another type than it should be is for the
// decoder to refuse.
func (t *translator) schemaShape(x any, at path, depth int) {
	schema, ok := x.(map[string]any)
	if !ok || len(t.errs) > 0 && depth > maxDepth {
		return
	}
	if depth > maxDepth {
		t.refuse(at, fmt.Sprintf("schemas nest more than %d levels here", maxDepth), "")
		return
	}
	for name, part := range schema {
		at := at.with(name)
		if !knownOfSchema[name] {
			t.refuse(at, "unknown field", "")
			continue
		}
		switch name {
		case "properties", "patternProperties", "definitions", "dependencies":
			of, _ := part.(map[string]any)
			for key, x := range of {
				t.schemaShape(x, at.with(key), depth+1)
			}
		case "items", "additionalProperties", "additionalItems", "not":
			t.schemaShape(part, at, depth+1)
		case "allOf", "anyOf", "oneOf":
			of, _ := part.([]any)
			for i, x := range of {
				t.schemaShape(x, at.with(strconv.Itoa(i)), depth+1)
			}
		case "x-kubernetes-validations":
			of, _ := part.([]any)
			for i, x := range of {
				rule, _ := x.(map[string]any)
				for name := range rule {
					if !knownOfRule[name] {
						t.refuse(at.with(strconv.Itoa(i), name), "unknown field", "")
					}
				}
			}
		}
	}
}
