package schemas

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unique"
)

// HasRest reports whether the list may have items after the prefix.
func (l *List) HasRest() bool { return l.MaxItems == nil || l.MaxItems.Count > len(l.Prefix) }

// A Position is a place in the source of a policy. File is relative to the root of the bundle. The zero
// Position means that the source is unknown.
type Position struct {
	File   string
	Line   int
	Column int
}

// IsZero reports whether the source is unknown.
func (p Position) IsZero() bool { return p == Position{} }

// String returns "file:line", as messages show it, or "" for the zero Position. A position without a line is that of an object of the API, and
// has its name in place of a file.
func (p Position) String() string {
	if p.IsZero() || p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}

// MarshalText encodes the position as "file:line:column".
func (p Position) MarshalText() ([]byte, error) {
	if p.IsZero() {
		return nil, nil
	}
	return fmt.Appendf(nil, "%s:%d:%d", p.File, p.Line, p.Column), nil
}

// UnmarshalText is the inverse of MarshalText. The file name may contain colons.
func (p *Position) UnmarshalText(text []byte) error {
	*p = Position{}
	if len(text) == 0 {
		return nil
	}
	rest, column, ok1 := cutLast(string(text))
	file, line, ok2 := cutLast(rest)
	if !ok1 || !ok2 {
		return fmt.Errorf("schemas: position %q is not file:line:column", text)
	}
	l, err1 := strconv.Atoi(line)
	c, err2 := strconv.Atoi(column)
	if err1 != nil || err2 != nil {
		return fmt.Errorf("schemas: position %q is not file:line:column", text)
	}
	*p = Position{File: unique.Make(file).Value(), Line: l, Column: c} // a form has many positions in few files
	return nil
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// Kinds is a set of JSON kinds.
//
// Invariant: a set with NumberKind has IntegerKind, because every integer is a number.
type Kinds uint8

// The kinds of JSON values.
const (
	NullKind Kinds = 1 << iota
	BoolKind
	IntegerKind
	NumberKind // with or without a fraction
	StringKind
	ListKind
	StructKind

	// AnyKind is the set of all kinds.
	AnyKind = NullKind | BoolKind | IntegerKind | NumberKind | StringKind | ListKind | StructKind

	// ScalarKinds are the kinds of booleans, numbers and strings. Null is not among them.
	ScalarKinds = BoolKind | IntegerKind | NumberKind | StringKind
)

var kindNames = [...]struct {
	kind Kinds
	name string
}{
	{NullKind, "null"},
	{BoolKind, "bool"},
	{IntegerKind, "integer"},
	{NumberKind, "number"},
	{StringKind, "string"},
	{ListKind, "list"},
	{StructKind, "struct"},
}

// Has reports whether k contains every kind of other.
func (k Kinds) Has(other Kinds) bool { return k&other == other }

// Split returns the kinds of the set one by one.
func (k Kinds) Split() (kinds []Kinds) {
	for _, n := range kindNames {
		if k.Has(n.kind) {
			kinds = append(kinds, n.kind)
		}
	}
	return kinds
}

// String returns the names of the kinds separated by "|", or "any" for all of
// them. "number" stands for integers as well.
func (k Kinds) String() string {
	if k == AnyKind {
		return "any"
	}
	var names []string
	for _, n := range kindNames {
		if k&n.kind == 0 || n.kind == IntegerKind && k&NumberKind != 0 {
			continue
		}
		names = append(names, n.name)
	}
	return strings.Join(names, "|")
}

// MarshalText encodes the set as String does.
func (k Kinds) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (k *Kinds) UnmarshalText(text []byte) error {
	*k = 0
	if string(text) == "any" {
		*k = AnyKind
		return nil
	}
	if len(text) == 0 {
		return nil
	}
next:
	for name := range strings.SplitSeq(string(text), "|") {
		for _, n := range kindNames {
			if n.name == name {
				*k |= n.kind
				continue next
			}
		}
		return fmt.Errorf("schemas: unknown kind %q", name)
	}
	if *k&NumberKind != 0 {
		*k |= IntegerKind
	}
	return nil
}

// A Node says which values are valid at one place of an object, and what the default is.
//
// Each part of a Node constrains values of its own kinds. If no part constrains a kind, every value of
// that kind is valid, provided the kind is in Kinds.
type Node struct {
	// Kinds are the kinds that the value may have. The set is never empty.
	Kinds Kinds `json:"kinds"`

	// Scalars are the alternatives for booleans, numbers and strings. A scalar is valid if one of
	// the alternatives for its kind admits it, or if there are no alternatives for its kind.
	Scalars []Scalar `json:"scalars,omitempty"`

	// List constrains lists. Nil admits any list.
	List *List `json:"list,omitempty"`

	// Struct constrains structs. Nil admits any struct.
	Struct *Struct `json:"struct,omitempty"`

	// Union says that a struct must match one of several structs. Struct then has the fields of all
	// of them, and admits every value that one of them admits.
	Union *Union `json:"union,omitempty"`

	// Logic holds further nodes. The value must satisfy all, some, one or none of them.
	Logic *Logic `json:"logic,omitempty"`

	// Message is the error message that the policy sets for an invalid value.
	Message string `json:"message,omitempty"`

	// From names another field of the object. This field has the value of that field.
	From *Reference `json:"from,omitempty"`

	// Fallback is a CUE expression that validates what the rest of the node cannot express. The rest
	// admits at least the values that the expression admits.
	Fallback *Fallback `json:"fallback,omitempty"`

	// Default is the default value, as canonical JSON. It is set if a regular field is absent. If
	// the data holds only a part of a default list or struct, the missing parts are filled in, as
	// CUE does.
	Default json.RawMessage `json:"default,omitempty"`

	// Plain selects the rules of OpenAPI: the default is set only if the field is absent, and the
	// formats byte and date-time are checked as for custom resources.
	Plain bool `json:"plain,omitempty"`

	// DropNull treats a null as absent. In a field or under a key of a map, the null is removed or
	// replaced by the default. In a list it is replaced by the default, if there is one.
	DropNull bool `json:"dropNull,omitempty"`

	// Keeps preserves unknown fields, also in values of a kind that the node does not admit.
	Keeps bool `json:"keeps,omitempty"`

	// Bare removes all fields of structs in the value, also inside nested lists.
	Bare bool `json:"bare,omitempty"`

	// Format names the format of a string, as OpenAPI does. A format that the server does not know
	// is not checked.
	Format string `json:"format,omitempty"`

	// Immutable is the line of the policy that makes the value immutable, or nil.
	Immutable *Position `json:"immutable,omitempty"`

	// Embedded marks a struct that is a Kubernetes object, with apiVersion, kind and metadata.
	Embedded bool `json:"embedded,omitempty"`

	// Sensitive marks a secret value.
	Sensitive bool `json:"sensitive,omitempty"`

	// Doc is the text of the comments on the field.
	Doc string `json:"doc,omitempty"`

	// Source is where the field is declared.
	Source Position `json:"source,omitzero"`
}

// The formats of strings.
const (
	FormatByte     = "byte"      // base64, standard alphabet, padded
	FormatDateTime = "date-time" // RFC 3339
	FormatQuantity = "quantity"  // a Kubernetes quantity: 1500m, 2Gi
)

// HasSensitive reports whether the value, or a part of it, is a secret.
func (n *Node) HasSensitive() (found bool) {
	n.Visit("", func(_ string, n *Node) { found = found || n.Sensitive })
	return found
}

// A Scalar is a set of rules that must all hold. Numeric rules apply to numbers, textual rules to
// strings. Enum and Not apply to values of all Kinds.
type Scalar struct {
	// Kinds are the kinds that this alternative applies to: a subset of bool, integer, number and
	// string.
	Kinds Kinds `json:"kinds"`

	// Enum lists the only admitted values, as canonical JSON. An empty Enum admits any value.
	Enum []json.RawMessage `json:"enum,omitempty"`

	// Not lists values that are not admitted.
	Not []Constant `json:"not,omitempty"`

	Minimum *Bound `json:"minimum,omitempty"`
	Maximum *Bound `json:"maximum,omitempty"`

	// Patterns are regular expressions (RE2, not anchored) that the string must match or must not
	// match.
	Patterns []Pattern `json:"patterns,omitempty"`

	// MinRunes and MaxRunes limit the length of the string in code points.
	MinRunes *Limit `json:"minRunes,omitempty"`
	MaxRunes *Limit `json:"maxRunes,omitempty"`

	// MultipleOf is a decimal number. A number must be a multiple of it.
	MultipleOf *Bound `json:"multipleOf,omitempty"`

	// Forms are tests of CUE that the string must pass, such as net.IPv4.
	Forms []Form `json:"forms,omitempty"`
}

// A Form names one of CUE's tests of strings, such as net.IPv4 or time.Format("2006-01-02").
type Form struct {
	Name   string   `json:"name"`
	Source Position `json:"source,omitzero"`
}

// Constrained reports whether the alternative has any rule besides its kinds.
func (s *Scalar) Constrained() bool {
	return len(s.Enum) > 0 || len(s.Not) > 0 || s.Minimum != nil || s.Maximum != nil ||
		len(s.Patterns) > 0 || s.MinRunes != nil || s.MaxRunes != nil || s.MultipleOf != nil || len(s.Forms) > 0
}

// A Constant is a value, as canonical JSON, and the line of the policy that names it.
type Constant struct {
	Value  json.RawMessage `json:"value"`
	Source Position        `json:"source,omitzero"`
}

// A Bound is the lower or upper end of an interval of numbers. Value is an exact decimal number in
// canonical form.
type Bound struct {
	Value     string   `json:"value"`
	Exclusive bool     `json:"exclusive,omitempty"`
	Source    Position `json:"source,omitzero"`
}

// A Limit is a minimum or maximum count: of items, fields or characters.
type Limit struct {
	Count  int      `json:"count"`
	Source Position `json:"source,omitzero"`
}

// A Pattern is a regular expression in RE2 syntax. It may match any part of the string.
type Pattern struct {
	Regexp  string   `json:"regexp"`
	Negated bool     `json:"negated,omitempty"`
	Source  Position `json:"source,omitzero"`
}

// A List constrains the items of a list. Unique lists hold scalars only.
type List struct {
	Items    *Node  `json:"items,omitempty"` // nil admits any item
	MinItems *Limit `json:"minItems,omitempty"`
	MaxItems *Limit `json:"maxItems,omitempty"`
	Unique   bool   `json:"unique,omitempty"`

	// Prefix are the nodes of the first items, if items differ by index. Rest is the node of the
	// items after them; nil admits any. Items then admits what any of these nodes admits.
	Prefix []*Node `json:"prefix,omitempty"`
	Rest   *Node   `json:"rest,omitempty"`

	// Type says how Kubernetes merges the list (x-kubernetes-list-type): ListAtomic, ListSet or
	// ListMap; empty means ListAtomic. The items of a set are unique. The items of a map are
	// identified by MapKeys.
	Type    string   `json:"type,omitempty"`
	MapKeys []string `json:"mapKeys,omitempty"`
}

// The types of lists (x-kubernetes-list-type) and of maps (x-kubernetes-map-type).
const (
	ListAtomic = "atomic"
	ListSet    = "set"
	ListMap    = "map"

	MapAtomic   = "atomic"
	MapGranular = "granular"
)

// A Struct constrains the fields of a struct. The value of an undeclared key must satisfy every pattern
// whose key matches. A key that matches no pattern is valid only if the struct is open.
//
// Invariant: if there are several patterns, their values are scalars. A value that satisfies each of
// them thus satisfies all of them together.
type Struct struct {
	Fields   []Field      `json:"fields,omitempty"` // in declared order
	Patterns []KeyPattern `json:"patterns,omitempty"`
	Open     bool         `json:"open,omitempty"`

	// MinFields and MaxFields limit how many fields there are.
	MinFields *Limit `json:"minFields,omitempty"`
	MaxFields *Limit `json:"maxFields,omitempty"`

	// Type is how Kubernetes merges the struct (x-kubernetes-map-type): MapGranular or
	// MapAtomic, granular if empty.
	Type string `json:"type,omitempty"`

	// Comparisons compare fields with each other. Conditions add fields that depend on the values of
	// other fields.
	Comparisons []Comparison `json:"comparisons,omitempty"`
	Conditions  []Condition  `json:"conditions,omitempty"`
}

// A Comparison compares a field with another field of the same struct, as in max: >min. It applies if
// Field is present. Other must then be present too.
type Comparison struct {
	Field  string   `json:"field"`
	Op     string   `json:"op"` // < <= > >= !=
	Other  string   `json:"other"`
	Source Position `json:"source,omitzero"`
}

// A Condition adds fields to a struct if its guard holds, as `if` does in CUE. A field that the guard
// tests must be present, unless the guard tests for its presence.
type Condition struct {
	When   *Guard   `json:"when"`
	Fields []Field  `json:"fields"`
	Source Position `json:"source,omitzero"`
}

// A Guard is a test of the fields of a struct.
type Guard struct {
	// Op is the operator. "and" and "or" combine the guards Of and need the fields of all of them.
	// "then" tests the guards one by one and stops at the first that does not hold, so that a guard
	// can test for the presence of a field that the next one needs. The others are "not", "present",
	// "absent", ==, !=, <, <=, >, >=, =~ and !~.
	Op    string          `json:"op"`
	Of    []*Guard        `json:"of,omitempty"`
	Field string          `json:"field,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// A Union is a choice between structs. Arms that contradict the data are ruled out. Exactly one arm must
// remain, as in CUE, or the preferred one.
type Union struct {
	// Discriminator names a field that has different constants in each arm. It is empty if no field
	// does.
	Discriminator string   `json:"discriminator,omitempty"`
	Arms          []Arm    `json:"arms"`
	Source        Position `json:"source,omitzero"`

	// Ambiguous is the union as a CUE expression. It is evaluated if a value fits several arms. It
	// is nil if the union has a discriminator.
	Ambiguous *Fallback `json:"ambiguous,omitempty"`
}

// An Arm is one alternative of a union. Values are the values of the discriminator that select it.
type Arm struct {
	Values []json.RawMessage `json:"values,omitempty"`
	Struct *Struct           `json:"struct"`
	Source Position          `json:"source,omitzero"`

	// Preferred marks the arm that is the default. It is chosen if it remains, whatever other arms remain.
	Preferred bool `json:"preferred,omitempty"`
}

// Logic holds OpenAPI's allOf, anyOf, oneOf and not. These nodes only validate: they set no defaults,
// prune nothing, and their structs are open.
type Logic struct {
	AllOf []*Node `json:"allOf,omitempty"`
	AnyOf []*Node `json:"anyOf,omitempty"`
	OneOf []*Node `json:"oneOf,omitempty"`
	Not   *Node   `json:"not,omitempty"`
}

// A Reference names another part of the same object: a field, the map key of an enclosing struct, or a
// string built from such parts. A missing regular field gets the value of its reference. A present field
// must have that value, unless the reference is only a default.
type Reference struct {
	Parts   []Part   `json:"parts"`
	Joined  bool     `json:"joined,omitempty"`  // the parts form one string
	Default bool     `json:"default,omitempty"` // the reference is only a default
	Source  Position `json:"source,omitzero"`
}

// A Part of a reference is a constant string, or a path to a value. The path starts at the struct that
// is Up levels outside the field. Level 0 is the struct that has the field.
type Part struct {
	Text string   `json:"text,omitempty"`
	Up   int      `json:"up,omitempty"`
	Path []string `json:"path,omitempty"`
	Key  bool     `json:"key,omitempty"` // the map key of that struct
}

// A Fallback is a self-contained CUE expression. It validates and completes a value that the form cannot
// fully describe.
type Fallback struct {
	CUE    string   `json:"cue"`
	Reason string   `json:"reason"` // what the form cannot express
	Source Position `json:"source,omitzero"`

	// Absent is the value, as JSON, that CUE gives a missing field, or empty if CUE gives none. It
	// is computed when the form is made, so that loading a form does not need CUE.
	Absent json.RawMessage `json:"absent,omitempty"`
}

// A Field is a named field of a struct.
type Field struct {
	Name     string   `json:"name"`
	Presence Presence `json:"presence"`
	Schema   *Node    `json:"schema"`
}

// TakenFromElsewhere reports whether the field, when missing, gets the value of another field.
func (f *Field) TakenFromElsewhere() bool { return f.Presence == Regular && f.Schema.From != nil }

// Presence says what happens if a field is missing from the data.
type Presence string

const (
	Required Presence = "required" // f!: a missing field is an error
	Regular  Presence = "regular"  // f: a missing field gets its default; without a default it is an error
	Optional Presence = "optional" // f?: the field may be missing
)

// A KeyPattern constrains the values of all fields whose names satisfy Key. Key is a node that admits
// only strings.
type KeyPattern struct {
	Key   *Node `json:"key"`
	Value *Node `json:"value"`
}

// AdmitsAll reports whether the node admits every value.
func (n *Node) AdmitsAll() bool {
	return n.Kinds == AnyKind && n.Scalars == nil && n.List == nil && n.Struct == nil && n.Union == nil &&
		n.Logic == nil && n.Fallback == nil && n.Format == ""
}

// Forbids returns the logic of a field that may not be set.
func Forbids() *Logic { return &Logic{Not: &Node{Kinds: AnyKind}} }

// NeverSet is the message of an optional field that a part of a struct declares and another part is closed to.
const NeverSet = "cannot be set, for another part of the struct is closed to it"

// Forbidden reports whether the node admits nothing, so that a field with it may not be set.
func (n *Node) Forbidden() bool {
	return n.Logic != nil && n.Logic.Not != nil && n.Logic.Not.AdmitsAll()
}

// MaxDepth is the maximum nesting depth of the nodes of a form. It bounds the recursion of programs.
const MaxDepth = 64

// ServerOwned reports whether a top-level field belongs to the server: apiVersion, kind or metadata.
func ServerOwned(name string) bool {
	return name == "apiVersion" || name == "kind" || name == "metadata"
}

// At returns the node of the item at index i, or nil if the node admits any item.
func (l *List) At(i int) *Node {
	switch {
	case l.Prefix == nil:
		return l.Items
	case i < len(l.Prefix):
		return l.Prefix[i]
	}
	return l.Rest
}

// Each returns the nodes of all items: Prefix and Rest if there is a prefix, else Items. A nil node
// admits anything.
func (l *List) Each() []*Node {
	if l.Prefix == nil {
		return []*Node{l.Items}
	}
	return append(slices.Clip(l.Prefix), l.Rest)
}

// String returns the reference as shown in error messages: spec.name, or "\(spec.name)-tls".
func (r *Reference) String() string {
	var b strings.Builder
	for i := range r.Parts {
		p := &r.Parts[i]
		name := strings.Join(p.Path, ".")
		if p.Key {
			name = "the key"
		}
		switch {
		case !r.Joined:
			return name
		case p.Path == nil && !p.Key:
			b.WriteString(p.Text)
		default:
			b.WriteString(`\(` + name + `)`)
		}
	}
	return `"` + b.String() + `"`
}
