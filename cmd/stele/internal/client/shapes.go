package client

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clientopenapi "k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"stele.dev/stele/cmd/stele/internal/secrets"
	"stele.dev/stele/core/catalog/openapi"
	"stele.dev/stele/schemas"
)

// Shapes reads from the server's OpenAPI v3 which lists of a kind have items with keys, and which fields are secret.
// It is not safe for concurrent use.
type Shapes struct {
	Config    *rest.Config
	documents map[schema.GroupVersion]*document
	hidden    map[schema.GroupKind]secrets.Fields
}

// document is the OpenAPI document of a group and version.
type document struct {
	schemas map[string]*spec.Schema
	nodes   map[string]*schemas.Node // of schemas that have a name
	failed  bool                     // the document could not be read
}

// Of returns the shape of a kind, or nil if the server does not describe it. Without a shape, items of lists are
// compared by position.
func (s *Shapes) Of(kind schema.GroupVersionKind) *schemas.Node {
	d := s.document(kind.GroupVersion())
	if name, x := d.find(kind); x != nil {
		return d.named(name)
	}
	return nil
}

// find returns the schema of a kind, nil if there is none.
func (d *document) find(kind schema.GroupVersionKind) (string, *spec.Schema) {
	for name, x := range d.schemas {
		var kinds []schema.GroupVersionKind
		if err := x.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err == nil && slices.Contains(kinds, kind) {
			return name, x
		}
	}
	return "", nil
}

// Secrets returns the secret fields of a kind in all its versions. If the server does not describe the kind, all
// fields count as secret.
func (s *Shapes) Secrets(kind schema.GroupKind) secrets.Fields {
	if kind.Group == "" {
		return secrets.Of(kind, nil)
	}
	fields, ok := s.hidden[kind]
	if !ok {
		fields = s.readSecrets(kind)
		if s.hidden == nil {
			s.hidden = map[schema.GroupKind]secrets.Fields{}
		}
		s.hidden[kind] = fields
	}
	return fields
}

// readSecrets reads the secret fields of a kind from all its versions.
func (s *Shapes) readSecrets(kind schema.GroupKind) (fields secrets.Fields) {
	paths, err := s.paths()
	if err != nil {
		return secrets.Unknown()
	}
	for path := range paths {
		group, version, ok := strings.Cut(strings.TrimPrefix(path, "apis/"), "/")
		if !ok || group != kind.Group {
			continue
		}
		gvk := kind.WithVersion(version)
		d := s.document(gvk.GroupVersion())
		if d.failed {
			return secrets.Unknown()
		}
		if _, x := d.find(gvk); x != nil {
			var hidden [][]string
			if x.Extensions.GetObject(openapi.SecretsExtension, &hidden) != nil {
				return secrets.Unknown()
			}
			fields = fields.Union(secrets.Of(kind, hidden))
		}
	}
	return fields
}

// paths returns the paths of the server's OpenAPI documents.
func (s *Shapes) paths() (map[string]clientopenapi.GroupVersion, error) {
	client, err := discovery.NewDiscoveryClientForConfig(s.Config)
	if err != nil {
		return nil, err
	}
	return client.OpenAPIV3().Paths()
}

// document returns the OpenAPI document of a group and version, and reads it the first time.
func (s *Shapes) document(gv schema.GroupVersion) *document {
	d, ok := s.documents[gv]
	if !ok {
		d = s.read(gv)
		if s.documents == nil {
			s.documents = map[schema.GroupVersion]*document{}
		}
		s.documents[gv] = d
	}
	return d
}

// read reads the OpenAPI document of a group and version.
func (s *Shapes) read(gv schema.GroupVersion) *document {
	d := &document{nodes: map[string]*schemas.Node{}, failed: true}
	paths, err := s.paths()
	if err != nil {
		return d
	}
	path := "apis/" + gv.String()
	if gv.Group == "" {
		path = "api/" + gv.String()
	}
	found, ok := paths[path]
	if !ok {
		d.failed = false
		return d
	}
	text, err := found.Schema(runtime.ContentTypeJSON)
	if err != nil {
		return d
	}
	var all spec3.OpenAPI
	if json.Unmarshal(text, &all) == nil && all.Components != nil {
		d.schemas, d.failed = all.Components.Schemas, false
	}
	return d
}

// named returns the shape of a named schema. A schema may refer to itself.
func (d *document) named(name string) *schemas.Node {
	n, ok := d.nodes[name]
	if x := d.schemas[name]; !ok && x != nil {
		n = &schemas.Node{}
		d.nodes[name] = n
		d.fill(n, x)
	}
	return n
}

// fill fills a shape from a schema.
func (d *document) fill(n *schemas.Node, x *spec.Schema) {
	node := func(x *spec.Schema) *schemas.Node {
		if name := refersTo(x); name != "" {
			return d.named(name) // it is still incomplete if the schema refers to itself
		}
		n := &schemas.Node{}
		d.fill(n, x)
		return n
	}
	if x.Items != nil && x.Items.Schema != nil {
		n.List = &schemas.List{Items: node(x.Items.Schema)}
		n.List.Type, _ = x.Extensions.GetString("x-kubernetes-list-type")
		n.List.MapKeys, _ = x.Extensions.GetStringSlice("x-kubernetes-list-map-keys")
	}
	if len(x.Properties) > 0 {
		n.Struct = &schemas.Struct{}
		for name := range x.Properties {
			field := x.Properties[name]
			n.Struct.Fields = append(n.Struct.Fields, schemas.Field{Name: name, Schema: node(&field)})
		}
	}
	if x.AdditionalProperties != nil && x.AdditionalProperties.Schema != nil {
		if n.Struct == nil {
			n.Struct = &schemas.Struct{}
		}
		n.Struct.Patterns = append(n.Struct.Patterns, schemas.KeyPattern{Value: node(x.AdditionalProperties.Schema)})
	}
}

// refersTo returns the name of the schema that a schema refers to. Built-in kinds have the reference in an allOf.
func refersTo(x *spec.Schema) string {
	if len(x.AllOf) == 1 && x.Ref.String() == "" {
		x = &x.AllOf[0]
	}
	tokens := x.Ref.GetPointer().DecodedTokens()
	if len(tokens) == 0 {
		return ""
	}
	return tokens[len(tokens)-1]
}
