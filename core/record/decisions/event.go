package decisions

import (
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/audit/hashing"
)

// MaxBody is the maximum number of bytes that are kept of the body of a request, and of that of an answer.
const MaxBody = 64 << 10

// Made is what was decided about a call.
type Made struct {
	Outcome logpb.Outcome
	// Status is the error that the client got; nil if there was none.
	Status *metav1.Status
	// Name is the name of the object if the path has none, or its generateName; empty if it is not known.
	Name string
	// Rule and Source name the rule that refused, and its line.
	Rule, Source string
	Admission    []*logpb.Admission
	Mutations    []*logpb.Mutation
	Reviews      []*logpb.Review
	// Audit is what the audit rules say about the call; nil if nobody asked them.
	Audit *logpb.Audit
	// Stage is the stage of audit.k8s.io, as in [logpb.Audit].
	Stage uint32
	// Body and Response are the body of the request and that of the answer; nil if they are not kept. Those that are too
	// large are cut or, for an answer, left out.
	Body, Response *Content
}

// Content is a body.
type Content struct {
	Text      []byte
	MediaType string
	// Secret are the fields that may have secrets. Their values are recorded as hashes, or the content is left out if the
	// recorder has no key.
	Secret hashing.Fields
}

// EventOf returns the event of a decision about a call. It does not keep parts of the call that may change.
func (r *Recorder) EventOf(c *call.Call, m *Made) *eventlog.Event {
	d := &logpb.Decision{
		Outcome: m.Outcome, Stage: c.Stage, Rule: call.UTF8(m.Rule), Source: call.UTF8(m.Source), AuditStage: m.Stage, RecordedUnixNano: time.Now().UnixNano(),
	}
	meta := &logpb.Metadata{
		Type: logpb.Type_TYPE_DECISION, Actor: actorOf(c),
		Request: &logpb.Request{
			UserAgent: call.UTF8(c.HTTP.UserAgent()), SourceIps: call.SourceIPs(c.HTTP), AuditId: call.UTF8(c.AuditID), Uri: c.RecordedURI(),
			ReceivedUnixNano: c.Received.UnixNano(), Status: uint32(c.W.Code), MediaType: call.UTF8(c.HTTP.Header.Get("Content-Type")),
		},
		Decisions: &logpb.Decisions{Admission: m.Admission, Mutations: m.Mutations, Reviews: m.Reviews, Warnings: c.Warnings(), Audit: m.Audit},
		Detail:    &logpb.Metadata_Decision{Decision: d},
	}
	if s := m.Status; s != nil {
		d.Reason, d.Message, d.Details = string(s.Reason), call.UTF8(s.Message), detailsOf(s)
		if s.Code != 0 {
			meta.Request.Status = uint32(s.Code)
		}
	}
	addTarget(c, meta)
	if o := meta.Object; o != nil && o.Name == "" {
		o.Name = call.UTF8(m.Name)
	}
	if f := c.Flow.Schema; f != nil {
		d.FlowSchema, d.PriorityLevel = f.Name, f.PriorityLevel
	}
	if c.Tip != nil {
		d.Revision = c.Tip.Revision()
		if c.Tip.Policy != nil {
			digest := c.Tip.Policy.Digest()
			meta.PolicyDigest = digest[:]
		}
	}
	if by := c.Decision; by != nil && by.Allowed {
		meta.Decisions.Authorizer, meta.Decisions.Rule, meta.Decisions.Source = by.Authorizer, by.Rule, by.Source
		c.AddProgram(meta.Decisions)
	}
	if c.Body != nil {
		meta.Request.FieldManager = call.UTF8(c.Body.Options.FieldManager)
	}
	e := &eventlog.Event{Meta: meta}
	r.addBodies(e, d, m)
	return e
}

// maxDetails is the maximum size of the recorded details of a Status.
const maxDetails = 16 << 10

// detailsOf returns the details of a Status as JSON, without the causes if there are too many; empty if it has none.
func detailsOf(s *metav1.Status) string {
	if s.Details == nil {
		return ""
	}
	text, err := json.Marshal(s.Details)
	if err == nil && len(text) > maxDetails {
		short := *s.Details
		short.Causes = nil
		text, err = json.Marshal(&short)
	}
	if err != nil || len(text) > maxDetails {
		return ""
	}
	return call.UTF8(string(text))
}

// addTarget sets what the call was about.
func addTarget(c *call.Call, meta *logpb.Metadata) {
	i := c.Info
	if i == nil {
		meta.Request.Verb = strings.ToLower(call.UTF8(c.HTTP.Method))
		return
	}
	meta.Request.Verb, meta.Request.Subresource = call.UTF8(i.Verb), call.UTF8(i.Subresource)
	if !i.IsResourceRequest {
		return
	}
	meta.Object = &logpb.Object{
		Group: call.UTF8(i.APIGroup), Resource: call.UTF8(i.Resource), Namespace: call.UTF8(i.Namespace), Name: call.UTF8(i.Name), Version: call.UTF8(i.APIVersion),
	}
	if c.Kind != nil {
		meta.Object.Kind = c.Kind.Kind.Kind.Kind
	}
}

// addBodies adds the bodies, as far as they are kept.
func (r *Recorder) addBodies(e *eventlog.Event, d *logpb.Decision, m *Made) {
	if b := m.Body; b != nil && len(b.Text) > 0 {
		text := b.Text
		if len(text) > MaxBody {
			text, d.BodyCut = text[:MaxBody], true
		}
		r.addBody(e, logpb.Role_ROLE_REQUEST, b, text)
	}
	if b := m.Response; b != nil && len(b.Text) > 0 {
		r.addBody(e, logpb.Role_ROLE_RESPONSE, b, b.Text)
	}
}

// addBody adds the text that is kept of a body.
func (r *Recorder) addBody(e *eventlog.Event, role logpb.Role, b *Content, text []byte) {
	p := &logpb.Payload{Role: role, MediaType: mediaType(b.MediaType)}
	switch {
	case len(b.Secret) == 0:
		text = append([]byte(nil), text...)
	case r.o.Key == nil || len(text) < len(b.Text):
		return // a part of a document cannot be searched for secrets
	default:
		p.MediaType, p.Class = "", &logpb.Class{Sensitive: true}
		text = r.o.Key.Body(text, b.Secret)
	}
	e.AddContent(p, text)
}

// mediaType returns the media type of a payload, which is empty for JSON.
func mediaType(t string) string {
	if t, _, _ = strings.Cut(t, ";"); t == "application/json" {
		return ""
	}
	return call.UTF8(t)
}

// actorOf returns the user of a call; nil if it is not known.
func actorOf(c *call.Call) *logpb.Actor {
	switch {
	case c.Requester == nil:
		return nil
	case c.User == nil:
		return (&call.Call{User: c.Requester, Requester: c.Requester}).Actor()
	}
	return c.Actor()
}

// sizeOf estimates the encoded size of an event.
func sizeOf(e *eventlog.Event) int64 {
	const fixed = 256 // numbers, hashes, salts
	m := e.Meta
	q, d, o, by := m.GetRequest(), m.GetDecision(), m.GetObject(), m.GetDecisions()
	n := fixed + len(q.GetUserAgent()) + len(q.GetUri()) + len(q.GetAuditId()) + len(q.GetFieldManager()) +
		len(d.GetReason()) + len(d.GetMessage()) + len(d.GetDetails()) + len(d.GetRule()) + len(d.GetSource()) + len(o.GetName()) + len(o.GetNamespace()) + len(o.GetResource()) + len(o.GetGroup()) +
		len(by.GetRule()) + len(by.GetSource())
	for _, w := range by.GetWarnings() {
		n += len(w)
	}
	for _, a := range by.GetAdmission() {
		n += len(a.GetMessage()) + len(a.GetRule()) + len(a.GetSource())
	}
	for a := m.GetActor(); a != nil; a = a.GetImpersonator() {
		n += len(a.GetUser()) + len(a.GetUid())
		for _, g := range a.GetGroups() {
			n += len(g)
		}
		for _, x := range a.GetExtra() {
			for _, v := range x.GetValues() {
				n += len(v) + len(x.GetKey())
			}
		}
	}
	for _, c := range e.Contents {
		n += len(c)
	}
	return int64(n)
}

// outcomeName returns the name of an outcome, as metrics and the API have it.
func outcomeName(o logpb.Outcome) string {
	name := strings.ToLower(strings.TrimPrefix(o.String(), "OUTCOME_"))
	return strings.ReplaceAll(name, "_", "-")
}
