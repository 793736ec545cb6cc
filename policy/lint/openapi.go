package lint

import (
	"encoding/json"
	"fmt"
	"slices"

	"stele.dev/stele/schemas"
)

// typesOfOpenAPI are the types of OpenAPI, and what they are in CUE.
var typesOfOpenAPI = map[string]string{"string": "string", "integer": "int", "number": "number", "boolean": "bool", "array": "[...]", "object": "{…}"}

// wordsOfOpenAPI are the keywords of schemas in OpenAPI.
var wordsOfOpenAPI = []string{"type", "properties", "items", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "enum",
	"required", "default", "format", "description", "nullable", "additionalProperties", "uniqueItems", "oneOf", "anyOf", "allOf", "not", "title", "example"}

// schemasInOpenAPI finds parts of schemas in CUE that are written in the words of OpenAPI.
func (c *checking) schemasInOpenAPI() {
	for i := range c.Form.Kinds {
		k := &c.Form.Kinds[i]
		if k.Builtin {
			continue
		}
		for j := range k.Versions {
			v := &k.Versions[j]
			v.Schema.Visit("", func(path string, n *schemas.Node) {
				if kind := typeOfOpenAPI(n); kind != "" {
					c.add("SCHEMA_OPENAPI", n.Source, k.Resource(), fmt.Sprintf("%s in version %s looks like OpenAPI: objects would have a field \"type\" with the value %q", path, v.Name, kind), "write "+typesOfOpenAPI[kind])
				}
			})
		}
	}
}

// typeOfOpenAPI returns the type of a struct that has only words of OpenAPI as fields, with a constant type among them; "" for others.
func typeOfOpenAPI(n *schemas.Node) string {
	if n == nil || n.Struct == nil || n.Struct.Open || len(n.Struct.Patterns) > 0 {
		return ""
	}
	kind := ""
	for i := range n.Struct.Fields {
		f := &n.Struct.Fields[i]
		if !slices.Contains(wordsOfOpenAPI, f.Name) {
			return ""
		}
		if f.Name != "type" || len(f.Schema.Scalars) != 1 || len(f.Schema.Scalars[0].Enum) != 1 {
			continue
		}
		if json.Unmarshal(f.Schema.Scalars[0].Enum[0], &kind) != nil || typesOfOpenAPI[kind] == "" {
			return ""
		}
	}
	return kind
}
