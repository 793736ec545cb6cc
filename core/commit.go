package core

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/tracing"
	"stele.dev/stele/core/write/edit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/quotas"
)

// commit makes the event of a write and appends it to the log. The append succeeds only if its checks hold: whatever
// was decided about the write is still true at the event's revision.
func (p *Pipeline) commit(ctx context.Context, r *Request) error {
	if r.write != nil {
		return r.write.Commit(ctx)
	}
	r.lost = nil
	waited, err := p.turns.Yield(ctx, &r.turn, r.Key, r.lookup.Searches())
	if tip := p.committer.Tip(); waited && err == nil && tip.Revision() > r.Tip.Revision() {
		err = r.SendBack(tip)
	}
	if err != nil {
		return err
	}
	w, err := p.decide(ctx, r)
	if err != nil {
		return err
	}
	if w != nil {
		r.lookup.AddChecks(&w.Checks)
	}
	if w == nil || r.Dry() {
		// Without an append, the tip must be confirmed here.
		if err := r.Confirm(ctx, p.committer); err != nil {
			return err
		}
		r.turn.End()
		if w == nil {
			return p.reader.AnswerObject(&r.Call, r.Unchanged(), r.Old.JSON)
		}
		if stale := w.Checks.Evaluate(r.Tip.Objects, r.Tip.Policies); stale != nil {
			return r.refused(w, stale)
		}
		if r.trace != nil {
			r.ConsiderQuotas(w, r.trace.Consider)
		}
		if err := r.CheckQuota(w); err != nil {
			return err
		}
		return p.answerDryRun(r, w)
	}
	proposal, err := p.propose(ctx, r, w)
	if err != nil {
		return err
	}
	appending, span := tracing.Start(ctx, "append")
	tip, revision, err := p.committer.Commit(appending, proposal)
	span.End()
	var stale *commit.Stale
	var exceeded *quotas.Exceeded
	switch {
	case errors.As(err, &exceeded):
		// All other checks held on the state of this refusal, which the log had: it is final.
		r.Confirmed = true
		p.quotas.Refused(exceeded)
		return r.OverQuota(exceeded)
	case errors.As(err, &stale):
		return p.stale(r, w, stale)
	case err != nil:
		r.Sent = true
		return err
	}
	r.Sent, r.logged = true, true
	r.turn.End()
	if w.Type == logpb.Type_TYPE_DELETED {
		if r.Object != nil { // an update that removed the last finalizer
			return p.reader.AnswerObject(&r.Call, http.StatusOK, edit.WithRevision(w.After, revision))
		}
		return p.answerDeleted(r, revision)
	}
	o := tip.Objects.Get(r.Resource(), r.Key.Namespace, r.Key.Name)
	if o == nil || o.Revision != revision {
		return fmt.Errorf("core: the object committed at revision %d is not in the state that it led to", revision)
	}
	return p.reader.AnswerObject(&r.Call, w.Code, o.JSON)
}

// decide returns the change to commit; nil if there is none. An object that is stored under a former key is stored again.
func (p *Pipeline) decide(ctx context.Context, r *Request) (*edit.Write, error) {
	r.Anew = false
	w, err := r.Decide()
	if w != nil || err != nil || r.Object == nil || r.Old == nil || r.Dry() {
		return w, err
	}
	if r.Anew, err = p.committer.Stale(ctx, r.Old); err != nil || !r.Anew {
		return nil, err
	}
	return r.Decide()
}

// propose returns the proposal of a write.
func (p *Pipeline) propose(ctx context.Context, r *Request, w *edit.Write) (*commit.Proposal, error) {
	if r.Unmanaged != nil {
		p.logger.Warn("managedFields could not be updated", "auditID", r.AuditID, "path", r.HTTP.URL.Path, "error", r.Unmanaged)
	}
	entry, err := p.committer.Encode(ctx, p.event(r, w))
	if err != nil {
		return nil, err
	}
	// A delete may first mark the object and wait for finalizers.
	entry.Frees = entry.Frees || w.Type == logpb.Type_TYPE_UPDATED && (r.Object == nil || r.OldMeta.DeletionTimestamp != nil)
	return &commit.Proposal{Entry: entry, Checks: w.Checks}, nil
}

// stale handles a write whose checks failed. If there is a newer tip, the request goes back with it.
func (p *Pipeline) stale(r *Request, w *edit.Write, stale *commit.Stale) error {
	tip := p.committer.Tip()
	if tip.Revision() == r.Tip.Revision() {
		return r.refused(w, stale)
	}
	r.Confirmed, r.lost = true, stale
	return r.SendBack(tip)
}

// refused returns the conflict of a write whose checks fail on the tip on which it was decided.
func (r *Request) refused(w *edit.Write, stale *commit.Stale) error {
	return status.Conflict(r.Resource(), r.Key.Name, errors.New(stale.Reason))
}

// event returns the event of a write: the object, the user, the request, and the policy's decisions.
func (p *Pipeline) event(r *Request, w *edit.Write) *eventlog.Event {
	uid := ""
	if r.Old != nil {
		uid = r.Old.UID
	} else {
		uid = string(r.Object.Meta.UID)
	}
	digest := r.Tip.Policy.Digest()
	meta := &logpb.Metadata{
		Type: w.Type,
		Object: &logpb.Object{
			Group: r.Key.Group, Resource: r.Key.Resource, Namespace: r.Key.Namespace, Name: r.Key.Name,
			Uid: uid, Version: r.Kind.Kind.Stored().StorageVersion, Kind: r.Kind.Kind.Kind.Kind,
		},
		PreviousRevision: w.Checks.Revision,
		Actor:            r.Actor(),
		Request: &logpb.Request{
			Verb: r.Info.Verb, Subresource: r.Info.Subresource, UserAgent: call.UTF8(r.HTTP.UserAgent()), SourceIps: call.SourceIPs(r.HTTP),
			AuditId: call.UTF8(r.AuditID), Uri: r.RecordedURI(), ReceivedUnixNano: r.Received.UnixNano(),
			FieldManager: call.UTF8(r.Body.Options.FieldManager), Status: uint32(w.Code), MediaType: r.Body.MediaType,
		},
		Decisions: &logpb.Decisions{
			Authorizer: r.Decision.Authorizer, Rule: r.Decision.Rule, Source: r.Decision.Source, Admission: r.findings, Mutations: r.lasting(), Reviews: r.reviews, Warnings: r.Warnings(), Audit: r.AuditRecord(),
		},
		PolicyDigest: digest[:],
	}
	r.AddProgram(meta.Decisions)
	r.lookup.Record(meta.Decisions)
	if d := r.creating; d != nil {
		meta.Decisions.CreateRule, meta.Decisions.CreateSource = d.Rule, d.Source
	}
	e := &eventlog.Event{Meta: meta}
	class := classOf(r)
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT, Class: class}, w.Payload)
	if r.Object != nil && r.Object.Adapted || r.RecordsBody() && len(r.Body.Raw) > 0 {
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_REQUEST, Class: class, MediaType: r.Body.MediaType}, r.Body.Raw)
	}
	if w.Kept != nil {
		if r.Old.Secret() { // a field that the schema in force lacks may have been secret
			class = &logpb.Class{Sensitive: true}
		}
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_KEPT, Class: class}, w.Kept)
	}
	return e
}

// classOf returns the class of the object's content in the log: sensitive, or nil.
func classOf(r *Request) *logpb.Class {
	if r.Sensitive() {
		return &logpb.Class{Sensitive: true}
	}
	return nil
}

// answerDryRun answers with the object that the write would have stored.
func (p *Pipeline) answerDryRun(r *Request, w *edit.Write) error {
	if w.Type == logpb.Type_TYPE_DELETED && r.Object == nil {
		return p.answerDeleted(r, r.Old.Revision)
	}
	object := w.Payload
	if w.After != nil {
		object = w.After
	}
	if r.Old != nil {
		object = edit.WithRevision(object, r.Old.Revision)
	}
	return p.reader.AnswerObject(&r.Call, w.Code, object)
}

// returnsDeleted has the resources whose deletes answer with the object, as in kube-apiserver (ReturnDeletedObject).
var returnsDeleted = map[schema.GroupResource]bool{commit.Namespaces: true, {Resource: "serviceaccounts"}: true}

// answerDeleted answers a delete that was committed at a revision.
func (p *Pipeline) answerDeleted(r *Request, revision uint64) error {
	if returnsDeleted[r.Resource()] {
		return p.reader.AnswerObject(&r.Call, http.StatusOK, edit.WithRevision(r.Old.Payload(), revision))
	}
	f, err := r.Format()
	if err != nil {
		return err
	}
	return r.WriteJSON(f, http.StatusOK, status.Deleted(&metav1.StatusDetails{
		Name: r.Key.Name, Group: r.Key.Group, Kind: r.Key.Resource, UID: types.UID(r.Old.UID),
	}))
}
