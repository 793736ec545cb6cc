package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"stele.dev/stele/schemas"
)

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
	Flow     Flow           `json:"flow,omitzero"`
	Audit    Audit          `json:"audit,omitzero"`
}

// Deny refuses what its rules name to its subjects, whatever they are granted.
type Deny struct {
	ID       string    `json:"id"` // team/denies/name
	Subjects []Subject `json:"subjects"`
	Rules    []Rule    `json:"rules"`
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
	Namespaces []string         `json:"namespaces"`
	Source     schemas.Position `json:"source,omitzero"`
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
