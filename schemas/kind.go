package schemas

import (
	"strings"

	"stele.dev/stele/limits/packed"
)

// A Kind is a resource type: its names, and the schemas of its versions.
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

	// Definition is the CustomResourceDefinition of the kind, as compact JSON with defaults. It is
	// empty for a kind that is written in CUE.
	Definition packed.JSON `json:"definition,omitzero"`
}

// Resource returns the name of the resource: "plural.group", or "plural" in the core group. It
// identifies the kind in a bundle.
func (k Kind) Resource() string {
	if k.Group == "" {
		return k.Plural
	}
	return k.Plural + "." + k.Group
}

// Defines reports whether the kind is that of CustomResourceDefinitions as stored objects.
func (k *Kind) Defines() bool {
	return k.Plural == "customresourcedefinitions" && k.Group == "apiextensions.k8s.io" && k.Builtin
}

// Version returns the version with the given name. ok is false if the kind has no such version.
func (k Kind) Version(name string) (*Version, bool) {
	for i := range k.Versions {
		if k.Versions[i].Name == name {
			return &k.Versions[i], true
		}
	}
	return nil, false
}

// A Version is one version of a kind: its schema, subresources, columns and rules.
type Version struct {
	Name   string `json:"name"`
	Served bool   `json:"served,omitempty"`

	// Deprecated is the warning that clients get. It is empty if the version is not deprecated.
	Deprecated string `json:"deprecated,omitempty"`

	// Schema constrains the object. It does not cover apiVersion, kind and metadata.
	Schema *Node `json:"schema"`

	// Conversion says how objects of this version become objects of the hub. It is nil for versions with the form of the hub.
	Conversion *Conversion `json:"conversion,omitempty"`

	// Status reports whether the status subresource is enabled.
	Status bool `json:"status,omitempty"`

	// Scale describes the scale subresource. It is nil if the subresource is disabled.
	Scale *Scale `json:"scale,omitempty"`

	// Rules are the CEL rules for parts of the object (x-kubernetes-validations).
	Rules []Rule `json:"rules,omitempty"`

	Columns          []Column `json:"columns,omitempty"`
	SelectableFields []string `json:"selectableFields,omitempty"` // JSON paths: .spec.color

	// AllowUnconditionalUpdate reports whether an update may leave out metadata.resourceVersion.
	AllowUnconditionalUpdate bool `json:"allowUnconditionalUpdate,omitempty"`

	// AllowCreateOnUpdate reports whether an update of a missing object creates the object.
	AllowCreateOnUpdate bool `json:"allowCreateOnUpdate,omitempty"`

	// NoDeleteCollection reports whether objects can be deleted only one by one.
	NoDeleteCollection bool `json:"noDeleteCollection,omitempty"`

	// NoGarbageCollection reports whether objects never have dependents, so that a delete need not
	// wait for them.
	NoGarbageCollection bool `json:"noGarbageCollection,omitempty"`
}

// A Rule is a CEL expression that a part of the object must satisfy (x-kubernetes-validations).
// Package policy checks and enforces it.
type Rule struct {
	Name string `json:"name"`

	// Path leads to the part of the object: names of fields joined by dots, and [*] for each item of
	// a list or each value of a map. The empty path is the whole object. A name with other
	// characters is quoted in brackets: spec["a.b"].
	Path string `json:"path,omitempty"`

	Rule              string `json:"rule"`
	Message           string `json:"message,omitempty"`
	MessageExpression string `json:"messageExpression,omitempty"`
	Reason            string `json:"reason,omitempty"` // FieldValueInvalid if empty

	// FieldPath is the JSON path from the part to the field that error messages name: .a['b'].
	FieldPath string `json:"fieldPath,omitempty"`

	// OptionalOldSelf makes oldSelf an optional value. It is empty for a new object.
	OptionalOldSelf bool `json:"optionalOldSelf,omitempty"`

	// Checked and CheckedMessage are the checked ASTs of the expressions.
	Checked        []byte `json:"checked,omitempty"`
	CheckedMessage []byte `json:"checkedMessage,omitempty"`

	// Transition marks a rule that uses oldSelf. Such a rule is enforced for unchanged values too.
	Transition bool `json:"transition,omitempty"`

	Source        Position `json:"source,omitzero"`
	RuleSource    Position `json:"-"` // position of the expression
	PathSource    Position `json:"-"`
	MessageSource Position `json:"-"`
}

// OfName reports whether the rule is a constraint of the object's name that the schema of a definition has. Other rules of definitions
// are named by a path, which does not lead into metadata, and those of bundles have no # in their names.
func (r *Rule) OfName() bool {
	return strings.HasPrefix(r.Name, "metadata.") && strings.Contains(r.Name, "#")
}

// A Column is one column of the table that `kubectl get` shows. The name column is always first and is
// not listed.
type Column struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Format      string `json:"format,omitempty"`
	Description string `json:"description,omitempty"`

	// JSONPath is a path (.spec.size) or a template with paths in braces ({.a}/{.b}).
	JSONPath string `json:"jsonPath"`
	Priority int32  `json:"priority,omitempty"`

	// Count shows the number of items of the list at JSONPath. Only built-in kinds have it.
	Count bool `json:"count,omitempty"`
}
