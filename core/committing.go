package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/canonical"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// commit turns the object into an event, and sees that it gets into the log, under
// the checks that make everything decided so far true at its revision.
func (p *Pipeline) commit(ctx context.Context, r *Request) error {
	if r.law {
		return p.commitPolicy(ctx, r)
	}
	if err := p.yield(ctx, r); err != nil {
		return err
	}
	w, err := r.Decide()
	if err != nil {
		return err
	}
	if w == nil || r.Dry() {
		// Nothing is appended, so nothing confirms the tip by itself.
		if err := p.confirmed(ctx, r); err != nil {
			return err
		}
		r.endTurn()
		if w == nil {
			return p.AnswerObject(r, r.Unchanged(), r.Old.JSON)
		}
		if stale := w.Checks.Evaluate(r.Tip.Objects, r.Tip.Policies); stale != nil {
			return r.refused(w, stale)
		}
		return p.answerDryRun(r, w)
	}
	event := p.event(r, w)
	if r.Unmanaged != nil {
		p.logger.Warn("managedFields could not be updated", "auditID", r.AuditID, "path", r.HTTP.URL.Path, "error", r.Unmanaged)
	}
	entry, err := eventlog.Encode(event)
	if err != nil {
		return err
	}
	tip, revision, err := p.committer.Commit(ctx, &commit.Proposal{Entry: entry, Checks: w.Checks})
	var stale *commit.Stale
	switch {
	case errors.As(err, &stale):
		return p.stale(r, w, stale)
	case err != nil:
		r.Sent = true
		return err
	}
	r.Sent = true
	r.endTurn()
	if w.Type == logpb.Type_TYPE_DELETED {
		if r.Object != nil { // an update that took the last finalizer
			return p.AnswerObject(r, http.StatusOK, edit.WithRevision(w.After, revision))
		}
		return p.answerDeleted(r, revision)
	}
	o := tip.Objects.Get(r.Resource(), r.Key.Namespace, r.Key.Name)
	if o == nil || o.Revision != revision {
		return fmt.Errorf("core: the object committed at revision %d is not in the state that it led to", revision)
	}
	return p.AnswerObject(r, w.Code, o.JSON)
}

// confirmed makes sure that the pinned tip was the log's after the request came, or
// sends the request back with one that was.
func (p *Pipeline) confirmed(ctx context.Context, r *Request) error {
	if r.Confirmed {
		return nil
	}
	tip, err := p.committer.Confirm(ctx)
	if err != nil {
		return err
	}
	r.Confirmed = true
	if tip.Revision() == r.Tip.Revision() {
		return nil
	}
	return sendBack(r, tip)
}

// sendBackNow is where a request goes back to that has waited since it was to go back.
func (p *Pipeline) sendBackNow(r *Request, back *call.Again) *call.Again {
	tip := p.committer.Tip()
	if tip.Revision() <= back.Tip.Revision() {
		return back
	}
	return sendBack(r, tip)
}

// sendBack sends a request to where a newer tip matters first.
func sendBack(r *Request, tip *commit.Tip) *call.Again {
	if tip.PolicyRevision() != r.Tip.PolicyRevision() {
		return &call.Again{Stage: "impersonation", Tip: tip}
	}
	return &call.Again{Stage: "decode", Tip: tip}
}

// stale handles a proposal that met another state than the one it was decided on: the
// request goes back, with a state that is confirmed.
func (p *Pipeline) stale(r *Request, w *edit.Write, stale *commit.Stale) error {
	tip := p.committer.Tip()
	if tip.Revision() == r.Tip.Revision() {
		return r.refused(w, stale)
	}
	r.Confirmed = true
	return sendBack(r, tip)
}

// refused is for checks that fail on the very state that the write was decided on.
func (r *Request) refused(w *edit.Write, stale *commit.Stale) error {
	return apierrors.NewConflict(r.Resource(), r.Key.Name, errors.New(stale.Reason))
}

// event describes the write: who, why, and under which policy.
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
			AuditId: call.UTF8(r.AuditID), Uri: call.UTF8(r.HTTP.URL.RequestURI()), ReceivedUnixNano: r.Received.UnixNano(),
			FieldManager: call.UTF8(r.Body.Options.FieldManager), Status: uint32(w.Code), MediaType: r.Body.MediaType,
		},
		Decisions: &logpb.Decisions{
			Authorizer: r.Decision.Authorizer, Rule: r.Decision.Rule, Source: r.Decision.Source, Admission: r.admission, Warnings: r.warnings,
		},
		PolicyDigest: digest[:],
	}
	r.AddProgram(meta.Decisions)
	if d := r.creating; d != nil {
		meta.Decisions.CreateRule, meta.Decisions.CreateSource = d.Rule, d.Source
	}
	e := &eventlog.Event{Meta: meta}
	class := classOf(r)
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT, Class: class}, w.Payload)
	if r.Object != nil && r.Object.Adapted {
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

// classOf says how an object's content is to be kept.
func classOf(r *Request) *logpb.Class {
	if r.Sensitive() {
		return &logpb.Class{Sensitive: true}
	}
	return nil
}

