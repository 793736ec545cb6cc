package schemas

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// HasRest reports whether there may be items after the prefix.
func (l *List) HasRest() bool { return l.MaxItems == nil || l.MaxItems.Count > len(l.Prefix) }

// A Position is a place in the source of a policy. File is relative to the root
// of the bundle. The zero Position means that no source is known.
type Position struct {
	File   string
	Line   int
	Column int
}

// IsZero reports whether no source is known.
func (p Position) IsZero() bool { return p == Position{} }

// String returns "file:line", as messages show it, or "" for the zero Position.
func (p Position) String() string {
	if p.IsZero() {
		return ""
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
	*p = Position{File: file, Line: l, Column: c}
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
	NumberKind // with a fraction or without
	StringKind
	ListKind
	StructKind

	// AnyKind is the set of all kinds.
	AnyKind = NullKind | BoolKind | IntegerKind | NumberKind | StringKind | ListKind | StructKind

	// ScalarKinds are the kinds of values without parts, null left out.
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

// A Node says what values are valid at one place of an object, and what the default is.
//
// Each part of a Node constrains values of its own kinds. A null, or a value of a kind that no part
// constrains, is valid if its kind is in Kinds.
type Node struct {
	// Kinds are the kinds that the value may have. It is never empty.
	Kinds Kinds `json:"kinds"`

	// Scalars are the alternatives for booleans, numbers and strings. A scalar
	// is valid if no alternative speaks of its kind, or if one that does admits
	// it.
	Scalars []Scalar `json:"scalars,omitempty"`

	// List constrains lists; nil admits any list.
	List *List `json:"list,omitempty"`

	// Struct constrains structs; nil admits any struct.
	Struct *Struct `json:"struct,omitempty"`

	// Union says that a struct is one of several. Struct then has every field of each of them,
	// and admits all that any of them admits.
	Union *Union `json:"union,omitempty"`

	// Logic has further nodes, of which the value must satisfy all, some, one or none.
	Logic *Logic `json:"logic,omitempty"`

	// Message is the policy's own error message for an invalid value.
	Message string `json:"message,omitempty"`

	// From names another field of the object whose value this field has.
	From *Reference `json:"from,omitempty"`

	// Fallback is a CUE expression that is evaluated with the value. It says what the rest of
	// the node cannot. The rest then admits at least what the expression admits.
	Fallback *Fallback `json:"fallback,omitempty"`

	// Default is the default value, as canonical JSON. It fills an absent regular field. A
	// list or a struct in the data that is a part of the default is completed to it, because
	// CUE does so.
	Default json.RawMessage `json:"default,omitempty"`

	// Plain gives the node the meaning of OpenAPI: the default, with the defaults inside it,
	// fills an absent field only, and the formats byte and date-time are those of custom
	// resources.
	Plain bool `json:"plain,omitempty"`

	// DropNull treats a null as absent: in a field or under a key of a map it is removed or
	// replaced by the default; in a list it is replaced by the default, if there is one.
	DropNull bool `json:"dropNull,omitempty"`

	// Keeps preserves unknown fields also in values of a kind that the node does not admit.
	Keeps bool `json:"keeps,omitempty"`

	// Bare removes all fields of structs in the value, also in lists of lists.
	Bare bool `json:"bare,omitempty"`

	// Format names a textual form that a string must have, as OpenAPI names it; a name that
	// is not known is for readers only.
	Format string `json:"format,omitempty"`

	// Immutable is the line that makes the value immutable; nil if it may change.
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
	FormatQuantity = "quantity"  // of resources, as Kubernetes writes it: 1500m, 2Gi
)

// HasSensitive reports whether the value, or a part of it, is a secret.
func (n *Node) HasSensitive() (found bool) {
	n.Visit("", func(_ string, n *Node) { found = found || n.Sensitive })
	return found
}

// A Scalar is a set of rules that all must hold. Numeric rules apply to numbers and textual rules to
// strings. Enum and Not apply to all of Kinds.
type Scalar struct {
	// Kinds are the kinds that this alternative speaks of: a subset of bool,
	// integer, number and string.
	Kinds Kinds `json:"kinds"`

	// Enum, if not empty, lists the only admitted values as canonical JSON.
	Enum []json.RawMessage `json:"enum,omitempty"`

	// Not lists values that are not admitted.
	Not []Constant `json:"not,omitempty"`

	Minimum *Bound `json:"minimum,omitempty"`
	Maximum *Bound `json:"maximum,omitempty"`

	// Patterns are regular expressions (RE2, not anchored) that the string must
	// match, or must not.
	Patterns []Pattern `json:"patterns,omitempty"`

	// MinRunes and MaxRunes limit the length of the string in code points.
	MinRunes *Limit `json:"minRunes,omitempty"`
	MaxRunes *Limit `json:"maxRunes,omitempty"`

	// MultipleOf is a decimal number of which a number must be a multiple.
	MultipleOf *Bound `json:"multipleOf,omitempty"`

	// Forms are CUE's named tests that the string must pass: time.Time, net.IPv4.
	Forms []Form `json:"forms,omitempty"`
}

// A Form names one of CUE's tests of strings, such as net.IPv4.
type Form struct {
	Name   string   `json:"name"`
	Source Position `json:"source,omitzero"`
}

// Constrained reports whether the alternative has rules beside its kinds.
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

// A Pattern is a regular expression in RE2 syntax that is searched in a string.
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

	// Prefix are the first items of a list whose items differ by their index; those after it
	// are as Rest says, nil admits any. Items then admits what any of them may be.
	Prefix []*Node `json:"prefix,omitempty"`
	Rest   *Node   `json:"rest,omitempty"`

	// Type is how Kubernetes merges the list (x-kubernetes-list-type): ListAtomic, ListSet
	// or ListMap, atomic if empty. The items of a set are unique, those of a map by MapKeys.
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

// A Struct constrains the fields of a struct. The value of an undeclared key must satisfy every
// pattern that the key matches. A key that matches no pattern is valid only if the struct is open.
//
// Invariant: the values of several patterns are scalars. A value that satisfies each of them then
// satisfies all of them together.
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

	// Comparisons hold between fields, Conditions add fields by what others are.
	Comparisons []Comparison `json:"comparisons,omitempty"`
	Conditions  []Condition  `json:"conditions,omitempty"`
}

// A Comparison compares a field with another field of the same struct: max: >min. It applies if
// Field is present. Other must then be present as well.
type Comparison struct {
	Field  string   `json:"field"`
	Op     string   `json:"op"` // < <= > >= !=
	Other  string   `json:"other"`
	Source Position `json:"source,omitzero"`
}

// A Condition adds fields to a struct if a guard holds: CUE's `if`. A field that the guard tests
// must be present, unless the guard tests its presence.
type Condition struct {
	When   *Guard   `json:"when"`
	Fields []Field  `json:"fields"`
	Source Position `json:"source,omitzero"`
}

// A Guard is a test of fields of a struct.
type Guard struct {
	// Op is one of: then, which tests Of one after the other until one does not hold, so that
	// the first can ask for a field that the next needs; and, or, which need all of their
	// fields; not; present, absent; == != < <= > >= =~ !~.
	Op    string          `json:"op"`
	Of    []*Guard        `json:"of,omitempty"`
	Field string          `json:"field,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// A Union is a choice between structs. Arms that the data contradicts are ruled out. One arm must
// remain, as in CUE.
type Union struct {
	// Discriminator names a field that has different constants in each arm; empty if there is
	// none.
	Discriminator string   `json:"discriminator,omitempty"`
	Arms          []Arm    `json:"arms"`
	Source        Position `json:"source,omitzero"`

	// Ambiguous is the union as a CUE expression. It is evaluated for a value that fits several
	// arms. Unions with a discriminator need none.
	Ambiguous *Fallback `json:"ambiguous,omitempty"`
}

// An Arm is one alternative of a union. Values are those of the discriminator that select it.
type Arm struct {
	Values []json.RawMessage `json:"values,omitempty"`
	Struct *Struct           `json:"struct"`
	Source Position          `json:"source,omitzero"`
}

// Logic has OpenAPI's allOf, anyOf, oneOf and not. Its nodes validate only: they have no defaults,
// prune nothing, and their structs are open.
type Logic struct {
	AllOf []*Node `json:"allOf,omitempty"`
	AnyOf []*Node `json:"anyOf,omitempty"`
	OneOf []*Node `json:"oneOf,omitempty"`
	Not   *Node   `json:"not,omitempty"`
}

// A Reference names another part of the same object: a field, the key of a map under which a struct
// stands, or a text made of such parts. A missing regular field gets the value of its reference. A
// present field must have that value, unless the reference is a default only.
type Reference struct {
	Parts   []Part   `json:"parts"`
	Joined  bool     `json:"joined,omitempty"`  // to a text
	Default bool     `json:"default,omitempty"` // it is the default
	Source  Position `json:"source,omitzero"`
}

// A Part of a reference is a constant text, or a path to a value. The path starts at the struct that
// is Up levels outside the field; 0 is the struct that has the field.
type Part struct {
	Text string   `json:"text,omitempty"`
	Up   int      `json:"up,omitempty"`
	Path []string `json:"path,omitempty"`
	Key  bool     `json:"key,omitempty"` // the key of that struct
}

// A Fallback is a self-contained CUE expression. It validates and completes a value of which the
// form cannot say everything.
type Fallback struct {
	CUE    string   `json:"cue"`
	Reason string   `json:"reason"` // what the form cannot express
	Source Position `json:"source,omitzero"`

	// Absent is the value, as JSON, that CUE gives a missing field; empty if it gives none. It
	// is computed when the form is made, so that loading a form needs no CUE.
	Absent json.RawMessage `json:"absent,omitempty"`
}

// A Field is a named field of a struct.
type Field struct {
	Name     string   `json:"name"`
	Presence Presence `json:"presence"`
	Schema   *Node    `json:"schema"`
}

// TakenFromElsewhere reports whether a missing field gets the value of another field.
func (f *Field) TakenFromElsewhere() bool { return f.Presence == Regular && f.Schema.From != nil }

// Presence says what happens if a field is missing from the data.
type Presence string

const (
	Required Presence = "required" // f!: an error
	Regular  Presence = "regular"  // f: filled in by the default, or else an error
	Optional Presence = "optional" // f?: nothing
)

// A KeyPattern constrains the fields whose names satisfy Key, a node that admits
// strings only.
type KeyPattern struct {
	Key   *Node `json:"key"`
	Value *Node `json:"value"`
}

// AdmitsAll reports whether every value is valid.
func (n *Node) AdmitsAll() bool {
	return n.Kinds == AnyKind && n.Scalars == nil && n.List == nil && n.Struct == nil && n.Union == nil &&
		n.Logic == nil && n.Fallback == nil && n.Format == ""
}

// MaxDepth is how deep the nodes of a form may nest. It bounds the recursion of programs.
const MaxDepth = 64

// ServerOwned reports whether a top-level field belongs to the server: apiVersion, kind or metadata.
func ServerOwned(name string) bool {
	return name == "apiVersion" || name == "kind" || name == "metadata"
}

// At returns the node of the item with an index; nil if the item may be anything.
func (l *List) At(i int) *Node {
	switch {
	case l.Prefix == nil:
		return l.Items
	case i < len(l.Prefix):
		return l.Prefix[i]
	}
	return l.Rest
}

// Each returns all nodes of items: those with an index and the one of the rest. A nil node admits
// anything.
func (l *List) Each() []*Node {
	if l.Prefix == nil {
		return []*Node{l.Items}
	}
	return append(slices.Clip(l.Prefix), l.Rest)
}

// String returns the reference as error messages show it: spec.name, or "\(spec.name)-tls".
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
