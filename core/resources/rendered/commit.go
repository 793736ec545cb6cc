package rendered

import (
	"context"
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// Validate does nothing: Decode has compared the write with the policy.
func (w *write) Validate(context.Context) error { return nil }

// Commit stores the overlay, if the write changes it, and answers with the object as it is then shown.
func (w *write) Commit(ctx context.Context) error {
	if err := w.encode(); err != nil {
		return err
	}
	if w.next == nil || w.c.Dry() {
		// Nothing is appended that would confirm the tip.
		if err := w.c.Confirm(ctx, w.v.Committer); err != nil {
			return err
		}
		return w.answer(w.there.Revision)
	}
	entry, err := w.v.Committer.Encode(ctx, w.event())
	if err != nil {
		return err
	}
	_, revision, err := w.v.Committer.Commit(ctx, &commit.Proposal{Entry: entry, Checks: w.checks()})
	var stale *commit.Stale
	switch {
	case errors.As(err, &stale):
		if tip := w.v.Committer.Tip(); tip.Revision() != w.c.Tip.Revision() {
			w.c.Confirmed = true
			return w.c.SendBack(tip)
		}
		return status.Conflict(w.c.Resource(), w.item.entry.Name, errors.New(stale.Reason))
	case err != nil:
		w.c.Sent = true
		return err
	}
	w.c.Sent, w.c.Logged = true, true
	return w.answer(revision)
}

// encode makes the payload of what is to be stored, if there is any.
func (w *write) encode() error {
	if w.next == nil {
		return nil
	}
	w.payload = w.next.encode(w.v.kind, w.item.place, w.item.entry.Name)
	if len(w.payload) > commit.MaxObject {
		return status.TooLarge("the object has %d bytes, with its defaults; limit is %d", len(w.payload), commit.MaxObject)
	}
	return nil
}

// key is that of the overlay, and of the object that it is about.
func (w *write) key() commit.Key {
	return commit.Key{GroupResource: w.c.Resource(), Namespace: w.item.namespace, Name: w.item.entry.Name}
}

// before returns the revision of the overlay that the log has, also of one that does not belong to the object any more; 0 if it has none.
func (w *write) before() uint64 {
	k := w.key()
	if o := w.c.Tip.Objects.Get(k.GroupResource, k.Namespace, k.Name); o != nil {
		return o.Revision
	}
	return 0
}

// checks returns the conditions under which the overlay may be stored.
func (w *write) checks() commit.Checks {
	k := w.key()
	checks := commit.Checks{PolicyRevision: w.c.Tip.PolicyRevision(), Object: &k, Revision: w.before()}
	if in := w.item.in; in != nil {
		checks.Namespace, checks.NamespaceRevision = in.Name, in.Revision
	}
	return checks
}

// answer answers with the object as it is at a revision, or with the status of a delete.
func (w *write) answer(revision uint64) error {
	x := *w.item
	if w.next != nil {
		x.overlay, x.revision = w.next, revision
	}
	if w.c.Info.Verb != "delete" {
		return w.v.AnswerObject(w.c, w.code, x.entry.object(w.v.kind, x.namespace, x.version).JSON)
	}
	f, err := w.c.Format()
	if err != nil {
		return err
	}
	return w.c.WriteJSON(f, http.StatusOK, status.Deleted(&metav1.StatusDetails{
		Name: x.entry.Name, Group: w.c.Key.Group, Kind: w.c.Key.Resource, UID: types.UID(w.there.UID),
	}))
}

// event returns the event that stores the overlay: the user, the request and the decision, as for any object.
func (w *write) event() *eventlog.Event {
	c, kind, before := w.c, w.v.kind.Version.Kind, w.before()
	digest := c.Tip.Policy.Digest()
	meta := &logpb.Metadata{
		Type: logpb.Type_TYPE_UPDATED,
		Object: &logpb.Object{
			Group: kind.Group, Resource: kind.Plural, Namespace: w.item.namespace, Name: w.item.entry.Name, Uid: uidOf(kind.Kind, w.item.namespace, w.item.entry.Name),
			Version: kind.StorageVersion, Kind: kind.Kind.Kind,
		},
		PreviousRevision: before, Actor: c.Actor(), PolicyDigest: digest[:],
		Request: &logpb.Request{
			Verb: c.Info.Verb, UserAgent: call.UTF8(c.HTTP.UserAgent()), SourceIps: call.SourceIPs(c.HTTP), AuditId: call.UTF8(c.AuditID),
			Uri: c.RecordedURI(), ReceivedUnixNano: c.Received.UnixNano(), FieldManager: call.UTF8(c.Body.Options.FieldManager), Status: uint32(w.code), MediaType: c.Body.MediaType,
		},
		Decisions: &logpb.Decisions{Authorizer: c.Decision.Authorizer, Rule: c.Decision.Rule, Source: c.Decision.Source, Warnings: c.Warnings(), Audit: c.AuditRecord()},
	}
	if before == 0 {
		meta.Type = logpb.Type_TYPE_CREATED
	}
	c.AddProgram(meta.Decisions)
	e := &eventlog.Event{Meta: meta}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, w.payload)
	if c.RecordsBody() && len(c.Body.Raw) > 0 {
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_REQUEST, MediaType: c.Body.MediaType}, c.Body.Raw)
	}
	return e
}
