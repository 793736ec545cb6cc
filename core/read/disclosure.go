package read

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
)

// Disclosure decides what of objects, and of records about them, the user of a request may be shown. The policy in force at the tip
// of the request must allow the user a verb on the object, and must let the user read that far back. What the request itself
// names, such as another policy, changes nothing. A Disclosure is for one request and one policy. It is safe for concurrent use.
//
// If a webhook or a plugin of the chain fails, a user whom the policy's own rules allow gets an error. To leave out what is asked for
// would mean that it is not there.
type Disclosure struct {
	c       *call.Call
	history *history.Store
	verb    string

	mu      sync.Mutex // held while the policy is asked, so that each question is asked once
	windows *Windows
	decided map[disclosed]bool
}

// disclosed is what a decision depends on. name is empty unless the policy has rules for single names.
type disclosed struct{ group, resource, namespace, name string }

// maxDisclosed is how many decisions a Disclosure remembers.
const maxDisclosed = 10_000

// Disclosure returns what a user who may do a verb (get, list or watch) with an object may be shown of it.
func (rd *Reader) Disclosure(c *call.Call, verb string) *Disclosure {
	return &Disclosure{c: c, history: rd.History, verb: verb, windows: rd.Windows(c), decided: map[disclosed]bool{}}
}

// Renew sets the windows, which move with time.
func (d *Disclosure) Renew(w *Windows) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.windows = w
}

// During sets the replay in which the Disclosure is asked. It gives up its turn while an outside authorizer is asked.
func (d *Disclosure) During(r *Replay) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.windows.Replay = r
}

// access returns the request that the policy must allow if the user is to be shown an object.
func (d *Disclosure) access(o *logpb.Object) policy.Request {
	u := d.c.User
	return policy.Request{
		User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra(),
		Verb: d.verb, IsResource: true, Group: o.GetGroup(), Version: o.GetVersion(), Resource: o.GetResource(), Namespace: o.GetNamespace(), Name: o.GetName(),
	}
}

// Now reports whether the user may do the verb with an object, whatever its revision. An outside authorizer whose match includes
// the object is asked once per object, until the request's deadline.
func (d *Disclosure) Now(ctx context.Context, o *logpb.Object) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	access := d.access(o)
	return d.allowed(ctx, &access)
}

// allowed reports whether the policy allows a request. d.mu must be held.
func (d *Disclosure) allowed(ctx context.Context, access *policy.Request) (bool, error) {
	k := disclosed{access.Group, access.Resource, access.Namespace, ""}
	if d.byName(access) {
		k.name = access.Name
	}
	allowed, known := d.decided[k]
	if known {
		return allowed, nil
	}
	is := d.windows.Ask(ctx, access)
	if err := cmp.Or(ctx.Err(), Undecided(d.c.Tip.Policy, access, is)); err != nil { // after the deadline, false is no decision
		return false, err
	}
	if len(d.decided) >= maxDisclosed {
		clear(d.decided)
	}
	d.decided[k] = is.Allowed
	return is.Allowed, nil
}

// byName reports whether the policy has rules for single names of a resource.
func (d *Disclosure) byName(access *policy.Request) bool {
	k := disclosed{access.Group, access.Resource, "*", "*"} // no object has these names
	byName, known := d.decided[k]
	if !known {
		byName = d.c.Tip.Policy.ByName(access)
		d.decided[k] = byName
	}
	return byName
}

// at reports whether the user may be shown an object as it was at a revision. secret reports whether it held secrets; it is asked for
// objects of kinds that the policy in force does not have, and which so have no window.
func (d *Disclosure) at(ctx context.Context, o *logpb.Object, revision uint64, secret func() (bool, error)) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	access := d.access(o)
	if allowed, err := d.allowed(ctx, &access); err != nil || !allowed {
		return false, err
	}
	kind := d.c.Tip.Policy.Kind(schema.GroupResource{Group: access.Group, Resource: access.Resource})
	if kind != nil {
		return d.windows.Allowed(ctx, kind, access, revision)
	}
	if is, err := secret(); err != nil || !is {
		return err == nil, err
	}
	return d.windows.Authorized(ctx, access)
}

// Change reports whether the user may be shown a change of an object: what it was before and after. A change without an object is one of
// the log itself, which everybody may be shown.
func (d *Disclosure) Change(ctx context.Context, h *history.Change) (bool, error) {
	if h.Object == nil {
		return true, nil
	}
	return d.at(ctx, h.Object, shows(h), func() (bool, error) { return d.heldSecrets(ctx, h) })
}

// Reach returns nil if the user, who may be shown the object of a change as it is now, may be shown the change as well, else the error for
// the client. The policy in force must have the kind of the object.
func (d *Disclosure) Reach(ctx context.Context, h *history.Change) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.windows.Reach(ctx, d.c.Tip.Policy.Kind(resourceOf(h)), d.access(h.Object), shows(h))
}

// shows returns the earliest revision whose state a change shows. Unless the change created the object, that is the revision before
// it, because the difference has the values that were replaced or deleted.
func shows(h *history.Change) uint64 {
	if h.Previous == 0 && !h.Deleted {
		return h.Revision
	}
	return h.Revision - 1
}

// heldSecrets reports whether an object held secrets before or after a change, or may have.
func (d *Disclosure) heldSecrets(ctx context.Context, h *history.Change) (bool, error) {
	if HoldsSecrets(h) || h.Previous == 0 {
		return HoldsSecrets(h), nil
	}
	before, err := d.history.Get(ctx, resourceOf(h), h.Object.GetNamespace(), h.Object.GetName(), h.Revision-1)
	if err != nil && !errors.Is(err, history.ErrForgotten) {
		return false, err
	}
	return before == nil || HoldsSecrets(before), nil
}

// HoldsSecrets reports whether the object of a change was stored as one that holds secrets.
func HoldsSecrets(h *history.Change) bool { return holdsSecrets(h.Meta) }

func holdsSecrets(m *logpb.Metadata) bool {
	return slices.ContainsFunc(m.GetPayloads(), func(p *logpb.Payload) bool { return p.GetClass().GetSensitive() })
}

// resourceOf returns the resource of a change's object.
func resourceOf(h *history.Change) schema.GroupResource {
	return schema.GroupResource{Group: h.Object.GetGroup(), Resource: h.Object.GetResource()}
}

// Decision reports whether the user may be shown the object of a record of a decision log, as it was then, and so what the record quotes
// of it. A record without an object quotes none.
func (d *Disclosure) Decision(ctx context.Context, m *logpb.Metadata) (bool, error) {
	if m.GetObject().GetResource() == "" {
		return true, nil
	}
	revision := max(m.GetDecision().GetRevision(), m.GetDecisionsCounted().GetLike().GetRevision())
	return d.at(ctx, m.GetObject(), revision, func() (bool, error) { return holdsSecrets(m), nil })
}

// All reports whether the user may be shown all objects of a resource, in all namespaces, as they have been since a revision.
func (d *Disclosure) All(ctx context.Context, r schema.GroupResource, since uint64) (bool, error) {
	o := &logpb.Object{Group: r.Group, Resource: r.Resource}
	if k := d.c.Tip.Policy.Kind(r); k != nil {
		o.Version = k.StorageVersion
	}
	return d.at(ctx, o, since, func() (bool, error) { return true, nil })
}

// Quotes reports whether what a stage says about a request may quote an object: its content, or what rules read of others. Whoever may
// not read the object is not shown it.
func Quotes(stage string) bool {
	switch stage {
	case "connection", "authentication", "impersonation", "flow", "authorization":
		return false
	}
	return true
}

// Disclosed returns what everybody who may read records is shown of one: who asked for what, and which rules decided. What may quote an
// object is left out, for users who may not read it. A field that is not named here is left out, too.
func Disclosed(m *logpb.Metadata) *logpb.Metadata {
	shown := &logpb.Metadata{
		Type: m.GetType(), Span: m.Span, Object: m.GetObject(), PreviousRevision: m.GetPreviousRevision(), Actor: m.GetActor(), Request: m.GetRequest(),
		Decisions: disclosedDecisions(m.GetDecisions()), PolicyDigest: m.GetPolicyDigest(), NodeDigest: m.GetNodeDigest(), Payloads: m.GetPayloads(),
	}
	switch x := m.GetDetail().(type) {
	case *logpb.Metadata_Decision:
		shown.Detail = &logpb.Metadata_Decision{Decision: disclosedDecision(x.Decision)}
	case *logpb.Metadata_DecisionsCounted:
		shown.Detail = &logpb.Metadata_DecisionsCounted{DecisionsCounted: &logpb.DecisionsCounted{
			Count: x.DecisionsCounted.GetCount(), FirstUnixNano: x.DecisionsCounted.GetFirstUnixNano(), LastUnixNano: x.DecisionsCounted.GetLastUnixNano(),
			Like: disclosedDecision(x.DecisionsCounted.GetLike()),
		}}
	case *logpb.Metadata_Bulk:
		shown.Detail = x // the names of the objects
	}
	return shown
}

// Hides reports whether a record says more than what is shown of it by [Disclosed].
func Hides(m, shown *logpb.Metadata) bool { return proto.Size(shown) < proto.Size(m) } // a copy with fewer fields is smaller

func disclosedDecision(d *logpb.Decision) *logpb.Decision {
	if d == nil {
		return nil
	}
	shown := &logpb.Decision{
		Outcome: d.GetOutcome(), Stage: d.GetStage(), Reason: d.GetReason(), Rule: d.GetRule(), Source: d.GetSource(), Revision: d.GetRevision(),
		AuditStage: d.GetAuditStage(), RecordedUnixNano: d.GetRecordedUnixNano(), BodyCut: d.GetBodyCut(), FlowSchema: d.GetFlowSchema(), PriorityLevel: d.GetPriorityLevel(),
	}
	if !Quotes(d.GetStage()) {
		shown.Message = d.GetMessage()
	}
	return shown
}

func disclosedDecisions(d *logpb.Decisions) *logpb.Decisions {
	if d == nil {
		return nil
	}
	shown := &logpb.Decisions{
		Authorizer: d.GetAuthorizer(), Rule: d.GetRule(), Source: d.GetSource(), CreateRule: d.GetCreateRule(), CreateSource: d.GetCreateSource(), Reason: d.GetReason(), Program: d.GetProgram(),
		Reviews: d.GetReviews(),
	}
	if a := d.GetAudit(); a != nil {
		shown.Audit = &logpb.Audit{Level: a.GetLevel(), Stages: a.GetStages(), Rule: a.GetRule(), Source: a.GetSource(), OmitManagedFields: a.GetOmitManagedFields(), Timings: a.GetTimings()}
	}
	for _, f := range d.GetAdmission() {
		shown.Admission = append(shown.Admission, &logpb.Admission{Rule: f.GetRule(), Source: f.GetSource(), Action: f.GetAction()})
	}
	for _, x := range d.GetMutations() {
		shown.Mutations = append(shown.Mutations, &logpb.Mutation{Rule: x.GetRule(), Source: x.GetSource(), By: x.GetBy(), Reinvoked: x.GetReinvoked()})
	}
	return shown
}
