package crd

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// maxDepth is the maximum nesting depth of schemas. It leaves room for the nodes that surround a schema
// in a form.
const maxDepth = 60

// known are the fields of schemas and rules. Upstream's types ignore unknown fields in nested ones.
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

// shape rejects definitions that upstream's code must not get: schemas that are too deep for recursive
// code, and unknown fields that it would ignore.
func (t *translator) shape(raw map[string]any) {
	spec, _ := raw["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for i, v := range versions {
		version, _ := v.(map[string]any)
		schema, _ := version["schema"].(map[string]any)
		t.schemaShape(schema["openAPIV3Schema"], path{"spec", "versions", strconv.Itoa(i), "schema", "openAPIV3Schema"}, 0)
	}
}

// TooDeep returns the path to a schema of a definition, given as its decoded JSON, that nests too deeply for recursive code; "" if there is none.
func TooDeep(definition map[string]any) string {
	spec, _ := definition["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for i, v := range versions {
		version, _ := v.(map[string]any)
		schema, _ := version["schema"].(map[string]any)
		if deeper(schema["openAPIV3Schema"], 0, false) {
			return path{"spec", "versions", strconv.Itoa(i), "schema", "openAPIV3Schema"}.String()
		}
	}
	return ""
}

// deeper reports whether a schema, or if named a map from names to schemas, nests more than maxDepth levels. The values of
// the keywords default, example and enum do not count, but a property may have such a name.
func deeper(x any, depth int, named bool) bool {
	if depth > 3*maxDepth { // each level has at most the schema, and a map or a list of schemas
		return true
	}
	switch x := x.(type) {
	case map[string]any:
		for name, part := range x {
			below := false
			if !named {
				switch name {
				case "default", "example", "enum":
					continue
				case "properties", "patternProperties", "definitions", "dependencies":
					below = true
				}
			}
			if deeper(part, depth+1, below) {
				return true
			}
		}
	case []any:
		for _, part := range x {
			if deeper(part, depth+1, false) {
				return true
			}
		}
	}
	return false
}

// schemaShape checks a schema. The decoder rejects values of the wrong type.
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
		at := at.join(name)
		if !knownOfSchema[name] {
			t.refuse(at, "unknown field", "")
			continue
		}
		switch name {
		case "properties", "patternProperties", "definitions", "dependencies":
			of, _ := part.(map[string]any)
			for key, x := range of {
				t.schemaShape(x, at.join(key), depth+1)
			}
		case "items", "additionalProperties", "additionalItems", "not":
			t.schemaShape(part, at, depth+1)
		case "allOf", "anyOf", "oneOf":
			of, _ := part.([]any)
			for i, x := range of {
				t.schemaShape(x, at.join(strconv.Itoa(i)), depth+1)
			}
		case "x-kubernetes-validations":
			of, _ := part.([]any)
			for i, x := range of {
				rule, _ := x.(map[string]any)
				for name := range rule {
					if !knownOfRule[name] {
						t.refuse(at.join(strconv.Itoa(i), name), "unknown field", "")
					}
				}
			}
		}
	}
}
