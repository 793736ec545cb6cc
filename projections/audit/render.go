package audit

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/audit/hashing"
)

// Annotations of an audit event, in addition to those of kube-apiserver.
const (
	// RevisionAnnotation is the revision of the write.
	RevisionAnnotation = "stele.dev/revision"
	// RuleAnnotation is the id of the policy rule that allowed the request, and SourceAnnotation the file
	// and line of that rule.
	RuleAnnotation   = "stele.dev/rule"
	SourceAnnotation = "stele.dev/source"
	// CreateRuleAnnotation and CreateSourceAnnotation name the rule that allowed an update or a patch to
	// create the object.
	CreateRuleAnnotation   = "stele.dev/create-rule"
	CreateSourceAnnotation = "stele.dev/create-source"
	// PolicyAnnotation is the digest of the policy in force.
	PolicyAnnotation = "stele.dev/policy"
	// FailureAnnotation lists, as JSON, the violations of validating admission rules that did not
	// refuse the write, like Kubernetes' validation_failure.
	FailureAnnotation = "stele.dev/validation_failure"
	// MutationAnnotation lists, as JSON, what mutating admission changed: rules, lines and the paths of fields.
	MutationAnnotation = "stele.dev/mutations"
	// ProgramAnnotation is the checksum of the plugin that allowed the request.
	ProgramAnnotation = "stele.dev/program"
	// AuditRuleAnnotation is the id of the audit rule that selected the request, and AuditSourceAnnotation its file and
	// line.
	AuditRuleAnnotation   = "stele.dev/audit-rule"
	AuditSourceAnnotation = "stele.dev/audit-source"
	// TimingsAnnotation says how long the stages of the request took, in microseconds.
	TimingsAnnotation = "stele.dev/timings"

	reasonAnnotation   = "authorization.k8s.io/reason"
	decisionAnnotation = "authorization.k8s.io/decision"
)

// Annotations of what is in a log of decisions.
const (
	// DecisionAnnotation is the revision of the record in the log of decisions of its replica.
	DecisionAnnotation = "stele.dev/decision-revision"
	// OutcomeAnnotation is what became of the request: read, refused, unauthenticated, conflict, unchanged, dry-run, failed
	// or done. StageAnnotation is the stage of the pipeline that decided.
	OutcomeAnnotation = "stele.dev/outcome"
	StageAnnotation   = "stele.dev/stage"
	// StateAnnotation is the revision of the state on which the request was decided.
	StateAnnotation = "stele.dev/decided-at"
	// RefusingRuleAnnotation is the id of what refused the request: a deny, an admission rule, a flow schema or a schema.
	// RefusingSourceAnnotation is its file and line.
	RefusingRuleAnnotation   = "stele.dev/refusing-rule"
	RefusingSourceAnnotation = "stele.dev/refusing-source"
	// FlowAnnotation and PriorityAnnotation are the flow schema and the priority level of the request.
	FlowAnnotation     = "stele.dev/flow-schema"
	PriorityAnnotation = "stele.dev/priority-level"
	// CutAnnotation is true if the body was larger than what is kept of it.
	CutAnnotation = "stele.dev/body-cut"
	// CountAnnotation is how many requests a line stands for.
	CountAnnotation = "stele.dev/count"
	// LostAnnotation is how many records are missing, or "unknown". LostReasonAnnotation says why.
	LostAnnotation       = "stele.dev/lost"
	LostReasonAnnotation = "stele.dev/lost-reason"
)

// The stages of a request, as in [logpb.Audit].
const (
	requestReceived  = 1
	responseStarted  = 2
	responseComplete = 4
	panicked         = 8
)

func stageName(stage uint32) string {
	switch stage {
	case requestReceived:
		return "RequestReceived"
	case responseStarted:
		return "ResponseStarted"
	case panicked:
		return "Panic"
	}
	return "ResponseComplete"
}

func levelName(level logpb.AuditLevel) string {
	switch level {
	case logpb.AuditLevel_AUDIT_LEVEL_REQUEST:
		return "Request"
	case logpb.AuditLevel_AUDIT_LEVEL_REQUEST_RESPONSE:
		return "RequestResponse"
	}
	return "Metadata"
}

// Render appends the audit lines of an event to b. An event of the log of record has a line of JSON for each revision that
// it takes, and an event of a log of decisions has one, each for every stage that its audit rule selects; see
// [logpb.Audit]. Events that no request caused have none, except those that say that decisions are missing. Secrets are
// replaced by hashes. The result depends on the event and the key alone.
//
// An event without an audit rule, of an earlier version, has a line of the level Metadata for the stage ResponseComplete.
func Render(b []byte, e *eventlog.Event, key *hashing.Key) []byte {
	if lost := e.Meta.GetDecisionsLost(); lost != nil {
		return renderLost(b, e, lost)
	}
	audit := e.Meta.GetDecisions().GetAudit()
	if e.Meta.GetRequest() == nil || audit.GetLevel() == logpb.AuditLevel_AUDIT_LEVEL_NONE {
		return b
	}
	r := record{e: e, audit: audit, decision: e.Meta.GetDecision(), counted: e.Meta.GetDecisionsCounted(), key: key}
	if r.counted != nil {
		r.decision = r.counted.GetLike()
	}
	stage := uint32(responseComplete)
	if s := r.decision.GetAuditStage(); s != 0 {
		stage = s
	}
	both := stage == responseStarted|responseComplete // a watch that was refused
	if both {
		stage = responseComplete
	}
	stages := audit.GetStages()
	if audit == nil || stages == 0 {
		stages = responseComplete
	}
	gone := e.Meta.GetBulk().GetObjects()
	for i := range e.Span() {
		r.object, r.revision = e.Meta.GetObject(), e.Revision+i
		if i < uint64(len(gone)) {
			r.object = gone[i].GetObject()
		}
		if stage&(responseComplete|panicked) != 0 && stages&requestReceived != 0 && r.counted == nil {
			b = r.received(b)
		}
		if both && stages&responseStarted != 0 {
			b = r.complete(b, responseStarted)
		}
		if stages&stage != 0 || r.counted != nil {
			b = r.complete(b, stage)
		}
	}
	return b
}

// record is what the lines of one revision of an event are made from.
type record struct {
	e        *eventlog.Event
	audit    *logpb.Audit // nil for an event of an earlier version
	decision *logpb.Decision
	counted  *logpb.DecisionsCounted
	key      *hashing.Key
	object   *logpb.Object
	revision uint64
}

// isDecision reports whether the event is one of a log of decisions.
func (r *record) isDecision() bool { return r.decision != nil || r.counted != nil }

// head appends the fields up to the object.
func (r *record) head(b []byte, stage uint32) []byte {
	m := r.e.Meta
	q := m.GetRequest()
	b = append(b, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"`...)
	b = append(b, levelName(r.audit.GetLevel())...)
	b = append(b, `","auditID":`...)
	b = appendString(b, q.GetAuditId())
	b = append(b, `,"stage":"`...)
	b = append(b, stageName(stage)...)
	b = append(b, `","requestURI":`...)
	b = appendString(b, q.GetUri())
	b = append(b, `,"verb":`...)
	b = appendString(b, q.GetVerb())
	b = append(b, `,"user":`...)
	by := m.GetActor().GetImpersonator()
	if by == nil {
		b = appendUser(b, m.GetActor())
	} else {
		b = appendUser(b, by)
		if stage != requestReceived { // it is read from the headers later
			b = appendUser(append(b, `,"impersonatedUser":`...), m.GetActor())
		}
	}
	if ips := q.GetSourceIps(); len(ips) > 0 {
		b = appendStrings(append(b, `,"sourceIPs":`...), ips)
	}
	return appendField(b, "userAgent", r.userAgent())
}

// forbidden is the HTTP status of what the authorizers refuse.
const forbidden = 403

// maxUserAgent is how much of a user agent is shown, as by kube-apiserver.
const maxUserAgent = 1024

func (r *record) userAgent() string {
	agent := r.e.Meta.GetRequest().GetUserAgent()
	if r.audit != nil && len(agent) > maxUserAgent {
		return agent[:maxUserAgent] + "...TRUNCATED"
	}
	return agent
}

// received appends the line of the stage RequestReceived: what was known of the request when it arrived, and the revision of
// its record.
func (r *record) received(b []byte) []byte {
	q := r.e.Meta.GetRequest()
	b = r.head(b, requestReceived)
	if o := r.object; o != nil {
		name := o.GetName()
		if q.GetVerb() == "create" && q.GetSubresource() == "" { // it is in the body
			name = ""
		}
		b = append(b, `,"objectRef":{`...)
		b = appendField(b, "resource", o.GetResource())
		b = appendField(b, "namespace", r.namespace())
		b = appendField(b, "name", name)
		b = appendField(b, "apiGroup", o.GetGroup())
		b = appendField(b, "apiVersion", RequestedVersion(q, o))
		b = appendField(b, "subresource", q.GetSubresource())
		b = append(b, '}')
	}
	at := time.Unix(0, q.GetReceivedUnixNano())
	b = appendTime(append(b, `,"requestReceivedTimestamp":`...), at)
	b = appendTime(append(b, `,"stageTimestamp":`...), at)
	name := RevisionAnnotation
	if r.isDecision() {
		name = DecisionAnnotation
	}
	b = annotations{{name, strconv.FormatUint(r.revision, 10)}}.appendTo(append(b, `,"annotations":`...))
	return append(b, '}', '\n')
}

// complete appends the line of a later stage.
func (r *record) complete(b []byte, stage uint32) []byte {
	received, at := r.times()
	b = r.head(b, stage)
	b = r.objectRef(b)
	b = r.status(append(b, `,"responseStatus":`...), false)
	b = r.bodies(b, stage)
	b = appendTime(append(b, `,"requestReceivedTimestamp":`...), received)
	b = appendTime(append(b, `,"stageTimestamp":`...), at)
	b = append(b, `,"annotations":`...)
	var space [24]annotation
	b = r.annotations(space[:0]).appendTo(b)
	return append(b, '}', '\n')
}

// times returns when the request was received, and when the stage of the line was reached.
func (r *record) times() (received, at time.Time) {
	received, at = time.Unix(0, r.e.Meta.GetRequest().GetReceivedUnixNano()), r.e.Time
	if c := r.counted; c != nil {
		return time.Unix(0, c.GetFirstUnixNano()), time.Unix(0, c.GetLastUnixNano())
	}
	if recorded := r.decision.GetRecordedUnixNano(); recorded != 0 {
		at = time.Unix(0, recorded)
	}
	return received, at
}

// namespace returns the namespace of the request. A namespace is in itself for requests that name it in their path, as in Kubernetes;
// records of decisions have it so.
func (r *record) namespace() string {
	o := r.object
	if o.GetResource() == "namespaces" && o.GetGroup() == "" && !r.isDecision() {
		switch r.e.Meta.GetRequest().GetVerb() {
		case "update", "patch", "delete":
			return o.GetName()
		}
	}
	return o.GetNamespace()
}

func (r *record) objectRef(b []byte) []byte {
	q := r.e.Meta.GetRequest()
	if digest := r.e.Meta.GetPolicyActivated().GetDigest(); digest != nil {
		b = append(b, `,"objectRef":{"resource":"policies"`...)
		b = appendField(b, "name", hex.EncodeToString(digest))
		b = append(b, `,"apiGroup":"policy.stele.dev","apiVersion":"v1"`...)
		b = appendField(b, "resourceVersion", strconv.FormatUint(r.revision, 10))
		return append(b, '}')
	}
	o := r.object
	if o == nil {
		return b
	}
	b = append(b, `,"objectRef":{`...)
	b = appendField(b, "resource", o.GetResource())
	b = appendField(b, "namespace", r.namespace())
	b = appendField(b, "name", o.GetName())
	b = appendField(b, "uid", o.GetUid())
	b = appendField(b, "apiGroup", o.GetGroup())
	b = appendField(b, "apiVersion", RequestedVersion(q, o))
	if !r.isDecision() {
		b = append(appendName(b, "resourceVersion"), '"')
		b = append(strconv.AppendUint(b, r.revision, 10), '"')
	}
	b = appendField(b, "subresource", q.GetSubresource())
	return append(b, '}')
}

func (r *record) annotations(a annotations) annotations {
	m := r.e.Meta
	d := m.GetDecisions()
	if r.isDecision() {
		a = r.decisionAnnotations(a)
	} else {
		a.add(RevisionAnnotation, strconv.FormatUint(r.revision, 10))
		a.add(reasonAnnotation, d.GetReason())
	}
	if d.GetAuthorizer() != "" {
		a.add(decisionAnnotation, "allow") // unless it was refused
	}
	a.add(RuleAnnotation, d.GetRule())
	a.add(ProgramAnnotation, d.GetProgram())
	a.add(SourceAnnotation, d.GetSource())
	a.add(CreateRuleAnnotation, d.GetCreateRule())
	a.add(CreateSourceAnnotation, d.GetCreateSource())
	a.add(PolicyAnnotation, hex.EncodeToString(m.GetPolicyDigest()))
	a.add(FailureAnnotation, failures(d.GetAdmission()))
	a.add(MutationAnnotation, mutations(d.GetMutations()))
	if r.audit != nil {
		a.add(AuditRuleAnnotation, r.audit.GetRule())
		a.add(AuditSourceAnnotation, r.audit.GetSource())
		a.add(TimingsAnnotation, r.audit.GetTimings())
		for _, x := range r.audit.GetAnnotations() {
			a.add(x.GetKey(), x.GetValue())
		}
	}
	return a
}

// decisionAnnotations adds what is known of a request without an event in the log of record.
func (r *record) decisionAnnotations(a annotations) annotations {
	x := r.decision
	a.add(DecisionAnnotation, strconv.FormatUint(r.revision, 10))
	a.add(OutcomeAnnotation, outcomeName(x.GetOutcome()))
	a.add(StageAnnotation, x.GetStage())
	if x.GetRevision() > 0 {
		a.add(StateAnnotation, strconv.FormatUint(x.GetRevision(), 10))
	}
	a.add(RefusingRuleAnnotation, x.GetRule())
	a.add(RefusingSourceAnnotation, x.GetSource())
	a.add(FlowAnnotation, x.GetFlowSchema())
	a.add(PriorityAnnotation, x.GetPriorityLevel())
	if x.GetBodyCut() {
		a.add(CutAnnotation, "true")
	}
	if r.counted != nil {
		a.add(CountAnnotation, strconv.FormatUint(r.counted.GetCount(), 10))
	}
	reason := r.e.Meta.GetDecisions().GetReason()
	if x.GetStage() == "authorization" && r.e.Meta.GetRequest().GetStatus() == forbidden {
		a.add(decisionAnnotation, "forbid")
		if reason == "" {
			reason = x.GetMessage()
		}
	}
	a.add(reasonAnnotation, reason)
	return a
}

func outcomeName(o logpb.Outcome) string {
	if o == logpb.Outcome_OUTCOME_UNSPECIFIED {
		return ""
	}
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(o.String(), "OUTCOME_")), "_", "-")
}

// renderLost appends a line that says that records are missing.
func renderLost(b []byte, e *eventlog.Event, lost *logpb.DecisionsLost) []byte {
	count := "unknown"
	if n := lost.GetCount(); n > 0 {
		count = strconv.FormatUint(n, 10)
	}
	return appendGap(b, "lost-decisions-"+strconv.FormatUint(e.Revision, 10), time.Unix(0, lost.GetFromUnixNano()), time.Unix(0, lost.GetToUnixNano()), annotations{
		{DecisionAnnotation, strconv.FormatUint(e.Revision, 10)}, {LostAnnotation, count}, {LostReasonAnnotation, lost.GetWhy()},
	})
}

// appendGap appends a line of no request that says that lines are missing.
func appendGap(b []byte, id string, from, to time.Time, a annotations) []byte {
	b = append(b, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":`...)
	b = appendString(b, id)
	b = append(b, `,"stage":"ResponseComplete","requestURI":"","verb":"","user":{},"requestReceivedTimestamp":`...)
	b = appendTime(b, from)
	b = appendTime(append(b, `,"stageTimestamp":`...), to)
	return append(a.appendTo(append(b, `,"annotations":`...)), '}', '\n')
}

// RequestedVersion returns the API version in a request's path; without one, the version in which the
// object was stored.
func RequestedVersion(r *logpb.Request, object *logpb.Object) string {
	group := object.GetGroup()
	path, _, _ := strings.Cut(r.GetUri(), "?")
	if rest, ok := strings.CutPrefix(path, "/apis/"); ok && group != "" {
		if rest, ok = strings.CutPrefix(rest, group); ok && strings.HasPrefix(rest, "/") {
			version, _, _ := strings.Cut(rest[1:], "/")
			return version
		}
	}
	return object.GetVersion()
}

func mutations(made []*logpb.Mutation) string {
	if len(made) == 0 {
		return ""
	}
	type mutation struct {
		Rule      string   `json:"rule"`
		Source    string   `json:"source,omitempty"`
		Paths     []string `json:"paths"`
		Reinvoked bool     `json:"reinvoked,omitempty"`
	}
	list := make([]mutation, len(made))
	for i, m := range made {
		list[i] = mutation{m.GetRule(), m.GetSource(), m.GetPaths(), m.GetReinvoked()}
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings always encode
	}
	return string(text)
}

func failures(found []*logpb.Admission) string {
	if len(found) == 0 {
		return ""
	}
	type failure struct {
		Rule    string   `json:"rule"`
		Source  string   `json:"source,omitempty"`
		Message string   `json:"message"`
		Actions []string `json:"validationActions"`
	}
	list := make([]failure, len(found))
	for i, f := range found {
		list[i] = failure{f.GetRule(), f.GetSource(), f.GetMessage(), strings.Split(f.GetAction(), ",")}
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // it is plain data
	}
	return string(text)
}
