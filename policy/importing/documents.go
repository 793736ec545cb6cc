package importing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
	"stele.dev/stele/schemas/jsonvalue"
)

// Document is a file of the input: YAML with one or more documents, or JSON.
type Document struct {
	Name string // for messages
	Data []byte
}

// object is one Kubernetes object of the input.
type object struct {
	File    string
	node    *yaml.Node
	content map[string]any
}

// maxNodes limits the size of a document, in which aliases count as what they stand for.
const maxNodes = 5_000_000

// objects returns the objects of a document. Lists are taken apart.
func (d Document) objects() (list []*object, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(d.Data))
	for {
		var n yaml.Node
		err := decoder.Decode(&n)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s", d.Name, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if len(n.Content) == 0 || n.Content[0].Tag == "!!null" {
			continue
		}
		if count(&n, maxNodes) <= 0 {
			return nil, fmt.Errorf("%s:%d: the document is too large once its aliases are replaced", d.Name, n.Line)
		}
		found, err := d.object(n.Content[0])
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
}

// count returns the budget without the nodes of a tree, aliases included; 0 or less if they exceed it.
func count(n *yaml.Node, budget int) int {
	if budget--; budget <= 0 {
		return budget
	}
	if n.Kind == yaml.AliasNode {
		return count(n.Alias, budget)
	}
	for _, c := range n.Content {
		if budget = count(c, budget); budget <= 0 {
			break
		}
	}
	return budget
}

func (d Document) object(n *yaml.Node) ([]*object, error) {
	text, err := yaml.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("%s:%d: %w", d.Name, n.Line, err)
	}
	if err := n.Decode(new(any)); err != nil { // keys that are there twice
		return nil, fmt.Errorf("%s: %s", d.Name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	data, err := sigsyaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%d: %s", d.Name, n.Line, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	o := &object{File: d.Name, node: n}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&o.content); err != nil {
		return nil, fmt.Errorf("%s:%d: it is not an object; Kubernetes objects have apiVersion, kind and metadata", d.Name, n.Line)
	}
	if o.kind() == "" || textAt(o.content, "apiVersion") == "" {
		return nil, fmt.Errorf("%s:%d: an object without apiVersion or kind", d.Name, n.Line)
	}
	if items, ok := o.content["items"].([]any); ok && strings.HasSuffix(o.kind(), "List") {
		return d.items(o, len(items))
	}
	return []*object{o}, nil
}

// items returns the objects of a list. Items of a typed list may lack apiVersion and kind.
func (d Document) items(o *object, n int) (list []*object, err error) {
	items := resolve(o.lookup("items"))
	for i := range n {
		item := items.Content[i]
		if m := resolve(item); m.Kind == yaml.MappingNode && o.kind() != "List" && child(m, "kind") == nil {
			full := *m
			full.Content = append([]*yaml.Node{
				{Kind: yaml.ScalarNode, Value: "apiVersion", Line: m.Line}, {Kind: yaml.ScalarNode, Value: textAt(o.content, "apiVersion"), Line: m.Line},
				{Kind: yaml.ScalarNode, Value: "kind", Line: m.Line}, {Kind: yaml.ScalarNode, Value: strings.TrimSuffix(o.kind(), "List"), Line: m.Line},
			}, m.Content...)
			item = &full
		}
		found, err := d.object(item)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// child returns the value of a key of a mapping, or the item with an index; nil if there is none.
func child(n *yaml.Node, key string) *yaml.Node {
	switch n = resolve(n); {
	case n == nil:
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return n.Content[i+1]
			}
		}
	case n.Kind == yaml.SequenceNode:
		var i int
		if _, err := fmt.Sscanf(key, "%d", &i); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i]
		}
	}
	return nil
}

func (o *object) lookup(path ...string) *yaml.Node {
	n := o.node
	for _, key := range path {
		if n = child(n, key); n == nil {
			return nil
		}
	}
	return n
}

// line returns the line of a part; of the nearest enclosing part if there is no such part.
func (o *object) line(path ...string) int {
	n := resolve(o.node)
	line := n.Line
	for _, key := range path {
		if n = child(n, key); n == nil {
			break
		}
		if n.Line > 0 {
			line = n.Line
		}
	}
	return line
}

// part returns a part of the object; nil if there is none.
func (o *object) part(path ...string) any { return partOf(o.content, path...) }

func partOf(v any, path ...string) any {
	value, _ := jsonvalue.At(v, path...)
	return value
}

func textAt(v any, path ...string) string { return text(partOf(v, path...)) }

func text(v any) string {
	s, _ := v.(string)
	return s
}

func items(v any) []any {
	list, _ := v.([]any)
	return list
}

func (o *object) kind() string { return textAt(o.content, "kind") }
func (o *object) name() string { return textAt(o.content, "metadata", "name") }

// placeIn gives a role or a binding of a namespace that names none a namespace.
func (o *object) placeIn(namespace string) {
	if namespace == "" || o.namespace() != "" || !o.is("Role") && !o.is("RoleBinding") {
		return
	}
	if meta, ok := o.content["metadata"].(map[string]any); ok {
		meta["namespace"] = namespace
	}
}

func (o *object) namespace() string { return textAt(o.content, "metadata", "namespace") }
func (o *object) group() string {
	group, _, ok := strings.Cut(textAt(o.content, "apiVersion"), "/")
	if !ok {
		return ""
	}
	return group
}

// is reports whether the object has a kind that is imported.
func (o *object) is(kind string) bool { return o.kind() == kind && sectionOf(o.group(), kind) != "" }

// decode reads the object into a Go type, and returns fields that the type does not have as an error.
func (o *object) decode(into any) error {
	data, err := json.Marshal(o.content)
	if err == nil {
		err = sigsyaml.UnmarshalStrict(data, into)
	}
	if err != nil {
		return fmt.Errorf("%s:%d: %s %q: %s", o.File, o.line(), o.kind(), o.name(), strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: "))
	}
	return nil
}
