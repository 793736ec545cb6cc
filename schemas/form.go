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
// Invariant: NumberKind ∈ k ⇒ IntegerKind ∈ k, for every integer is a number.
type Kinds uint8

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

// A Node says what one value may be. It is what a value in CUE evaluates to,
// freed of CUE: the union of what each kind of JSON value must satisfy.
//
// Kinds are disjoint, so each part of a Node speaks about its own kinds only. A
// null or a value of an unconstrained kind passes once its kind is in Kinds.
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

	// Union says that a struct is one of several; Struct then has every field that any of
	// them has, and says no more than all of them together.
	Union *Union `json:"union,omitempty"`

	// Logic are further nodes that the value must satisfy in some number.
	Logic *Logic `json:"logic,omitempty"`

	// Message is what the policy says of a value that is invalid.
	Message string `json:"message,omitempty"`

	// From is where in the object the value is taken from, if it is a field.
	From *Reference `json:"from,omitempty"`

	// Fallback is what the rest of the node cannot say: CUE that is evaluated with the
	// value. The rest then admits more than the CUE does, never less.
	Fallback *Fallback `json:"fallback,omitempty"`

	// Default is the value, as canonical JSON, that CUE chooses when nothing is
	// said. It fills an absent regular field. A list or a struct in the data
	// that is a part of the default is completed to it, wherever it stands, for
	// so CUE chooses between a default and its alternatives.
	Default json.RawMessage `json:"default,omitempty"`

	// Plain: the node is read as those of OpenAPI are. The default is for an absent field
	// only, with the defaults inside of it; a part of it in the data is not completed. Byte
	// and date-time are what Kubernetes takes for them in custom resources.
	Plain bool `json:"plain,omitempty"`

	// DropNull: a null counts as absent, in a field or under a key of a map, and is removed
	// or replaced by the default. In a list it is replaced by the default, and else stays.
	DropNull bool `json:"dropNull,omitempty"`

	// Keeps: unknown fields are kept in what is of another kind than the node admits, too.
	Keeps bool `json:"keeps,omitempty"`

	// Bare: structs in the value lose all that they have, at any depth of lists.
	Bare bool `json:"bare,omitempty"`

	// Format names a textual form that a string must have, as OpenAPI names it; a name that
	// is not known is for readers only.
	Format string `json:"format,omitempty"`

	// Immutable: where it stands that the value must not change once the object is there.
	Immutable *Position `json:"immutable,omitempty"`

	// Embedded: the struct is an object of its own, with apiVersion, kind and metadata.
	Embedded bool `json:"embedded,omitempty"`

	// Sensitive: the value is a secret.
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

// A Scalar is a conjunction of rules. Numeric rules apply to numbers and textual
// ones to strings; Enum and Not apply to all of Kinds.
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

// A Form is a test of strings by its name in CUE.
type Form struct {
	Name   string   `json:"name"`
	Source Position `json:"source,omitzero"`
}

// Constrained reports whether the alternative says more than its kinds.
func (s *Scalar) Constrained() bool {
	return len(s.Enum) > 0 || len(s.Not) > 0 || s.Minimum != nil || s.Maximum != nil ||
		len(s.Patterns) > 0 || s.MinRunes != nil || s.MaxRunes != nil || s.MultipleOf != nil || len(s.Forms) > 0
}

// A Constant is a value as canonical JSON, and where the policy names it.
type Constant struct {
	Value  json.RawMessage `json:"value"`
	Source Position        `json:"source,omitzero"`
}

// A Bound is one end of an interval of numbers. Value is a decimal number,
// exact, in canonical form.
type Bound struct {
	Value     string   `json:"value"`
	Exclusive bool     `json:"exclusive,omitempty"`
	Source    Position `json:"source,omitzero"`
}

// A Limit is a count that must not be exceeded or undercut.
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

// The types of lists and of maps.
const (
	ListAtomic = "atomic"
	ListSet    = "set"
	ListMap    = "map"

	MapAtomic   = "atomic"
	MapGranular = "granular"
)

// A Struct constrains the fields of a struct. A key that is not a field must
// satisfy the value of every pattern it matches; a key that matches none is
// admitted only if the struct is open.
//
// Invariant: if there are several patterns, their values are scalars, so that
// satisfying each of them is satisfying their conjunction.
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

// A Comparison is a bound on a field that is the value of another field of the same struct:
// the field must be there as a number or string that compares with Other by Op. It counts
// where Field is there; then Other must be there.
type Comparison struct {
	Field  string   `json:"field"`
	Op     string   `json:"op"` // < <= > >= !=
	Other  string   `json:"other"`
	Source Position `json:"source,omitzero"`
}

// A Condition adds fields to a struct if a guard over its other fields holds. A field that
// the guard speaks of must be there, unless the guard asks whether it is.
type Condition struct {
	When   *Guard   `json:"when"`
	Fields []Field  `json:"fields"`
	Source Position `json:"source,omitzero"`
}

// A Guard is a test of the fields of a struct.
type Guard struct {
	// Op is one of: then, which tests Of one after the other until one does not hold, so that
	// the first can ask for a field that the next needs; and, or, which need all of their
	// fields; not; present, absent; == != < <= > >= =~ !~.
	Op    string          `json:"op"`
	Of    []*Guard        `json:"of,omitempty"`
	Field string          `json:"field,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// A Union is a choice between structs. As CUE chooses, so does a program: an arm that
// contradicts what is there is out; one arm must be left.
type Union struct {
	// Discriminator is a field with other constants in each arm, if there is one.
	Discriminator string   `json:"discriminator,omitempty"`
	Arms          []Arm    `json:"arms"`
	Source        Position `json:"source,omitzero"`

	// Ambiguous is the union in CUE, for a value that nothing tells the arms apart by: if
	// they make the same of it, CUE takes them for one. Unions with a discriminator need none.
	Ambiguous *Fallback `json:"ambiguous,omitempty"`
}

// An Arm is one alternative of a union. Values are those of the discriminator.
type Arm struct {
	Values []json.RawMessage `json:"values,omitempty"`
	Struct *Struct           `json:"struct"`
	Source Position          `json:"source,omitzero"`
}

// Logic is what OpenAPI calls allOf, anyOf, oneOf and not. Its nodes say what is valid and
// nothing else: they have no defaults, nothing is pruned by them, and their structs are open.
type Logic struct {
	AllOf []*Node `json:"allOf,omitempty"`
	AnyOf []*Node `json:"anyOf,omitempty"`
	OneOf []*Node `json:"oneOf,omitempty"`
	Not   *Node   `json:"not,omitempty"`
}

// A Reference stands for another part of the object: a field, the key under which a struct
// stands, or a text made of such. A regular field that is missing gets its value, and another
// value must be the same, or else is free if the reference is for the default only.
type Reference struct {
	Parts   []Part   `json:"parts"`
	Joined  bool     `json:"joined,omitempty"`  // to a text
	Default bool     `json:"default,omitempty"` // it is the default
	Source  Position `json:"source,omitzero"`
}

// A Part of a reference is a text, or a value that is found from the struct that is so many
// structs outward from the field: 0 is the one that has it.
type Part struct {
	Text string   `json:"text,omitempty"`
	Up   int      `json:"up,omitempty"`
	Path []string `json:"path,omitempty"`
	Key  bool     `json:"key,omitempty"` // the key of that struct
}

// A Fallback is an expression in CUE that needs nothing from outside itself.
type Fallback struct {
	CUE    string   `json:"cue"`
	Reason string   `json:"reason"` // what no other part of the form can say
	Source Position `json:"source,omitzero"`

	// Absent is the value, JSON, that CUE gives a field that is missing; none if it gives
	// it no value. It is known when the form is made, so that CUE is not asked when the
	// form is loaded.
	Absent json.RawMessage `json:"absent,omitempty"`
}

// A Field is a named field of a struct.
type Field struct {
	Name     string   `json:"name"`
	Presence Presence `json:"presence"`
	Schema   *Node    `json:"schema"`
}

// TakenFromElsewhere reports whether the field gets its value from elsewhere in the object when it is missing.
func (f *Field) TakenFromElsewhere() bool { return f.Presence == Regular && f.Schema.From != nil }

// Presence says what it means that a field is missing from the data.
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

// AdmitsAll reports whether the node admits everything.
func (n *Node) AdmitsAll() bool {
	return n.Kinds == AnyKind && n.Scalars == nil && n.List == nil && n.Struct == nil && n.Union == nil &&
		n.Logic == nil && n.Fallback == nil && n.Format == ""
}

// MaxDepth is how deep a form may nest. It bounds the recursion of programs.
const MaxDepth = 64

// ServerOwned reports whether a top-level field is the server's, not the
// schema's.
func ServerOwned(name string) bool {
	return name == "apiVersion" || name == "kind" || name == "metadata"
}

// At returns the node of an item by its index, nil if it may be anything.
func (l *List) At(i int) *Node {
	switch {
	case l.Prefix == nil:
		return l.Items
	case i < len(l.Prefix):
		return l.Prefix[i]
	}
	return l.Rest
}

// Each returns the nodes of which each item is one.
func (l *List) Each() []*Node {
	if l.Prefix == nil {
		return []*Node{l.Items}
	}
	return append(slices.Clip(l.Prefix), l.Rest)
}

// String writes a reference as people read it.
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
