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
	"stele.dev/stele/projections/quotas"
)

// Tip is the state of the log at one revision: the objects, the policies, and the compiled policy in force. They
// belong together and never change.
type Tip struct {
	Head     eventlog.Head
	Time     time.Time // log time of the last batch
	Objects  *objects.State
	Policies *policies.State
	// Quotas is the usage of all resource quotas.
	Quotas *quotas.State
	// Policy is the policy in force, with the definitions that came through the API; nil before the first activation.
	Policy *policy.Policy
	// Activated is the log time of its activation.
	Activated time.Time
	// EpochStart is the revision at which the newest epoch began, 0 in the first epoch. This history has all revisions
	// from there on.
	EpochStart uint64
	// ClockSets are all events that set log time back.
	ClockSets eventlog.ClockSets
}

// Revision returns the revision of the tip.
func (t *Tip) Revision() uint64 { return t.Head.Revision }

// PolicyRevision returns the revision since which the policy in force has been as it is: that of its activation, or of the last change of the
// definitions that came through the API.
func (t *Tip) PolicyRevision() uint64 { return t.Policies.ActiveRevision() }

// ActivationRevision returns the revision at which the policy in force was activated.
func (t *Tip) ActivationRevision() uint64 { return t.Policies.Activated() }

// Key identifies an object.
type Key struct {
	schema.GroupResource
	Namespace, Name string
}

// MaxObject is the maximum size of a stored object in bytes. A small body can have large defaults.
const MaxObject = 4 << 20

// At is the condition that an object is at a revision, or does not exist if the revision is 0.
type At struct {
	Key
	Revision uint64
}

// check returns how the condition fails, nil if it holds.
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

// Checks are conditions on the state to which an event is appended. Zero fields check nothing, except PolicyRevision.
type Checks struct {
	// PolicyRevision is the revision since which the policy in force must have been as it is, see [Tip.PolicyRevision]; 0 means no policy.
	// It is always checked.
	PolicyRevision uint64
	// Object must be at Revision, or not exist if that is 0.
	Object   *Key
	Revision uint64
	// Objects must each be at their revision as well.
	Objects []At
	// Namespace must still be at NamespaceRevision, because rules have looked at it.
	Namespace         string
	NamespaceRevision uint64
	// ActiveNamespace must exist, and must not be in deletion.
	ActiveNamespace string
	// EmptyNamespace must have no objects.
	EmptyNamespace string
	// EmptyResources must have no objects.
	EmptyResources []schema.GroupResource
	// Selections must be as rules have read them.
	Selections []Unchanged
	// Quota says that the event's object, which is Object, must fit into the resource quotas of its namespace. The committer
	// checks it last.
	Quota bool
}

// Stale reports which check failed.
type Stale struct {
	// Policy is true if another policy is in force. Otherwise a check of objects failed.
	Policy bool
	Reason string
	// Selection is the selection that has changed, if that is what failed, and Resource the resource of its objects.
	Selection string
	Resource  schema.GroupResource
}

func (s *Stale) Error() string { return "commit: " + s.Reason }

// CheckQuota returns why an object does not fit into the resource quotas of its namespace; nil if it does. object is the
// object to be stored, as JSON. o and q are a state of the objects and the usage that belongs to it.
func CheckQuota(o *objects.State, q *quotas.State, k Key, object []byte) *quotas.Exceeded {
	if len(q.Quotas(k.Namespace)) == 0 {
		return nil
	}
	return q.Check(k.GroupResource, k.Namespace, o.Get(k.GroupResource, k.Namespace, k.Name), object)
}

// Namespaces is the resource of namespaces.
var Namespaces = schema.GroupResource{Resource: "namespaces"}

// Evaluate returns the first check that fails in a state, nil if all hold.
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
	return c.selections(o)
}

// NamespaceState reports whether a namespace exists, and whether it accepts new objects, which it does not while it is
// being deleted.
func NamespaceState(o *objects.State, name string) (exists, active bool) {
	ns := o.Get(Namespaces, "", name)
	if ns == nil {
		return false, false
	}
	return true, !gjson.GetBytes(ns.JSON, "metadata.deletionTimestamp").Exists()
}
