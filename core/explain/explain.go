// Package explain explains why the server answers a request as it does: the verdict of each stage, the rule that decided,
// and the rule's file and line. It is served as explanations of policy.stele.dev/v1.
//
// Creating an explanation asks what would happen to a request. Getting one by its audit ID shows what happened
// to a past request. A write is explained from its event in the log. A refused request is explained from memory, which
// keeps only the newest.
package explain

import (
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/changes"
	"stele.dev/stele/core/discovery"
)

// Group, Version, Plural and Kind name the API of explanations.
const (
	Group   = "policy.stele.dev"
	Version = "v1"
	Plural  = "explanations"
	Kind    = "Explanation"
)

// Passed, Refused and Open are the verdicts of a stage.
const (
	Passed  = "passed"
	Refused = "refused"
	Open    = "open" // it depends on data that the request does not contain
)

// Resource returns the discovery entry of explanations.
func Resource() discovery.Resource {
	return discovery.Resource{Group: Group, Version: Version, APIResource: metav1.APIResource{
		Name: Plural, SingularName: "explanation", Kind: Kind, Verbs: metav1.Verbs{"create", "get"},
	}}
}

// Journal keeps the newest explanations in memory, by audit ID. It is safe for concurrent use.
type Journal struct {
	mu   sync.Mutex
	ring []*Explanation
	next int
}

// NewJournal returns a journal that keeps n explanations.
func NewJournal(n int) *Journal { return &Journal{ring: make([]*Explanation, n)} }

// Add adds an explanation and drops the oldest. It shortens long texts, so that clients cannot fill the memory.
func (j *Journal) Add(e *Explanation) {
	e.bound()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ring[j.next] = e
	j.next = (j.next + 1) % len(j.ring)
}

// These are the most bytes that a journal keeps of a text and of a name, and its longest list.
const (
	maxText  = 2048
	maxName  = 256
	maxNames = 32
)

// bound shortens the texts and lists of an explanation, and drops its object.
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
		// A validation error quotes the path in the object, and clients choose the keys in it.
		x := &e.Status.Stages[i]
		x.Rule, x.Source, x.Message, x.Considered = cut(x.Rule, maxText), cut(x.Source, maxText), cut(x.Message, maxText), nil
		if x.Flow != nil {
			f := *x.Flow
			f.Of = cut(f.Of, maxName)
			x.Flow = &f
		}
	}
}

// cut returns the beginning of a text, as a copy that does not hold the whole text in memory.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return strings.Clone(text)
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// Find returns the newest explanation with an audit ID, or nil.
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

// Written explains a write by its change in the log.
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
