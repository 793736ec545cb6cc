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
	w, err := r.decide()
	if err != nil {
		return err
	}
	if w == nil || r.dry() {
		// Nothing is appended, so nothing confirms the tip by itself.
		if err := p.confirmed(ctx, r); err != nil {
			return err
		}
		r.endTurn()
		if w == nil {
			return p.answerObject(r, r.unchanged(), r.old.JSON)
		}
		if stale := w.checks.Evaluate(r.tip.Objects, r.tip.Policies); stale != nil {
			return r.refused(w, stale)
		}
		return p.answerDryRun(r, w)
	}
	event := p.event(r, w)
	if r.unmanaged != nil {
		p.logger.Warn("managedFields could not be updated", "auditID", r.auditID, "path", r.http.URL.Path, "error", r.unmanaged)
	}
	entry, err := eventlog.Encode(event)
	if err != nil {
		return err
	}
	tip, revision, err := p.committer.Commit(ctx, &commit.Proposal{Entry: entry, Checks: w.checks})
	var stale *commit.Stale
	switch {
	case errors.As(err, &stale):
		return p.stale(r, w, stale)
	case err != nil:
		r.sent = true
		return err
	}
	r.sent = true
	r.endTurn()
	if w.kind == logpb.Type_TYPE_DELETED {
		if r.object != nil { // an update that took the last finalizer
			return p.answerObject(r, http.StatusOK, withRevision(w.after, revision))
		}
		return p.answerDeleted(r, revision)
	}
	o := tip.Objects.Get(r.resource(), r.key.Namespace, r.key.Name)
	if o == nil || o.Revision != revision {
		return fmt.Errorf("core: the object committed at revision %d is not in the state that it led to", revision)
	}
	return p.answerObject(r, w.code, o.JSON)
}

// dry tells whether nothing is to be written. An explained request never writes,
// whatever it says.
func (r *Request) dry() bool { return r.body.options.dryRun || r.trace != nil }

// write is what a request comes down to.
type write struct {
	kind    logpb.Type
	payload []byte // of the event: the object after, or its last state
	after   []byte // the object after, where the payload is the last state
	kept    []byte // the object after as it is kept, see kept
	code    int
	checks  commit.Checks
}

// decide compares what is to be with what is. nil means that they are the same.
func (r *Request) decide() (*write, error) {
	w := &write{code: http.StatusOK, checks: commit.Checks{PolicyRevision: r.tip.PolicyRevision(), Object: &r.key}}
	if r.old != nil {
		w.checks.Revision = r.old.Revision
	}
	if ns := r.sawNamespace; ns != nil {
		w.checks.Namespace, w.checks.NamespaceRevision = r.key.Namespace, ns.Revision
	}
	var err error
	switch {
	case r.creates():
		if r.old != nil {
			return nil, r.alreadyExists()
		}
		w.kind, w.code, w.checks.ActiveNamespace = logpb.Type_TYPE_CREATED, http.StatusCreated, r.key.Namespace
		w.payload, err = r.encode(r.object.meta, r.object.content)
	case r.object == nil:
		return r.decideDelete(w)
	default:
		w.kind = logpb.Type_TYPE_UPDATED
		r.keepTimes()
		if !r.kind.Kind.Builtin && r.info.Subresource != "status" && r.contentChanged() {
			r.object.meta.Generation++
		}
		if w.payload, err = r.encode(r.object.meta, r.object.content); err != nil {
			return nil, err
		}
		if r.oldMeta.DeletionTimestamp != nil && !r.held() && !r.holdsContent() {
			w.after = w.payload
			r.remove(w)
			return w, nil
		}
		if r.old.HasPayload(w.payload) {
			return nil, nil
		}
		w.kept, err = r.kept(r.object.meta, r.object.content)
	}
	return w, err
}

// contentChanged: something else than metadata, or than a status with a place of its
// own.
func (r *Request) contentChanged() bool {
	return !equalContent(r.object.content, r.oldContent, r.kind.Status)
}

func equalContent(a, b map[string]any, exceptStatus bool) bool {
	compared := func(name string) bool {
		return name != "apiVersion" && name != "kind" && name != "metadata" && (name != "status" || !exceptStatus)
	}
	for name, value := range a {
		if other, ok := b[name]; compared(name) && (!ok || !canonical.Equal(value, other)) {
			return false
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok && compared(name) {
			return false
		}
	}
	return true
}

func (r *Request) encode(meta *metav1.ObjectMeta, content map[string]any) ([]byte, error) {
	gvk := r.kind.Kind.Stored().Storage().GroupVersionKind()
	if face := r.kind.Kind.Face; face != nil {
		content = face.Store(content)
	}
	if r.applies() && len(r.kind.Kind.Definition) > 0 && r.object != nil {
		r.kind.Program.Prune(content) // nulls that are applied and have been let through
	}
	if r.kind.Kind.Converts() {
		stored, changed := r.kind.Store(content)
		if content = stored; changed && r.object != nil {
			r.object.adapted = true
		}
	}
	text, err := canonical.Object(gvk.GroupVersion().String(), gvk.Kind, meta, content)
	if err == nil && len(text) > maxObject && len(meta.ManagedFields) > 0 && !r.applies() {
		// Who set what is given up before what they set, as upstream does.
		meta.ManagedFields = nil
		text, err = canonical.Object(gvk.GroupVersion().String(), gvk.Kind, meta, content)
	}
	if err == nil && len(text) > maxObject {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object has %d bytes, with its defaults; limit is %d", len(text), maxObject))
	}
	return text, err
}

// decideDelete removes the object, or, while it has finalizers, marks it.
func (r *Request) decideDelete(w *write) (*write, error) {
	if r.resource() == commit.Namespaces {
		return r.deleteNamespace(w)
	}
	finalizers := r.finalizersOfDelete()
	if len(finalizers) > 0 {
		meta, content, err := r.decodeStored(r.old.JSON)
		if err != nil {
			return nil, err
		}
		meta.Finalizers, meta.ResourceVersion = finalizers, ""
		markDeleted(meta, r.received)
		w.kind, w.code = logpb.Type_TYPE_UPDATED, r.unchanged()
		if w.payload, err = r.encode(meta, content); err != nil || r.old.HasPayload(w.payload) {
			return nil, err // already marked
		}
		w.kept, err = r.kept(meta, content)
		return w, err
	}
	r.remove(w)
	return w, nil
}

// confirmed makes sure that the pinned tip was the log's after the request came, or
// sends the request back with one that was.
func (p *Pipeline) confirmed(ctx context.Context, r *Request) error {
	if r.confirmed {
		return nil
	}
	tip, err := p.committer.Confirm(ctx)
	if err != nil {
		return err
	}
	r.confirmed = true
	if tip.Revision() == r.tip.Revision() {
		return nil
	}
	return sendBack(r, tip)
}

// sendBackNow is where a request goes back to that has waited since it was to go back.
func (p *Pipeline) sendBackNow(r *Request, back *again) *again {
	tip := p.committer.Tip()
	if tip.Revision() <= back.tip.Revision() {
		return back
	}
	return sendBack(r, tip)
}

// sendBack sends a request to where a newer tip matters first.
func sendBack(r *Request, tip *commit.Tip) *again {
	if tip.PolicyRevision() != r.tip.PolicyRevision() {
		return &again{stage: "impersonation", tip: tip}
	}
	return &again{stage: "decode", tip: tip}
}

// stale handles a proposal that met another state than the one it was decided on: the
// request goes back, with a state that is confirmed.
func (p *Pipeline) stale(r *Request, w *write, stale *commit.Stale) error {
	tip := p.committer.Tip()
	if tip.Revision() == r.tip.Revision() {
		return r.refused(w, stale)
	}
	r.confirmed = true
	return sendBack(r, tip)
}

// refused is for checks that fail on the very state that the write was decided on.
func (r *Request) refused(w *write, stale *commit.Stale) error {
	return apierrors.NewConflict(r.resource(), r.key.Name, errors.New(stale.Reason))
}

// event describes the write: who, why, and under which policy.
func (p *Pipeline) event(r *Request, w *write) *eventlog.Event {
	uid := ""
	if r.old != nil {
		uid = r.old.UID
	} else {
		uid = string(r.object.meta.UID)
	}
	digest := r.tip.Policy.Digest()
	meta := &logpb.Metadata{
		Type: w.kind,
		Object: &logpb.Object{
			Group: r.key.Group, Resource: r.key.Resource, Namespace: r.key.Namespace, Name: r.key.Name,
			Uid: uid, Version: r.kind.Kind.Stored().StorageVersion, Kind: r.kind.Kind.Kind.Kind,
		},
		PreviousRevision: w.checks.Revision,
		Actor:            r.actor(),
		Request: &logpb.Request{
			Verb: r.info.Verb, Subresource: r.info.Subresource, UserAgent: utf8(r.http.UserAgent()), SourceIps: sourceIPs(r.http),
			AuditId: utf8(r.auditID), Uri: utf8(r.http.URL.RequestURI()), ReceivedUnixNano: r.received.UnixNano(),
			FieldManager: utf8(r.body.options.fieldManager), Status: uint32(w.code), MediaType: r.body.mediaType,
		},
		Decisions: &logpb.Decisions{
			Authorizer: r.decision.Authorizer, Rule: r.decision.Rule, Source: r.decision.Source, Admission: r.admission, Warnings: r.warnings,
		},
		PolicyDigest: digest[:],
	}
	r.decidedOutside(meta.Decisions)
	if d := r.creating; d != nil {
		meta.Decisions.CreateRule, meta.Decisions.CreateSource = d.Rule, d.Source
	}
	e := &eventlog.Event{Meta: meta}
	class := classOf(r)
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT, Class: class}, w.payload)
	if r.object != nil && r.object.adapted {
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_REQUEST, Class: class, MediaType: r.body.mediaType}, r.body.raw)
	}
	if w.kept != nil {
		if r.old.Secret() { // a field that the schema in force lacks may have been secret
			class = &logpb.Class{Sensitive: true}
		}
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_KEPT, Class: class}, w.kept)
	}
	return e
}

// decidedOutside adds what an authorizer outside of the policy said, if it was one that decided.
func (r *Request) decidedOutside(to *logpb.Decisions) {
	if by := r.decision.By(); by != nil {
		to.Reason, to.Program = utf8(by.Reason), by.Program
	}
}

// classOf says how an object's content is to be kept.
func classOf(r *Request) *logpb.Class {
	if r.sensitive() {
		return &logpb.Class{Sensitive: true}
	}
	return nil
}

// sensitive reports whether the objects that the request is about hold secrets.
func (r *Request) sensitive() bool {
	return r.key.Group == "" && r.key.Resource == "secrets" || r.kind != nil && r.kind.Program.Sensitive()
}

// actor is in whose name the request is, and who sent it if that is somebody else.
func (r *Request) actor() *logpb.Actor {
	a := actor(r.user)
	if r.user != r.requester {
		a.Impersonator = actor(r.requester)
	}
	return a
}

func actor(u user.Info) *logpb.Actor {
	a := &logpb.Actor{User: utf8(u.GetName()), Uid: utf8(u.GetUID())}
	for _, g := range u.GetGroups() {
		a.Groups = append(a.Groups, utf8(g))
	}
	keys := make([]string, 0, len(u.GetExtra()))
	for k := range u.GetExtra() {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		x := &logpb.Extra{Key: utf8(k)}
		for _, v := range u.GetExtra()[k] {
			x.Values = append(x.Values, utf8(v))
		}
		a.Extra = append(a.Extra, x)
	}
	return a
}

// utf8 makes a string that came from outside fit to be encoded, and bounded.
func utf8(s string) string {
	const longest = 4096
	if len(s) > longest {
		s = s[:longest]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func sourceIPs(h *http.Request) []string {
	host, _, err := net.SplitHostPort(h.RemoteAddr)
	if err != nil {
		return nil
	}
	return []string{host}
}

// withRevision is a payload as clients get it.
func withRevision(payload []byte, revision uint64) []byte {
	at := bytes.Index(payload, []byte(`"metadata":{`)) + len(`"metadata":{`)
	return slices.Concat(payload[:at], fmt.Appendf(nil, `"resourceVersion":"%d",`, revision), payload[at:])
}
