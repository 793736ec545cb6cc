package schemas

import (
	"encoding/json"
)

// A Kind is a resource type: its names, and a schema for each of its versions.
type Kind struct {
	Group          string    `json:"group,omitempty"` // empty for the core group
	Kind           string    `json:"kind"`
	ListKind       string    `json:"listKind"`
	Plural         string    `json:"plural"`
	Singular       string    `json:"singular"`
	ShortNames     []string  `json:"shortNames,omitempty"`
	Categories     []string  `json:"categories,omitempty"`
	Namespaced     bool      `json:"namespaced,omitempty"`
	StorageVersion string    `json:"storageVersion"`
	Versions       []Version `json:"versions"`
	Builtin        bool      `json:"builtin,omitempty"`
	Source         Position  `json:"source,omitzero"`

	// Definition is the CustomResourceDefinition that the kind was written as, as compact
	// JSON with defaults; empty for a kind that was not.
	Definition json.RawMessage `json:"definition,omitempty"`
}

// Resource returns the name of the resource: "plural.group", or "plural" in the
// core group. It is the id of the kind in a bundle.
func (k Kind) Resource() string {
	if k.Group == "" {
		return k.Plural
	}
	return k.Plural + "." + k.Group
}

// Version returns the version of that name, if the kind has it.
func (k Kind) Version(name string) (*Version, bool) {
	for i := range k.Versions {
		if k.Versions[i].Name == name {
			return &k.Versions[i], true
		}
	}
	return nil, false
}

// A Version is one representation of a kind.
type Version struct {
	Name   string `json:"name"`
	Served bool   `json:"served,omitempty"`

	// Deprecated is the warning that clients get; empty if there is none.
	Deprecated string `json:"deprecated,omitempty"`

	// Schema constrains the object without apiVersion, kind and metadata.
	Schema *Node `json:"schema"`

	// Status reports whether the status subresource is enabled.
	Status bool `json:"status,omitempty"`

	// Scale is set if the scale subresource is enabled.
	Scale *Scale `json:"scale,omitempty"`

	// Rules are what CEL says about parts of the object (x-kubernetes-validations).
	Rules []Rule `json:"rules,omitempty"`

	Columns          []Column `json:"columns,omitempty"`
	SelectableFields []string `json:"selectableFields,omitempty"` // JSON paths: .spec.color

	// AllowUnconditionalUpdate reports whether an update may leave out
	// metadata.resourceVersion.
	AllowUnconditionalUpdate bool `json:"allowUnconditionalUpdate,omitempty"`

	// AllowCreateOnUpdate reports whether an update of what is not there creates it.
	AllowCreateOnUpdate bool `json:"allowCreateOnUpdate,omitempty"`

	// NoDeleteCollection reports whether objects are deleted one by one only.
	NoDeleteCollection bool `json:"noDeleteCollection,omitempty"`

	// NoGarbageCollection reports whether a delete never has to wait for dependents:
	// there are none.
	NoGarbageCollection bool `json:"noGarbageCollection,omitempty"`
}

// A Rule is an expression of CEL that a part of the object must satisfy. It is checked and
// enforced by package policy.
type Rule struct {
	Name string `json:"name"`

	// Path leads to the part: names of fields with dots between them, [*] for each item
	// of a list or each value of a map; "" is the whole object. A name that is not a word
	// stands in brackets, as a string of JSON: spec["a.b"].
	Path string `json:"path,omitempty"`

	Rule              string `json:"rule"`
	Message           string `json:"message,omitempty"`
	MessageExpression string `json:"messageExpression,omitempty"`
	Reason            string `json:"reason,omitempty"` // FieldValueInvalid if empty

	// FieldPath leads from the part to the field that errors name, as JSON path: .a['b'].
	FieldPath string `json:"fieldPath,omitempty"`

	// OptionalOldSelf: oldSelf is an optional value, and there is none of what is new.
	OptionalOldSelf bool `json:"optionalOldSelf,omitempty"`

	// Checked and CheckedMessage are the checked ASTs of the expressions.
	Checked        []byte `json:"checked,omitempty"`
	CheckedMessage []byte `json:"checkedMessage,omitempty"`

	// Transition: it compares with what was there before, so that what is the same as before
	// is not excused.
	Transition bool `json:"transition,omitempty"`

	Source        Position `json:"source,omitzero"`
	RuleSource    Position `json:"-"` // of the expression
	PathSource    Position `json:"-"`
	MessageSource Position `json:"-"`
}

// A Column is one column of the table that `kubectl get` shows. The column with
// the name is not listed; it always comes first.
type Column struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Format      string `json:"format,omitempty"`
	Description string `json:"description,omitempty"`

	// JSONPath is a path (.spec.size), or a template of paths in braces
	// ({.a}/{.b}).
	JSONPath string `json:"jsonPath"`
	Priority int32  `json:"priority,omitempty"`

	// Count shows the number of items of the list at JSONPath instead of the value. Bundles
	// cannot say it.
	Count bool `json:"count,omitempty"`
}
