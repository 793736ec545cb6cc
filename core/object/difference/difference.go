package difference

import (
	"maps"
	"reflect"
	"slices"

	kjson "sigs.k8s.io/json"
	"stele.dev/stele/schemas"
)

// These are the types of differences.
const (
	Add     = "add"
	Remove  = "remove"
	Replace = "replace"
)

// UnmarshalJSON decodes an entry, and keeps integers exact.
func (e *Entry) UnmarshalJSON(text []byte) error {
	type plainEntry Entry
	return kjson.UnmarshalCaseSensitivePreserveInts(text, (*plainEntry)(e))
}

// Options select what is compared.
type Options struct {
	// Schema is the schema of the objects' content, which tells the keys of lists; nil if it is not known.
	Schema *schemas.Node
	// Everything includes what the server maintains, such as metadata.managedFields. Without it, metadata.generation
	// is reported only if nothing else differs.
	Everything bool
}

// ofMetadata is the schema of metadata, as far as lists have keys.
var ofMetadata = &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{{
	Name: "ownerReferences", Schema: &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Type: schemas.ListMap, MapKeys: []string{"uid"}}},
}}}}

// bookkeeping are the fields of metadata that the server maintains.
var bookkeeping = []string{"managedFields", "resourceVersion", "selfLink"}

// Between returns the differences of two decoded objects, in the order of the paths. nil means an object that does not
// exist; it is compared as one with only the fields of [Identity]. The entries share values with the objects.
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
				c.fields(Path{{Field: name}}, withoutBookkeeping(before), withoutBookkeeping(after), node)
				continue
			}
		}
		c.field(nil, name, from, to, node)
	}
	if len(c.entries) == 0 && !o.Everything {
		// Every write of the spec increments it, so it only matters alone.
		before, _ := from["metadata"].(map[string]any)
		after, _ := to["metadata"].(map[string]any)
		c.field(Path{{Field: "metadata"}}, "generation", before, after, nil)
	}
	return c.entries
}

// withoutBookkeeping returns metadata without the fields that the server maintains.
func withoutBookkeeping(meta map[string]any) map[string]any {
	meta = maps.Clone(meta)
	for _, name := range append([]string{"generation"}, bookkeeping...) {
		delete(meta, name)
	}
	return meta
}

// Identity returns an object with only its identity: kind, name, UID and creation time.
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

// Top returns the schema of a top-level field. content is the schema of the object's content.
func Top(content *schemas.Node, name string) *schemas.Node {
	if name == "metadata" {
		return ofMetadata
	}
	return Field(content, name)
}

// Field returns the schema of a field, nil if there is none.
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

// Items returns the schema of the items of a list, nil if there is none.
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

// fieldsOf returns the names of the fields of both, sorted.
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
		case map[string]any, []any: // they cannot be compared with ==
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
	for _, pair := range append(align(from, to), [2]int{len(from), len(to)}) { // the last pair is the end of both
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

// Keyed returns the steps to the items of a list. It fails unless the schema says that the list is of type map, and
// every item has all keys, and no two have the same.
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

// keyed compares items with the same keys. Removed items come first.
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
