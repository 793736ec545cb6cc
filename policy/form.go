package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/schemas"
)

// The roles and bindings that every policy has, after those of Kubernetes as far as
// their resources are served. They are written into the form, so that a policy in
// force keeps the ones it was compiled with.

// BuiltinTeam stands in their ids where others have their team.
const BuiltinTeam = "builtin"

// FormVersion is the version of the form that this code writes, and the highest it
// loads.
const FormVersion = 1

// Form is a compiled bundle as plain data: what the log holds, what every replica
// loads. Encoding is deterministic.
type Form struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"`
	// Language is the version of CUE that the sources were evaluated as.
	Language string         `json:"language"`
	Kinds    []schemas.Kind `json:"kinds"`
	Roles    []Role         `json:"roles,omitempty"`
	Bindings []Binding      `json:"bindings,omitempty"`
	Denies   []Deny         `json:"denies,omitempty"`
	// Authorizers are the chain, unless it is the usual one.
	Authorizers []string `json:"authorizers,omitempty"`
	// ChainSource is where the bundle says so.
	ChainSource schemas.Position `json:"chainSource,omitzero"`
	// Plugins are those that the chain may name, sorted by name.
	Plugins []Plugin `json:"plugins,omitempty"`
	Flow    Flow     `json:"flow,omitzero"`
	Audit   Audit    `json:"audit,omitzero"`
	// Validations are the rules of validating admission, sorted by id.
	Validations []Validation `json:"validations,omitempty"`
	// Windows are those of the kinds of which the bundle says one, sorted by resource.
	Windows []Window `json:"windows,omitempty"`
	// Probes are what a program that loads the form must agree about.
	Probes *Probes `json:"probes,omitempty"`
}

// Expression is a checked expression of CEL.
type Expression struct {
	Text string `json:"text"`
	// Checked is its AST, an encoded google.api.expr.v1alpha1.CheckedExpr.
	Checked []byte           `json:"checked"`
	Source  schemas.Position `json:"source,omitzero"`
}

// Condition is an expression about a request, and perhaps about the object that it
// writes.
type Condition struct {
	Expression
	// Object tells that it names object or oldObject: it can only be decided once they
	// are known.
	Object bool `json:"object,omitempty"`
}

// Validation is a rule of validating admission: what objects that a request writes
// must be.
type Validation struct {
	ID    string `json:"id"` // team/validate/name
	Match Match  `json:"match"`
	// Params are a constant object, which expressions name params.
	Params      json.RawMessage   `json:"params,omitempty"`
	Variables   []Variable        `json:"variables,omitempty"` // each after those it names
	Validations []ValidationCheck `json:"validations"`
	// Actions are of Deny, Warn and Audit.
	Actions []string         `json:"actions"`
	Source  schemas.Position `json:"source,omitzero"`
}

// Match says which requests a rule is about. Names are matched as in
// ValidatingAdmissionPolicy: "*" is any resource, "*/*" any subresource, too.
type Match struct {
	APIGroups         []string              `json:"apiGroups"`
	APIVersions       []string              `json:"apiVersions"`
	Resources         []string              `json:"resources"`
	Operations        []string              `json:"operations"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	ObjectSelector    *metav1.LabelSelector `json:"objectSelector,omitempty"`
	Conditions        []Variable            `json:"conditions,omitempty"`
}

// Variable is a named expression.
type Variable struct {
	Name string `json:"name"`
	Expression
}

// ValidationCheck is one thing that must hold.
type ValidationCheck struct {
	ID                string           `json:"id"` // id of the rule, /name
	Expression        Expression       `json:"expression"`
	Message           string           `json:"message,omitempty"`
	MessageExpression *Expression      `json:"messageExpression,omitempty"`
	Reason            string           `json:"reason"`
	Source            schemas.Position `json:"source,omitzero"`
}

// Deny refuses what its rules name to its subjects, whatever they are granted.
type Deny struct {
	ID       string    `json:"id"` // team/denies/name
	Subjects []Subject `json:"subjects"`
	Rules    []Rule    `json:"rules"`
	// Unless is the exception.
	Unless *Condition `json:"unless,omitempty"`
	// Reason is what the caller reads.
	Reason string           `json:"reason"`
	Source schemas.Position `json:"source,omitzero"`
}

// Role is a cluster role, its aggregated rules included.
type Role struct {
	ID     string            `json:"id"` // team/clusterRoles/name, or builtin/clusterRoles/name
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	// Aggregate are labels of the roles whose rules joined this one.
	Aggregate map[string]string `json:"aggregate,omitempty"`
	Rules     []Rule            `json:"rules"`
	Source    schemas.Position  `json:"source,omitzero"`
}

// Rule grants verbs on resources or on paths.
type Rule struct {
	ID              string           `json:"id"` // id of the role it was written in, /name
	Verbs           []string         `json:"verbs"`
	APIGroups       []string         `json:"apiGroups,omitempty"`
	Resources       []string         `json:"resources,omitempty"`
	ResourceNames   []string         `json:"resourceNames,omitempty"`
	NonResourceURLs []string         `json:"nonResourceURLs,omitempty"`
	Source          schemas.Position `json:"source,omitzero"`
}

// Binding grants a role to subjects in namespaces.
type Binding struct {
	ID       string    `json:"id"` // team/bindings/name
	Role     string    `json:"role"`
	Subjects []Subject `json:"subjects"`
	// Namespaces are names with * for any run of characters. "*" alone grants the
	// role in every namespace and outside of namespaces.
	Namespaces []string `json:"namespaces"`
	// When is the condition of the grant; without one it always holds.
	When   *Condition       `json:"when,omitempty"`
	Source schemas.Position `json:"source,omitzero"`
}

// Subject is one user or group. A service account is the user it is in requests.
type Subject struct {
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`
}

// Encode gives the form's canonical bytes and their digest, which identifies the
// policy.
func (f *Form) Encode() ([]byte, [sha256.Size]byte) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(f); err != nil {
		panic(fmt.Sprintf("policy: %v", err)) // it is plain data
	}
	return b.Bytes(), sha256.Sum256(b.Bytes())
}

// DecodeForm reads what Encode wrote. It refuses forms of a newer version, and
// fields it does not know: they could be rules.
func DecodeForm(data []byte) (*Form, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("policy: form: %w", err)
	}
	if head.Version < 1 || head.Version > FormVersion {
		return nil, fmt.Errorf("policy: form of version %d, this program loads up to %d; use a newer one", head.Version, FormVersion)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	f := new(Form)
	if err := d.Decode(f); err != nil {
		return nil, fmt.Errorf("policy: form: %w", err)
	}
	return f, nil
}

// Access is the part of a form that says who may do what.
type Access struct {
	Roles       []Role    `json:"roles,omitempty"`
	Bindings    []Binding `json:"bindings,omitempty"`
	Denies      []Deny    `json:"denies,omitempty"`
	Authorizers []string  `json:"authorizers,omitempty"`
	Plugins     []Plugin  `json:"plugins,omitempty"`
}

// Access is what the form says of it, without the programs of its conditions. It shares the rest
// with the form.
func (f *Form) Access() *Access {
	a := &Access{Roles: f.Roles, Bindings: slices.Clone(f.Bindings), Denies: slices.Clone(f.Denies), Authorizers: f.Authorizers, Plugins: f.Plugins}
	for i := range a.Bindings {
		a.Bindings[i].When = a.Bindings[i].When.textOnly()
	}
	for i := range a.Denies {
		a.Denies[i].Unless = a.Denies[i].Unless.textOnly()
	}
	return a
}

func (c *Condition) textOnly() *Condition {
	if c == nil {
		return nil
	}
	text := *c
	text.Checked = nil
	return &text
}

// OwningTeam is the team in an id.
func OwningTeam(id string) string {
	team, _, _ := strings.Cut(id, "/")
	return team
}
