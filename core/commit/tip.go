package commit

import (
	"fmt"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

// Tip is what the log amounts to at one revision: the objects, the law, and the
// compiled policy in force, which belong together. It never changes.
type Tip struct {
	Head     eventlog.Head
	Time     time.Time // log time of the last batch
	Objects  *objects.State
	Policies *policies.State
	// Policy in force, nil before the first activation.
	Policy *policy.Policy
	// Activated is the log time from which on it is.
	Activated time.Time
	// EpochStart is the revision at which the newest epoch began, 0 while there is only the
	// first: all from there on is in this history.
	EpochStart uint64
	// ClockSets are all of the log.
	ClockSets eventlog.ClockSets
}

// Revision of the tip.
func (t *Tip) Revision() uint64 { return t.Head.Revision }

// PolicyRevision is the revision at which the policy in force was activated.
func (t *Tip) PolicyRevision() uint64 { return t.Policies.ActiveRevision() }

// Key names an object.
type Key struct {
	schema.GroupResource
	Namespace, Name string
}

// At is an object at a revision, or absent if that is 0.
type At struct {
	Key
	Revision uint64
}

// check tells what is wrong with that, nil if nothing is.
func (a *At) check(o *objects.State) *Stale {
	revision := uint64(0)
	if at := o.Get(a.GroupResource, a.Namespace, a.Name); at != nil {
		revision = at.Revision
	}
	if revision != a.Revision {
		return &Stale{Reason: fmt.Sprintf("the object is at revision %d, not %d", revision, a.Revision)}
	}
	return nil
}

// Checks are conditions on the state that an event is appended to. Zero fields
// check nothing.
type Checks struct {
	// PolicyRevision: the policy activated there is in force. It is always checked;
	// 0 means that there is none.
	PolicyRevision uint64
	// Object: this object is at Revision, or absent if that is 0.
	Object   *Key
	Revision uint64
	// Objects: each of these is at its revision as well.
	Objects []At
	// Namespace that rules looked at, still is as it was at NamespaceRevision.
	Namespace         string
	NamespaceRevision uint64
	// ActiveNamespace exists and is not being deleted.
	ActiveNamespace string
	// EmptyNamespace has no objects.
	EmptyNamespace string
	// EmptyResources have no objects.
	EmptyResources []schema.GroupResource
}

// Stale says which check failed.
type Stale struct {
	// Policy: another policy is in force. Otherwise it was about objects.
	Policy bool
	Reason string
}

func (s *Stale) Error() string { return "commit: " + s.Reason }

// Namespaces is the resource of namespaces.
var Namespaces = schema.GroupResource{Resource: "namespaces"}

// Evaluate tells which check fails in a state, if any.
func (c *Checks) Evaluate(o *objects.State, p *policies.State) *Stale {
	if in := p.ActiveRevision(); in != c.PolicyRevision {
		return &Stale{Policy: true, Reason: fmt.Sprintf("the policy of revision %d is in force, not that of %d", in, c.PolicyRevision)}
	}
	if c.Object != nil {
		if stale := (&At{*c.Object, c.Revision}).check(o); stale != nil {
			return stale
		}
	}
	for i := range c.Objects {
		if stale := c.Objects[i].check(o); stale != nil {
			return stale
		}
	}
	if ns := c.Namespace; ns != "" {
		if at := o.Get(Namespaces, "", ns); at == nil || at.Revision != c.NamespaceRevision {
			return &Stale{Reason: "namespace " + ns + " has been changed"}
		}
	}
	if ns := c.ActiveNamespace; ns != "" {
		if exists, active := NamespaceState(o, ns); !exists || !active {
			return &Stale{Reason: "namespace " + ns + " is not there any more, or about to go"}
		}
	}
	if ns := c.EmptyNamespace; ns != "" {
		if r, found := o.FirstIn(ns); found {
			return &Stale{Reason: "namespace " + ns + " has " + r.String()}
		}
	}
	for _, r := range c.EmptyResources {
		if o.Len(r) > 0 {
			return &Stale{Reason: "there are objects of " + r.String()}
		}
	}
	return nil
}

// NamespaceState tells whether a namespace exists, and whether it takes new
// objects: it does not once it is being deleted.
func NamespaceState(o *objects.State, name string) (exists, active bool) {
	ns := o.Get(Namespaces, "", name)
	if ns == nil {
		return false, false
	}
	return true, !gjson.GetBytes(ns.JSON, "metadata.deletionTimestamp").Exists()
}
