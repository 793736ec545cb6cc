// Package celtype is the back end of schemas for CEL: from a form it makes the types
// that expressions are checked against, and the values that they see at run time. Both
// come from one place, so that what was checked holds.
//
// Types follow Kubernetes' (KEP-2876): an object with known fields is a message, other
// maps are maps by string, a number that may have a fraction is a double, names that CEL
// cannot write are escaped. Where a schema says less than CEL's types can (a union, a
// field that may be null, an open struct without fields) the value is dyn.
package celtype

import (
	"slices"

	"github.com/google/cel-go/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"stele.dev/stele/schemas"
)

// Type is the type of a value in CEL. It never changes and is safe for concurrent use.
type Type struct {
	shape  shape
	decl   *apiservercel.DeclType
	fields map[string]*Field // of messages, by the name that CEL uses
	byName map[string]*Field // and by that in JSON, by which maps are indexed
	items  *Type             // of lists and maps
	limit  int64             // most elements, bytes or entries; Unlimited if not known

	// unordered: the items of a list are compared and added as those of a set, or, if there
	// are keys, as those of a map.
	unordered bool
	keys      []string
}

// Field is a field of a message.
type Field struct {
	Name string // in JSON
	Type *Type
}

// Unlimited is the limit of what has none.
const Unlimited = -1

type shape uint8

const (
	dynamic shape = iota
	boolean
	integer
	double
	text
	bytes
	timestamp
	day
	duration
	list
	mapping
	message
)

// The types of scalars, and of what is not known.
var (
	Dynamic   = &Type{shape: dynamic, decl: apiservercel.DynType, limit: Unlimited}
	Bool      = &Type{shape: boolean, decl: apiservercel.BoolType, limit: Unlimited}
	Int       = &Type{shape: integer, decl: apiservercel.IntType, limit: Unlimited}
	Double    = &Type{shape: double, decl: apiservercel.DoubleType, limit: Unlimited}
	String    = &Type{shape: text, decl: apiservercel.StringType, limit: Unlimited}
	Timestamp = &Type{shape: timestamp, decl: apiservercel.TimestampType, limit: Unlimited}
	Bytes     = &Type{shape: bytes, decl: apiservercel.BytesType, limit: Unlimited}
	Date      = &Type{shape: day, decl: apiservercel.DateType, limit: Unlimited}
	Duration  = &Type{shape: duration, decl: apiservercel.DurationType, limit: Unlimited}
)

// OptionalOf is the type of what may be there, as expressions are checked against it.
func OptionalOf(t *Type) *Type {
	return &Type{shape: dynamic, decl: apiservercel.NewSimpleTypeWithMinSize("optional_type", cel.OptionalType(t.CEL()), nil, 0), limit: Unlimited}
}

// ListOf is a list of items of a type.
func ListOf(items *Type) *Type {
	return &Type{shape: list, items: items, decl: apiservercel.NewListType(items.decl, -1), limit: Unlimited}
}

// MapOf is a map from strings to a type.
func MapOf(values *Type) *Type {
	return &Type{shape: mapping, items: values, decl: apiservercel.NewMapType(apiservercel.StringType, values.decl, -1), limit: Unlimited}
}

// MessageOf is a message with these fields, by their names in JSON. Fields that CEL
// cannot name are left out. Types with one name in one environment must be one type.
func MessageOf(name string, fields map[string]*Type) *Type {
	t := unnamed(fields)
	t.decl = t.decl.MaybeAssignTypeName(name)
	return t
}

// unnamed is a message whose name is still to be given, by what encloses it.
func unnamed(fields map[string]*Type) *Type {
	t := &Type{shape: message, fields: map[string]*Field{}, byName: map[string]*Field{}, limit: Unlimited}
	declared := map[string]*apiservercel.DeclField{}
	for name, of := range fields {
		t.byName[name] = &Field{Name: name, Type: of}
		escaped, ok := apiservercel.Escape(name)
		if !ok {
			continue
		}
		t.fields[escaped] = t.byName[name]
		declared[escaped] = apiservercel.NewDeclField(escaped, of.decl, false, nil, nil)
	}
	t.decl = apiservercel.NewObjectType("object", declared)
	return t
}

// Of is the type of the values that a node admits. name is that of the type, unique in
// the environments it is declared in.
func Of(name string, n *schemas.Node) *Type { return of(n).named(name) }

// Resource is the type of the objects whose content a node describes: with apiVersion,
// kind and all of metadata.
func Resource(name string, n *schemas.Node) *Type { return root(n, Metadata).named(name) }

// Self is what a rule at the top of a schema sees of an object: of its metadata only the
// names, as in Kubernetes.
func Self(name string, n *schemas.Node) *Type { return root(n, names).named(name) }

var names = MessageOf("stele.ObjectNames", map[string]*Type{"name": String, "generateName": String})

// Metadata is the type of an object's metadata, as conditions and admission rules see it.
var Metadata = MessageOf("stele.ObjectMeta", map[string]*Type{
	"name": String, "generateName": String, "namespace": String, "uid": String, "resourceVersion": String, "generation": Int,
	"creationTimestamp": Timestamp, "deletionTimestamp": Timestamp, "deletionGracePeriodSeconds": Int,
	"labels": MapOf(String), "annotations": MapOf(String), "finalizers": ListOf(String),
	"ownerReferences": ListOf(MessageOf("stele.OwnerReference", map[string]*Type{
		"apiVersion": String, "kind": String, "name": String, "uid": String, "controller": Bool, "blockOwnerDeletion": Bool})),
})

func root(n *schemas.Node, metadata *Type) *Type {
	fields := map[string]*Type{"apiVersion": String, "kind": String, "metadata": metadata}
	if n.Struct != nil {
		for _, f := range n.Struct.AllFields() {
			if fields[f.Name] == nil {
				fields[f.Name] = of(f.Schema)
			}
		}
	}
	return unnamed(fields)
}

// named gives the messages in a type their names. Types without any are shared, and stay as
// they are.
func (t *Type) named(name string) *Type {
	for in := t; !in.IsMessage(); in = in.items {
		if in.items == nil {
			return t
		}
	}
	named := *t
	named.decl = t.decl.MaybeAssignTypeName(name)
	return &named
}

func of(n *schemas.Node) *Type {
	kinds := n.Kinds
	if n.Plain { // in OpenAPI, a value that may be null has the type of one that is not
		kinds &^= schemas.NullKind
	}
	switch kinds {
	case schemas.BoolKind:
		return Bool
	case schemas.IntegerKind:
		return Int
	case schemas.IntegerKind | schemas.NumberKind:
		return Double
	case schemas.StringKind:
		switch n.Format {
		case schemas.FormatByte:
			return Bytes
		case schemas.FormatDateTime:
			return Timestamp
		case "date":
			return Date
		case "duration":
			return Duration
		}
		if limit := longest(n); limit != Unlimited {
			return &Type{shape: text, decl: apiservercel.StringType, limit: limit}
		}
		return String
	case schemas.ListKind:
		items := Dynamic
		if n.List != nil && n.List.Items != nil {
			items = of(n.List.Items)
		}
		t := ListOf(items)
		if n.List != nil && n.List.MaxItems != nil {
			t.limit = int64(n.List.MaxItems.Count)
		}
		if n.List != nil && (n.List.Type == schemas.ListSet || n.List.Type == schemas.ListMap) {
			t.unordered, t.keys = true, n.List.MapKeys
		}
		return t
	case schemas.StructKind:
		fields := map[string]*Type{}
		if n.Embedded {
			fields["apiVersion"], fields["kind"], fields["metadata"] = String, String, names
		}
		if n.Struct != nil {
			for _, f := range n.Struct.AllFields() {
				if !n.Embedded || fields[f.Name] == nil {
					fields[f.Name] = of(f.Schema)
				}
			}
		}
		switch s := n.Struct; {
		case len(fields) > 0:
			return unnamed(fields)
		case s == nil || s.Open || len(s.Patterns) != 1:
			return MapOf(Dynamic)
		default:
			t := MapOf(of(s.Patterns[0].Value))
			if s.MaxFields != nil {
				t.limit = int64(s.MaxFields.Count)
			}
			return t
		}
	}
	return Dynamic
}

// longest is how many bytes a string that the node admits can have.
func longest(n *schemas.Node) int64 {
	limit := int64(Unlimited)
	for i := range n.Scalars {
		s := &n.Scalars[i]
		switch {
		case len(s.Enum) > 0:
			for _, e := range s.Enum {
				limit = max(limit, int64(len(e)))
			}
		case s.MaxRunes != nil:
			limit = max(limit, 4*int64(s.MaxRunes.Count))
		default:
			return Unlimited
		}
	}
	return limit
}

// OfValue is the type of a value of JSON, as params have them.
func OfValue(name string, v any) *Type { return ofValue(v).named(name) }

func ofValue(v any) *Type {
	switch v := v.(type) {
	case bool:
		return Bool
	case int64:
		return Int
	case float64:
		return Double
	case string:
		return &Type{shape: text, decl: apiservercel.StringType, limit: int64(len(v))}
	case []any:
		items := Dynamic
		for i, x := range v {
			if t := ofValue(x); i == 0 {
				items = t
			} else if !t.CEL().IsExactType(items.CEL()) || t.shape == message {
				items = Dynamic
			}
		}
		t := ListOf(items)
		t.limit = int64(len(v))
		return t
	case map[string]any:
		if len(v) == 0 {
			return MapOf(Dynamic)
		}
		fields := map[string]*Type{}
		for k, x := range v {
			fields[k] = ofValue(x)
		}
		return unnamed(fields)
	}
	return Dynamic
}

// CEL is the type as expressions are checked against it.
func (t *Type) CEL() *cel.Type { return t.decl.CelType() }

// Declaration is what an environment is told of the type.
func (t *Type) Declaration() *apiservercel.DeclType { return t.decl }

// IsMessage tells whether the type has fields, and so a name.
func (t *Type) IsMessage() bool { return t.shape == message }

// Field returns a field of a message by its name in CEL, or in JSON, or nil.
func (t *Type) Field(name string) *Field {
	if f := t.fields[name]; f != nil {
		return f
	}
	return t.byName[name]
}

// FieldNames are those of a message, sorted.
func (t *Type) FieldNames() []string {
	names := make([]string, 0, len(t.fields))
	for _, f := range t.fields {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Items is the type of a list's items or a map's values, or nil.
func (t *Type) Items() *Type { return t.items }

// Limit is how many items, entries or bytes a value can have; [Unlimited] if the schema
// does not say.
func (t *Type) Limit() int64 { return t.limit }

// Sized tells whether values have a size: lists, maps, strings and bytes.
func (t *Type) Sized() bool {
	switch t.shape {
	case list, mapping, text, bytes, dynamic:
		return true
	}
	return false
}
