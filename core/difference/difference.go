package difference

import (
	"maps"
	"reflect"
	"slices"

	kjson "sigs.k8s.io/json"
	"stele.dev/stele/schemas"
)

// What became of what is at a path.
const (
	Add     = "add"
	Remove  = "remove"
	Replace = "replace"
)

// Entry is one thing that differs. Where indexes lead to it, they are those of the new
// object; only the item that was removed itself has its index in the old one.
type Entry struct {
	Path string `json:"path"`
	Op   string `json:"op"`
	// From is the value before; absent, as a null is, where there was none.
	From any `json:"from,omitempty"`
	// To is the value after; absent, as a null is, where there is none.
	To any `json:"to,omitempty"`
}

// UnmarshalJSON keeps integers as such.
func (e *Entry) UnmarshalJSON(text []byte) error {
	type plainEntry Entry
	return kjson.UnmarshalCaseSensitivePreserveInts(text, (*plainEntry)(e))
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Entry) SwaggerDoc() map[string]string {
	return map[string]string{
		"":     "Entry is one thing that differs.",
		"path": "Path of the field, as spec.containers[0].image or metadata.labels[\"example.com/tier\"]; items of lists of type map are named by their keys, as spec.ports[name=http]. Indexes are those of the object after the change, but for that of an item that was removed.",
		"op":   "What became of it: add, remove or replace.",
		"from": "Value before; absent where there was none.",
		"to":   "Value after; absent where there is none.",
	}
}

// Options say what counts.
type Options struct {
	// Schema of the objects' content tells which lists have keys; nil if it is not known.
	Schema *schemas.Node
	// Everything: also what the server keeps for itself, as metadata.managedFields. Without
	// it metadata.generation is told only where nothing else is.
	Everything bool
}

// ofMetadata is of metadata what the schemas of kinds do not say.
var ofMetadata = &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{{
	Name: "ownerReferences", Schema: &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Type: schemas.ListMap, MapKeys: []string{"uid"}}},
}}}}

// bookkeeping are the fields of metadata in which the server keeps account.
var bookkeeping = []string{"managedFields", "resourceVersion", "selfLink"}

// Between tells what differs between two decoded objects, in the order of the paths. One that
// is nil stands for an object that is not there, which is one with nothing but its name and
// what makes it that one, see [Identity]. The values in the entries are shared with the
// objects.
func Between(from, to map[string]any, o Options) []Entry {
	switch {
	case from == nil && to == nil:
		return nil
	case from == nil:
		from = Identity(to)
	case to == nil:
		to = Identity(from)
	}
	var c comparison
	for _, name := range fieldsOf(from, to) {
		node := Top(o.Schema, name)
		if name == "metadata" {
			before, ok1 := from[name].(map[string]any)
			after, ok2 := to[name].(map[string]any)
			if ok1 && ok2 && !o.Everything {
				c.fields(Path{{Field: name}}, told(before), told(after), node)
				continue
			}
		}
		c.field(nil, name, from, to, node)
	}
	if len(c.entries) == 0 && !o.Everything {
		// Every write of a spec counts it up: it says something only by itself.
		before, _ := from["metadata"].(map[string]any)
		after, _ := to["metadata"].(map[string]any)
		c.field(Path{{Field: "metadata"}}, "generation", before, after, nil)
	}
	return c.entries
}

// told is metadata without what only the server keeps.
func told(meta map[string]any) map[string]any {
	meta = maps.Clone(meta)
	for _, name := range append([]string{"generation"}, bookkeeping...) {
		delete(meta, name)
	}
	return meta
}

// Identity is an object without all that somebody said about it: its kind, its name, and the
// uid and time that it was given.
func Identity(o map[string]any) map[string]any {
	identity := map[string]any{}
	for _, name := range []string{"apiVersion", "kind"} {
		if v, ok := o[name]; ok {
			identity[name] = v
		}
	}
	if meta, ok := o["metadata"].(map[string]any); ok {
		kept := map[string]any{}
		for _, name := range append([]string{"name", "generateName", "namespace", "uid", "creationTimestamp", "generation"}, bookkeeping...) {
			if v, ok := meta[name]; ok {
				kept[name] = v
			}
		}
		identity["metadata"] = kept
	}
	return identity
}

// Top is what is known of a field of the object itself, given the schema of its content.
func Top(content *schemas.Node, name string) *schemas.Node {
	if name == "metadata" {
		return ofMetadata
	}
	return Field(content, name)
}

// Field is what a schema says of a field; nil if it says nothing.
func Field(n *schemas.Node, name string) *schemas.Node {
	if n == nil || n.Struct == nil {
		return nil
	}
	for i := range n.Struct.Fields {
		if f := &n.Struct.Fields[i]; f.Name == name {
			return f.Schema
		}
	}
	if len(n.Struct.Patterns) == 1 {
		return n.Struct.Patterns[0].Value
	}
	return nil
}

// Items is what a schema says of the items of a list; nil if it says nothing.
func Items(n *schemas.Node) *schemas.Node {
	if n == nil || n.List == nil {
		return nil
	}
	return n.List.Items
}

type comparison struct{ entries []Entry }

func (c *comparison) add(p Path, op string, from, to any) {
	c.entries = append(c.entries, Entry{p.String(), op, from, to})
}

// fieldsOf are the names of the fields of either, sorted.
func fieldsOf(from, to map[string]any) []string {
	names := make([]string, 0, max(len(from), len(to)))
	for name := range from {
		names = append(names, name)
	}
	for name := range to {
		if _, ok := from[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *comparison) fields(p Path, from, to map[string]any, n *schemas.Node) {
	for _, name := range fieldsOf(from, to) {
		c.field(p, name, from, to, Field(n, name))
	}
}

func (c *comparison) field(p Path, name string, from, to map[string]any, n *schemas.Node) {
	before, was := from[name]
	after, is := to[name]
	p = p.Join(Step{Field: name})
	switch {
	case was && is:
		c.value(p, before, after, n)
	case was:
		c.add(p, Remove, before, nil)
	case is:
		c.add(p, Add, nil, after)
	}
}

func (c *comparison) value(p Path, from, to any, n *schemas.Node) {
	if p.Whole() {
		if !reflect.DeepEqual(from, to) {
			c.add(p, Replace, from, to)
		}
		return
	}
	switch before := from.(type) {
	case map[string]any:
		if after, ok := to.(map[string]any); ok {
			c.fields(p, before, after, n)
			return
		}
	case []any:
		if after, ok := to.([]any); ok {
			c.list(p, before, after, n)
			return
		}
	default:
		switch to.(type) {
		case map[string]any, []any: // which cannot be compared by ==
		default:
			if from == to {
				return
			}
		}
	}
	c.add(p, Replace, from, to)
}

func (c *comparison) list(p Path, from, to []any, n *schemas.Node) {
	items := Items(n)
	before, ok1 := Keyed(from, n)
	after, ok2 := Keyed(to, n)
	if ok1 && ok2 {
		c.keyed(p, from, to, before, after, items)
		return
	}
	i, j := 0, 0
	for _, pair := range append(align(from, to), [2]int{len(from), len(to)}) { // the last is the end of both
		for ; i < pair[0]; i++ {
			c.add(p.Join(Step{Item: true, Index: i}), Remove, from[i], nil)
		}
		for ; j < pair[1]; j++ {
			c.add(p.Join(Step{Item: true, Index: j}), Add, nil, to[j])
		}
		if i < len(from) && j < len(to) {
			c.value(p.Join(Step{Item: true, Index: j}), from[i], to[j], items)
			i, j = i+1, j+1
		}
	}
}

// Keyed are the steps to the items of a list, if the schema says that it is of type map, and
// each item has its keys, and no two the same.
func Keyed(list []any, n *schemas.Node) ([]Step, bool) {
	if n == nil || n.List == nil || n.List.Type != schemas.ListMap || len(n.List.MapKeys) == 0 {
		return nil, false
	}
	steps, seen := make([]Step, len(list)), make(map[string]bool, len(list))
	for i, item := range list {
		fields, ok := item.(map[string]any)
		if !ok {
			return nil, false
		}
		for _, name := range n.List.MapKeys {
			value, ok := fields[name]
			switch value.(type) {
			case map[string]any, []any, nil:
				return nil, false
			}
			if !ok {
				return nil, false
			}
			steps[i].Key = append(steps[i].Key, KeyValue{name, value})
		}
		text := Path{steps[i]}.String()
		if seen[text] {
			return nil, false
		}
		seen[text] = true
	}
	return steps, true
}

// keyed compares items of the same keys. Those that are not in the new list come first.
func (c *comparison) keyed(p Path, from, to []any, before, after []Step, items *schemas.Node) {
	at := make(map[string]int, len(from))
	for i, s := range before {
		at[Path{s}.String()] = i
	}
	there := make(map[string]bool, len(to))
	for _, s := range after {
		there[Path{s}.String()] = true
	}
	for i, s := range before {
		if !there[Path{s}.String()] {
			c.add(p.Join(s), Remove, from[i], nil)
		}
	}
	for j, s := range after {
		if i, ok := at[Path{s}.String()]; ok {
			c.value(p.Join(s), from[i], to[j], items)
		} else {
			c.add(p.Join(s), Add, nil, to[j])
		}
	}
}
