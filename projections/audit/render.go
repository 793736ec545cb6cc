package audit

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// Annotations of an audit event, in addition to those of kube-apiserver.
const (
	// RevisionAnnotation is the revision of the write.
	RevisionAnnotation = "stele.dev/revision"
	// RuleAnnotation is the id of the policy rule that allowed the write, and SourceAnnotation the file
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
	// ProgramAnnotation is the checksum of the plugin that allowed the write.
	ProgramAnnotation = "stele.dev/program"

	reasonAnnotation   = "authorization.k8s.io/reason"
	decisionAnnotation = "authorization.k8s.io/decision"
)

// Render appends the audit lines of an event to b: a line of JSON for each revision that it takes. Events
// that no request caused have none. The result depends on the event alone.
func Render(b []byte, e *eventlog.Event) ([]byte, error) {
	if e.Meta.GetRequest() == nil {
		return b, nil
	}
	gone := e.Meta.GetBulk().GetObjects()
	for i := range e.Span() {
		object := e.Meta.GetObject()
		if i < uint64(len(gone)) {
			object = gone[i].GetObject()
		}
		line, err := json.Marshal(record(e, object, e.Revision+i))
		if err != nil {
			return b, fmt.Errorf("audit: render revision %d: %w", e.Revision, err)
		}
		b = append(append(b, line...), '\n')
	}
	return b, nil
}

func record(e *eventlog.Event, object *logpb.Object, revision uint64) *auditv1.Event {
	m := e.Meta
	r, d := m.GetRequest(), m.GetDecisions()
	event := &auditv1.Event{
		TypeMeta:                 metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:                    auditv1.LevelMetadata,
		AuditID:                  types.UID(r.GetAuditId()),
		Stage:                    auditv1.StageResponseComplete,
		RequestURI:               r.GetUri(),
		Verb:                     r.GetVerb(),
		User:                     user(m.GetActor()),
		SourceIPs:                r.GetSourceIps(),
		UserAgent:                r.GetUserAgent(),
		ResponseStatus:           &metav1.Status{Code: int32(r.GetStatus())},
		RequestReceivedTimestamp: metav1.NewMicroTime(time.Unix(0, r.GetReceivedUnixNano()).UTC()),
		StageTimestamp:           metav1.NewMicroTime(e.Time),
		Annotations:              map[string]string{RevisionAnnotation: strconv.FormatUint(revision, 10)},
	}
	if by := m.GetActor().GetImpersonator(); by != nil {
		impersonated := event.User
		event.User, event.ImpersonatedUser = user(by), &impersonated
	}
	if object != nil {
		event.ObjectRef = &auditv1.ObjectReference{
			Resource: object.GetResource(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: types.UID(object.GetUid()),
			APIGroup: object.GetGroup(), APIVersion: RequestedVersion(r, object), ResourceVersion: strconv.FormatUint(revision, 10), Subresource: r.GetSubresource(),
		}
	}
	if digest := m.GetPolicyActivated().GetDigest(); digest != nil {
		event.ObjectRef = &auditv1.ObjectReference{APIGroup: "policy.stele.dev", APIVersion: "v1", Resource: "policies",
			Name: hex.EncodeToString(digest), ResourceVersion: strconv.FormatUint(revision, 10)}
	}
	annotate := func(key, value string) {
		if value != "" {
			event.Annotations[key] = value
		}
	}
	if d.GetAuthorizer() != "" {
		annotate(decisionAnnotation, "allow")
	}
	annotate(reasonAnnotation, d.GetReason())
	annotate(RuleAnnotation, d.GetRule())
	annotate(ProgramAnnotation, d.GetProgram())
	annotate(SourceAnnotation, d.GetSource())
	annotate(CreateRuleAnnotation, d.GetCreateRule())
	annotate(CreateSourceAnnotation, d.GetCreateSource())
	annotate(PolicyAnnotation, hex.EncodeToString(m.GetPolicyDigest()))
	annotate(FailureAnnotation, failures(d.GetAdmission()))
	return event
}

// RequestedVersion returns the API version in a request's path; without one, the version in which the
// object was stored.
func RequestedVersion(r *logpb.Request, object *logpb.Object) string {
	group := object.GetGroup()
	path, _, _ := strings.Cut(r.GetUri(), "?")
	if rest, ok := strings.CutPrefix(path, "/apis/"+group+"/"); ok && group != "" {
		version, _, _ := strings.Cut(rest, "/")
		return version
	}
	return object.GetVersion()
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

func user(a *logpb.Actor) authenticationv1.UserInfo {
	u := authenticationv1.UserInfo{Username: a.GetUser(), UID: a.GetUid(), Groups: a.GetGroups()}
	for _, x := range a.GetExtra() {
		if u.Extra == nil {
			u.Extra = map[string]authenticationv1.ExtraValue{}
		}
		u.Extra[x.GetKey()] = x.GetValues()
	}
	return u
}
