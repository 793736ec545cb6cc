package decisionsapi

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/resources/changes"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/audit"
	"stele.dev/stele/projections/history"
)

// Types of decisions.
const (
	TypeWrite    = "Write"
	TypeDecision = "Decision"
	TypeCounted  = "Counted"
	TypeLost     = "Lost"
)

// written is the outcome of a write.
const written = "Written"

// record is a write or an event of the decision log, before it is described. Its fields are those that selections compare.
type record struct {
	time     time.Time // the log's, which never goes back: records are merged by it
	write    *history.Change
	event    *eventlog.Event // of the decision log; nil for a write
	meta     *logpb.Metadata
	object   *logpb.Object
	decision *logpb.Decision // of a decision, or what counted decisions have in common
	typ      string
}

func ofWrite(c *history.Change) *record {
	return &record{time: c.Time, write: c, meta: c.Meta, object: c.Object, typ: TypeWrite}
}

// ofEvent returns the record of an event of the decision log; nil if it is about the log itself.
func ofEvent(e *eventlog.Event) *record {
	r := &record{time: e.Time, event: e, meta: e.Meta, object: e.Meta.GetObject()}
	switch e.Meta.GetType() {
	case logpb.Type_TYPE_DECISION:
		r.typ, r.decision = TypeDecision, e.Meta.GetDecision()
	case logpb.Type_TYPE_DECISIONS_COUNTED:
		r.typ, r.decision = TypeCounted, e.Meta.GetDecisionsCounted().GetLike()
	case logpb.Type_TYPE_DECISIONS_LOST:
		r.typ = TypeLost
	default:
		return nil
	}
	return r
}

// as returns the record with other metadata.
func (r *record) as(m *logpb.Metadata) *record {
	shown := *r
	shown.meta = m
	if r.decision != nil {
		if shown.decision = m.GetDecision(); r.typ == TypeCounted {
			shown.decision = m.GetDecisionsCounted().GetLike()
		}
	}
	if r.write != nil {
		write := *r.write
		write.Meta = m
		shown.write = &write
	}
	return &shown
}

// name returns the name of a decision: its audit ID, or its position if it has none.
func (r *record) name() string {
	id := r.meta.GetRequest().GetAuditId()
	switch {
	case r.typ == TypeWrite && id == "":
		return "write-" + strconv.FormatUint(r.write.Revision, 10)
	case r.typ == TypeCounted || r.typ == TypeLost || id == "":
		return strings.ToLower(r.typ) + "-" + strconv.FormatUint(r.event.Revision, 10)
	}
	return id
}

func (r *record) outcome() string {
	if r.write != nil {
		return written
	}
	return Outcome(r.decision.GetOutcome())
}

// Outcome returns the name of an outcome; empty if it is not specified.
func Outcome(o logpb.Outcome) string {
	if o == logpb.Outcome_OUTCOME_UNSPECIFIED {
		return ""
	}
	return camel(strings.TrimPrefix(o.String(), "OUTCOME_"))
}

// Outcomes returns the names of all outcomes, in the order of the log's format.
func Outcomes() []string {
	names := []string{written}
	for i := range len(logpb.Outcome_name) {
		if name := Outcome(logpb.Outcome(i)); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// camel converts DRY_RUN to DryRun.
func camel(text string) string {
	var name strings.Builder
	for part := range strings.SplitSeq(text, "_") {
		name.WriteString(part[:1] + strings.ToLower(part[1:]))
	}
	return name.String()
}

// rule returns the rule that decided, and its source.
func (r *record) rule() (rule, source string) {
	if rule, source = r.decision.GetRule(), r.decision.GetSource(); rule != "" {
		return rule, source
	}
	if r.outcome() == Outcome(logpb.Outcome_OUTCOME_REFUSED) {
		return "", source // the rule that granted the request did not refuse it
	}
	d := r.meta.GetDecisions()
	return d.GetRule(), d.GetSource()
}

// namespace returns the namespace of the object. A namespace is in itself, as in the attributes of a request.
func (r *record) namespace() string {
	o := r.object
	if n := o.GetNamespace(); n != "" || o.GetGroup() != commit.Namespaces.Group || o.GetResource() != commit.Namespaces.Resource {
		return n
	}
	return o.GetName()
}

func (r *record) code() int { return int(r.meta.GetRequest().GetStatus()) }

// describe returns the decision without what its reader must be allowed to see.
func (r *record) describe() *Decision {
	d := &Decision{
		TypeMeta: metav1.TypeMeta{Kind: Kind, APIVersion: Group + "/" + Version}, Type: r.typ, Outcome: r.outcome(),
		Time: stamp(r.time), Policy: hex.EncodeToString(r.meta.GetPolicyDigest()), Code: r.code(),
	}
	d.Name, d.ObjectMeta.Namespace, d.CreationTimestamp = r.name(), r.namespace(), metav1.NewTime(r.time.Truncate(time.Second))
	d.Rule, d.Source = r.rule()
	if x := r.decision; x != nil {
		d.Stage, d.Reason, d.Message, d.Revision, d.BodyCut = x.GetStage(), x.GetReason(), x.GetMessage(), x.GetRevision(), x.GetBodyCut()
		d.FlowSchema, d.PriorityLevel = x.GetFlowSchema(), x.GetPriorityLevel()
		if at := x.GetRecordedUnixNano(); at != 0 {
			d.Time = stamp(time.Unix(0, at))
		}
	}
	if r.write != nil {
		d.Written, d.Stage = r.write.Revision, "commit"
		c := changes.From(r.write)
		d.Decided, d.Object = c.Decision, c.Object
		if d.Policy == "" {
			d.Policy = c.Policy
		}
	} else {
		d.Record = r.event.Revision
		d.Decided, d.Object = changes.Allowed(r.meta.GetDecisions()), changes.About(r.object)
	}
	if a := r.meta.GetActor(); a != nil {
		d.Actor = &changes.Actor{User: a.GetUser(), Groups: a.GetGroups(), Impersonator: a.GetImpersonator().GetUser()}
	}
	if q := r.meta.GetRequest(); q != nil {
		d.Request = &Request{Verb: q.GetVerb(), URI: q.GetUri(), Subresource: q.GetSubresource(), AuditID: q.GetAuditId(), UserAgent: q.GetUserAgent(),
			SourceIPs: q.GetSourceIps(), FieldManager: q.GetFieldManager(), MediaType: q.GetMediaType()}
		if at := q.GetReceivedUnixNano(); at != 0 {
			d.Request.Received = stamp(time.Unix(0, at))
		}
		if d.Object != nil {
			d.Object.Version = audit.RequestedVersion(q, r.object)
		}
	}
	d.Audit = r.audit()
	r.count(d)
	return d
}

// count sets what only counted and lost decisions have.
func (r *record) count(d *Decision) {
	var from, to int64
	switch r.typ {
	case TypeCounted:
		c := r.meta.GetDecisionsCounted()
		d.Count, from, to = c.GetCount(), c.GetFirstUnixNano(), c.GetLastUnixNano()
	case TypeLost:
		l := r.meta.GetDecisionsLost()
		d.Count, d.Why, from, to = l.GetCount(), l.GetWhy(), l.GetFromUnixNano(), l.GetToUnixNano()
	default:
		return
	}
	if from != 0 {
		d.From = stamp(time.Unix(0, from))
	}
	if to != 0 {
		d.To = stamp(time.Unix(0, to))
	}
}

func (r *record) audit() *Audit {
	a := r.meta.GetDecisions().GetAudit()
	if a.GetLevel() == logpb.AuditLevel_AUDIT_LEVEL_UNSPECIFIED {
		return nil
	}
	x := &Audit{Level: level(a.GetLevel()), Rule: a.GetRule(), Source: a.GetSource(), Stage: stage(r.decision.GetAuditStage()), Timings: a.GetTimings()}
	for _, n := range a.GetAnnotations() {
		if x.Annotations == nil {
			x.Annotations = map[string]string{}
		}
		x.Annotations[n.GetKey()] = n.GetValue()
	}
	return x
}

func level(l logpb.AuditLevel) string { return camel(strings.TrimPrefix(l.String(), "AUDIT_LEVEL_")) }

func stage(s uint32) string {
	return map[uint32]string{1: "RequestReceived", 2: "ResponseStarted", 4: "ResponseComplete", 6: "ResponseComplete", 8: "Panic"}[s]
}

// bodies sets the bodies of a decision. The reader may see them.
func (r *record) bodies(d *Decision) {
	if r.event != nil {
		d.RequestBody, d.ResponseBody = body(r.event.Content(logpb.Role_ROLE_REQUEST)), body(r.event.Content(logpb.Role_ROLE_RESPONSE))
	} else if r.write != nil {
		d.RequestBody = body(r.write.Request)
	}
}

// body returns a body as JSON: as it is if it is JSON, else as a string.
func body(text []byte) json.RawMessage {
	if len(text) == 0 || json.Valid(text) {
		return text
	}
	if !utf8.Valid(text) {
		text = []byte(strings.ToValidUTF8(string(text), "�"))
	}
	quoted, err := json.Marshal(string(text))
	if err != nil {
		return nil
	}
	return quoted
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
