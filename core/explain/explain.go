// Package explain says why a request is, or was, answered as it is: each stage's verdict,
// with the rule that made it and that rule's place. It is served as explanations of
// policy.stele.dev/v1. To create one asks what would become of a request; to get one, by
// the audit id, what became of it: of a write from its event in the log, of a refusal
// from memory, as far as that goes back.
package explain

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/changes"
	"stele.dev/stele/core/discovery"
)

// The API.
const (
	Group   = "policy.stele.dev"
	Version = "v1"
	Plural  = "explanations"
	Kind    = "Explanation"
)

// Explanation is a request, and what becomes of it.
type Explanation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitzero"`
}

// Spec is a request. One that is about no resource has a Path.
type Spec struct {
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Version     string `json:"version,omitempty"`
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	Path        string `json:"path,omitempty"`

	// Selectors of lists, watches and deletions of collections, which authorizers are told.
	FieldSelector string `json:"fieldSelector,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty"`

	// User in whose name; who asks if empty. It takes the permission to impersonate them.
	User   string              `json:"user,omitempty"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`

	// Object is the body of a write, as JSON. Without it, what depends on it is not said.
	Object json.RawMessage `json:"object,omitempty"`
	// ContentType of the body; for patches a merge patch if empty.
	ContentType string `json:"contentType,omitempty"`
	// FieldManager that writes it, and whether it takes fields from others by applying.
	FieldManager string `json:"fieldManager,omitempty"`
	Force        bool   `json:"force,omitempty"`
}

// Status is what becomes of the request.
type Status struct {
	Allowed bool   `json:"allowed"`
	Code    int    `json:"code"` // HTTP status; 0 if not all of it was decided
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Policy that decided it, by its digest, and the revision of the state that it met.
	Policy   string `json:"policy,omitempty"`
	Revision uint64 `json:"revision,omitempty"`
	// Written is the revision of the write, of one that was.
	Written uint64  `json:"written,omitempty"`
	Stages  []Stage `json:"stages"`
}

// The verdicts of stages.
const (
	Passed  = "passed"
	Refused = "refused"
	Open    = "open" // it depends on what was not given
)

// Stage is what one stage made of the request.
type Stage struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Rule    string `json:"rule,omitempty"`
	Source  string `json:"source,omitempty"`
	Message string `json:"message,omitempty"`
	// Considered are the rules that were looked at, as far as the stage tells them apart.
	Considered []Considered `json:"considered,omitempty"`
}

// Considered is a rule, or an authorizer of the chain, and what it made of the request.
type Considered struct {
	Rule    string `json:"rule"`
	Source  string `json:"source,omitempty"`
	Verdict string `json:"verdict"`
	// Reason and Detail are what an authorizer outside of the policy said: to everybody, and to
	// operators.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// Resource is for discovery.
func Resource() discovery.Resource {
	return discovery.Resource{Group: Group, Version: Version, APIResource: metav1.APIResource{
		Name: Plural, SingularName: "explanation", Kind: Kind, Verbs: metav1.Verbs{"create", "get"},
	}}
}

// Journal keeps the newest explanations, by audit id. It is safe for concurrent use.
type Journal struct {
	mu   sync.Mutex
	ring []*Explanation
	next int
}

// NewJournal keeps up to n.
func NewJournal(n int) *Journal { return &Journal{ring: make([]*Explanation, n)} }

// Add keeps one in place of the oldest, with no more of it than people read: what clients
// send must not fill the memory.
func (j *Journal) Add(e *Explanation) {
	e.bound()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ring[j.next] = e
	j.next = (j.next + 1) % len(j.ring)
}

// What a journal keeps at most of a text, of a name, and of lists.
const (
	maxText  = 2048
	maxName  = 256
	maxNames = 32
)

func (e *Explanation) bound() {
	s := &e.Spec
	for _, name := range []*string{&e.Name, &s.Verb, &s.Group, &s.Version, &s.Resource, &s.Subresource, &s.Namespace, &s.Name, &s.Path, &s.User, &s.UID, &s.ContentType, &s.FieldManager} {
		*name = cut(*name, maxName)
	}
	s.FieldSelector, s.LabelSelector = cut(s.FieldSelector, maxText), cut(s.LabelSelector, maxText)
	groups := s.Groups[:min(len(s.Groups), maxNames)]
	s.Groups = make([]string, len(groups))
	for i, g := range groups {
		s.Groups[i] = cut(g, maxName)
	}
	s.Extra, s.Object = nil, nil
	e.Status.Message = cut(e.Status.Message, maxText)
	for i := range e.Status.Stages {
		// Where validation refused something is a path in the object, with the keys that the client chose.
		x := &e.Status.Stages[i]
		x.Rule, x.Source, x.Message, x.Considered = cut(x.Rule, maxText), cut(x.Source, maxText), cut(x.Message, maxText), nil
	}
}

// cut is the beginning of a text, which does not keep the rest of it in memory.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return strings.Clone(text)
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// Find returns the newest of an audit id, or nil.
func (j *Journal) Find(auditID string) *Explanation {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.ring {
		if e := j.ring[(j.next-1-i+2*len(j.ring))%len(j.ring)]; e != nil && e.Name == auditID {
			return e
		}
	}
	return nil
}

// Written explains a write by its event.
func Written(c *changes.Change) *Explanation {
	e := &Explanation{TypeMeta: metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: Kind}}
	e.Name, e.CreationTimestamp = c.Request.AuditID, c.CreationTimestamp
	e.Spec.Verb, e.Spec.Subresource = c.Request.Verb, c.Request.Subresource
	if o := c.Object; o != nil {
		e.Spec.Group, e.Spec.Version, e.Spec.Resource, e.Spec.Namespace, e.Spec.Name = o.Group, c.Request.Version, o.Resource, o.Namespace, o.Name
	}
	e.Status = Status{Allowed: true, Code: c.Request.Status, Policy: c.Policy, Revision: c.Revision, Written: c.Revision}
	stage := func(name, message string) *Stage {
		e.Status.Stages = append(e.Status.Stages, Stage{Name: name, Verdict: Passed, Message: message})
		return &e.Status.Stages[len(e.Status.Stages)-1]
	}
	if a := c.Actor; a != nil {
		e.Spec.User, e.Spec.Groups = a.User, a.Groups
		asked := a.User
		if a.Impersonator != "" {
			asked = a.Impersonator
		}
		stage("authentication", asked)
		if a.Impersonator != "" {
			stage("impersonation", "as "+a.User)
		}
	}
	if d := c.Decision; d != nil {
		s := stage("authorization", "by "+d.Authorizer)
		s.Rule, s.Source = d.Rule, d.Source
		if d.Reason != "" {
			s.Message += ": " + d.Reason
		}
		if len(d.Findings) > 0 {
			s := stage("validation", "")
			for _, f := range d.Findings {
				s.Considered = append(s.Considered, Considered{Rule: f.Rule, Source: f.Source, Verdict: "does not hold, " + f.Actions + ": " + f.Message})
			}
		}
	}
	stage("commit", fmt.Sprintf("%s at revision %d", c.Type, c.Revision))
	return e
}
