// Package suites reads tests of bundles: packages with a field `suite`, which CUE evaluates. It returns plain data, with the
// position of each part, and writes what a test got into its file as what it expects. It runs nothing.
package suites

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/servercontrollers"
	"stele.dev/stele/schemas"
)

// Suite is the tests of a package.
type Suite struct {
	// Package is the folder of the package, from the root of the module.
	Package string `json:"package"`
	// Clusters are the folders of the bundles that the suite names; empty if it names none.
	Clusters []Text `json:"clusters,omitempty"`
	// Given are the objects that exist in every test.
	Given       []Object           `json:"given,omitempty"`
	Authorizers map[string]Opinion `json:"authorizers,omitempty"`
	// Reviewers are the answers of webhooks and plugins that review writes, by their ids.
	Reviewers map[string]Review `json:"reviewers,omitempty"`
	// Tests are all tests and cases, in the order of their positions.
	Tests      []Test      `json:"tests,omitempty"`
	Invariants []Invariant `json:"invariants,omitempty"`
}

// Text is a text and where it is written.
type Text struct {
	Text   string           `json:"text"`
	Source schemas.Position `json:"source,omitzero"`
}

// Object is an object as JSON.
type Object struct {
	JSON   json.RawMessage  `json:"json"`
	Source schemas.Position `json:"source,omitzero"`
}

// Opinion is what an authorizer outside of the policy answers.
type Opinion string

// The opinions.
const (
	Allow       Opinion = "Allow"
	NoOpinion   Opinion = "NoOpinion"
	Deny        Opinion = "Deny"
	Unavailable Opinion = "Unavailable"
)

// Review is what a webhook or a plugin answers that reviews a write.
type Review struct {
	// Answer is Admit, Refuse or Unavailable; "" if Patch is set.
	Answer string
	// Patch is the JSON patch by which it changes the object.
	Patch json.RawMessage
}

// The answers of reviewers.
const (
	Admit  = "Admit"
	Refuse = "Refuse"
)

// UnmarshalJSON decodes an answer as bundles have it: a word, or an object with a patch.
func (r *Review) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, &r.Answer)
	}
	var patched struct {
		Patch json.RawMessage `json:"patch"`
	}
	err := json.Unmarshal(text, &patched)
	r.Patch = patched.Patch
	return err
}

// MarshalJSON encodes an answer as UnmarshalJSON decodes it.
func (r Review) MarshalJSON() ([]byte, error) {
	if r.Patch == nil {
		return json.Marshal(r.Answer)
	}
	return json.Marshal(map[string]json.RawMessage{"patch": r.Patch})
}

// Person is a user.
type Person struct {
	User           string              `json:"user,omitempty"`
	UID            string              `json:"uid,omitempty"`
	Groups         []string            `json:"groups,omitempty"`
	Extra          map[string][]string `json:"extra,omitempty"`
	ServiceAccount string              `json:"serviceAccount,omitempty"` // namespace/name
}

// Authenticated returns the user's name and all groups, as authentication would. The server's own controllers are in
// system:masters, as they are at run time.
func (p *Person) Authenticated() (name string, groups []string) {
	name, groups = p.User, slices.Clone(p.Groups)
	if namespace, account, ok := strings.Cut(p.ServiceAccount, "/"); ok {
		name = serviceaccount.MakeUsername(namespace, account)
		groups = serviceaccount.MakeGroupNames(namespace)
	}
	group := "system:authenticated"
	if name == "system:anonymous" {
		group = "system:unauthenticated"
	}
	if !slices.Contains(groups, group) {
		groups = append(groups, group)
	}
	if servercontrollers.Is(name) && !slices.Contains(groups, policy.MastersGroup) {
		groups = append(groups, policy.MastersGroup)
	}
	return name, groups
}

// Test is a test, or a case of one.
type Test struct {
	// Name is the name of the test, followed by /case for a case.
	Name string `json:"name"`
	// Of is the name of the test without the case.
	Of          string             `json:"of"`
	Skip        string             `json:"skip,omitempty"`
	Given       []Object           `json:"given,omitempty"`
	As          Person             `json:"as"`
	Authorizers map[string]Opinion `json:"authorizers,omitempty"`
	Reviewers   map[string]Review  `json:"reviewers,omitempty"`
	Request     Request            `json:"request"`
	Expect      Expect             `json:"expect"`
	// Source is where the test or case is written.
	Source schemas.Position `json:"source,omitzero"`
	// At has the positions of fields, by their paths in the test: expect.rule, request.resource.
	At map[string]schemas.Position `json:"at,omitempty"`
}

// Position returns where a field of the test is written, or else where the test is.
func (t *Test) Position(path string) schemas.Position {
	for {
		if p, ok := t.At[path]; ok && !p.IsZero() {
			return p
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return t.Source
		}
		path = path[:i]
	}
}

// Request is a request as a test writes it.
type Request struct {
	Verb          string          `json:"verb,omitempty"`
	Resource      string          `json:"resource,omitempty"`
	Version       string          `json:"version,omitempty"`
	Namespace     *string         `json:"namespace,omitempty"`
	Name          string          `json:"name,omitempty"`
	Path          string          `json:"path,omitempty"`
	Object        json.RawMessage `json:"object,omitempty"`
	Patch         json.RawMessage `json:"patch,omitempty"`
	Apply         json.RawMessage `json:"apply,omitempty"`
	FieldManager  string          `json:"fieldManager,omitempty"`
	FieldSelector string          `json:"fieldSelector,omitempty"`
	LabelSelector string          `json:"labelSelector,omitempty"`
	Time          string          `json:"time,omitempty"`
}

// Expect is what a test expects. Fields that are not set expect nothing.
type Expect struct {
	Allowed *bool   `json:"allowed,omitempty"`
	Code    int     `json:"code,omitempty"`
	Stage   string  `json:"stage,omitempty"`
	Rule    *string `json:"rule,omitempty"`
	// FlowSchema and PriorityLevel are names; "" expects nothing.
	FlowSchema    string `json:"flowSchema,omitempty"`
	PriorityLevel string `json:"priorityLevel,omitempty"`
	// Audit is a level of the audit log; "" expects nothing.
	Audit   string            `json:"audit,omitempty"`
	Message Texts             `json:"message,omitempty"`
	Fields  map[string]string `json:"fields,omitzero"` // empty but not nil expects that none is wrong
	Object  json.RawMessage   `json:"object,omitempty"`
	// Mutations are the ids of what changed the object, in their order.
	Mutations *[]string `json:"mutations,omitempty"`
	Warnings  *[]string `json:"warnings,omitempty"`
	Names     *[]string `json:"names,omitempty"`
}

// Empty reports whether nothing is expected.
func (e *Expect) Empty() bool {
	return e.Allowed == nil && e.Code == 0 && e.Stage == "" && e.Rule == nil && e.FlowSchema == "" && e.PriorityLevel == "" && e.Audit == "" && len(e.Message) == 0 && e.Fields == nil && e.Object == nil && e.Mutations == nil && e.Warnings == nil && e.Names == nil
}

// Texts is a list of texts. In JSON it may be a single one.
type Texts []string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = Texts{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// Invariant holds for every request that can be made.
type Invariant struct {
	Name   string           `json:"name"`
	Reason string           `json:"reason"`
	Skip   string           `json:"skip,omitempty"`
	Only   *Holders         `json:"only,omitempty"`
	Never  *Can             `json:"never,omitempty"`
	Always *Holders         `json:"always,omitempty"`
	Source schemas.Position `json:"source,omitzero"`
}

// Holders are subjects, and what they may do.
type Holders struct {
	May      Can       `json:"may"`
	Subjects []Subject `json:"subjects"`
}

// Subject is a user, a group or a service account.
type Subject struct {
	User           string `json:"user,omitempty"`
	Group          string `json:"group,omitempty"`
	ServiceAccount string `json:"serviceAccount,omitempty"` // namespace/name
}

// Policy returns the subject as the policy writes it.
func (s Subject) Policy() policy.Subject {
	if namespace, name, ok := strings.Cut(s.ServiceAccount, "/"); ok {
		return policy.Subject{User: serviceaccount.MakeUsername(namespace, name)}
	}
	return policy.Subject{User: s.User, Group: s.Group}
}

// Can is a set of requests.
type Can struct {
	Verbs         []string `json:"verbs"`
	APIGroups     []string `json:"apiGroups"`
	Resources     []string `json:"resources"`
	Namespaces    []string `json:"namespaces,omitempty"`
	ResourceNames []string `json:"resourceNames,omitempty"`
}
