// Package explain explains why the server answers a request as it does: the verdict of each stage, the rule that decided,
// and the rule's file and line. It is served as explanations of policy.stele.dev/v1.
//
// Creating an explanation asks what would happen to a request. Getting one by its audit ID shows what happened
// to a past request. A write is explained from its event in the log, and any other request that was recorded from its
// event in the log of decisions of the replica.
package explain

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/resources/changes"
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
	return discovery.NewResource(Group, Version, Kind, Plural, "create", "get")
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
		if len(d.Mutations) > 0 {
			s := stage("mutation", "")
			for i := range d.Mutations {
				m := &d.Mutations[i]
				s.Considered = append(s.Considered, Considered{Rule: m.Rule, Source: m.Source, Verdict: m.Verdict()})
			}
		}
		if len(d.Findings) > 0 {
			s := stage("validation", "")
			for _, f := range d.Findings {
				s.Considered = append(s.Considered, Considered{Rule: f.Rule, Source: f.Source, Verdict: changes.Violation(f.Actions, f.Message)})
			}
		}
	}
	stage("commit", fmt.Sprintf("%s at revision %d", c.Type, c.Revision))
	return e
}
