// Package celtype derives CEL types from forms. Expressions are checked against these types, and get
// values of these types at run time.
//
// Types follow Kubernetes (KEP-2876): an object with known fields is a message; other maps have string
// keys; a number that may have a fraction is a double; names that CEL cannot write are escaped. The type
// is dyn where CEL's types cannot express the schema: for a union, a nullable field, or an open struct
// without fields.
package celtype

import (
	"slices"

	"github.com/google/cel-go/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"stele.dev/stele/schemas"
)

// A Type is a CEL type. It is immutable and safe for concurrent use.
type Type struct {
	shape  shape
	decl   *apiservercel.DeclType
	fields map[string]*Field // fields of messages by their CEL name
	byName map[string]*Field // the same fields by their JSON name, with which maps are indexed
	items  *Type             // the type of list items or map values
	// selected is the type of the objects that values select, see SelectedOf.
	selected *Type
	limit    int64 // maximum number of items, bytes or entries; or Unlimited

	// unordered says that the list is of type map, if there are keys, or else of type set.
	unordered bool
	keys      []string
}

// A Field is a field of a message.
type Field struct {
	Name string // JSON name
	Type *Type
}

// Unlimited is the limit of a type whose values have no maximum size.
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

// The types of scalars, and of values without a known type.
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

// OptionalOf returns the type of an optional value.
func OptionalOf(t *Type) *Type {
	return &Type{shape: dynamic, decl: apiservercel.NewSimpleTypeWithMinSize("optional_type", cel.OptionalType(t.CEL()), nil, 0), limit: Unlimited}
}

// SelectedOf returns the opaque type with a name that selections of objects of a type have.
func SelectedOf(name string, t *Type) *Type {
	return &Type{shape: dynamic, selected: t, decl: apiservercel.NewSimpleTypeWithMinSize(name, cel.OpaqueType(name, t.CEL()), nil, 0), limit: Unlimited}
}

// Selected returns the type of the objects that values select; nil if values are no selections.
func (t *Type) Selected() *Type { return t.selected }

// ListOf returns the type of a list with the given items.
func ListOf(items *Type) *Type {
	return &Type{shape: list, items: items, decl: apiservercel.NewListType(items.decl, -1), limit: Unlimited}
}

// MapOf returns the type of a map from strings to the given type.
func MapOf(values *Type) *Type {
	return &Type{shape: mapping, items: values, decl: apiservercel.NewMapType(apiservercel.StringType, values.decl, -1), limit: Unlimited}
}

// MessageOf returns the type of a message. fields are indexed by their JSON names; fields that CEL
// cannot name are left out. Names must be unique in an environment.
func MessageOf(name string, fields map[string]*Type) *Type {
	t := unnamed(fields)
	t.decl = t.decl.MaybeAssignTypeName(name)
	return t
}

// unnamed returns a message that gets its name later, from the enclosing type.
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

// Of returns the type of the values that a node admits. name is the name of the type. It must be unique
// in an environment.
func Of(name string, n *schemas.Node) *Type { return typeOf(n).named(name) }

// Resource returns the type of a whole object: the content that the node describes, apiVersion, kind and
// all of metadata.
func Resource(name string, n *schemas.Node) *Type { return root(n, Metadata).named(name) }

// Self returns the type of self in a rule at the root of a schema. As in Kubernetes, it has only the
// names of metadata.
func Self(name string, n *schemas.Node) *Type { return root(n, names).named(name) }

var names = MessageOf("stele.ObjectNames", map[string]*Type{"name": String, "generateName": String})

// Metadata is the type of metadata in conditions and admission rules.
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
				fields[f.Name] = typeOf(f.Schema)
			}
		}
	}
	return unnamed(fields)
}

// named sets the names of the messages in a type. Types without messages are shared and not changed.
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

func typeOf(n *schemas.Node) *Type {
	kinds := n.Kinds
	if n.Plain { // OpenAPI gives a nullable value the type of the value
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
			items = typeOf(n.List.Items)
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
					fields[f.Name] = typeOf(f.Schema)
				}
			}
		}
		switch s := n.Struct; {
		case len(fields) > 0:
			return unnamed(fields)
		case s == nil || s.Open || len(s.Patterns) != 1:
			return MapOf(Dynamic)
		default:
			t := MapOf(typeOf(s.Patterns[0].Value))
			if s.MaxFields != nil {
				t.limit = int64(s.MaxFields.Count)
			}
			return t
		}
	}
	return Dynamic
}

// longest returns the maximum length in bytes of a string that the node admits.
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

// OfValue returns the type of a decoded JSON value, such as the params of a policy.
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

// CEL returns the type for CEL's type checker.
func (t *Type) CEL() *cel.Type { return t.decl.CelType() }

// Declaration returns the type as declared in a CEL environment.
func (t *Type) Declaration() *apiservercel.DeclType { return t.decl }

// IsMessage reports whether the type has known fields, and thus a name.
func (t *Type) IsMessage() bool { return t.shape == message }

// IsText reports whether values are strings to CEL, and not times, durations or bytes.
func (t *Type) IsText() bool { return t.shape == text }

// Field returns a field of a message by its name in CEL, or in JSON, or nil.
func (t *Type) Field(name string) *Field {
	if f := t.fields[name]; f != nil {
		return f
	}
	return t.byName[name]
}

// FieldNames returns the sorted field names of a message.
func (t *Type) FieldNames() []string {
	names := make([]string, 0, len(t.fields))
	for _, f := range t.fields {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Items returns the type of a list's items or a map's values, or nil.
func (t *Type) Items() *Type { return t.items }

// Limit returns the maximum number of items, entries or bytes of a value, or [Unlimited].
func (t *Type) Limit() int64 { return t.limit }
