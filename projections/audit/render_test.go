package audit_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/audit"
	"stele.dev/stele/projections/audit/hashing"
)

var hashKey = hashing.New([]byte("a key for tests"))

// earlier returns the line of an event of an earlier version, as that version made it.
func earlier(t *testing.T, e *eventlog.Event) string {
	t.Helper()
	m := e.Meta
	r, d, o := m.GetRequest(), m.GetDecisions(), m.GetObject()
	user := func(a *logpb.Actor) authenticationv1.UserInfo {
		u := authenticationv1.UserInfo{Username: a.GetUser(), UID: a.GetUid(), Groups: a.GetGroups()}
		for _, x := range a.GetExtra() {
			if u.Extra == nil {
				u.Extra = map[string]authenticationv1.ExtraValue{}
			}
			u.Extra[x.GetKey()] = x.GetValues()
		}
		return u
	}
	event := &auditv1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "audit.k8s.io/v1"}, Level: auditv1.LevelMetadata, AuditID: types.UID(r.GetAuditId()),
		Stage: auditv1.StageResponseComplete, RequestURI: r.GetUri(), Verb: r.GetVerb(), User: user(m.GetActor()), SourceIPs: r.GetSourceIps(), UserAgent: r.GetUserAgent(),
		ResponseStatus: &metav1.Status{Code: int32(r.GetStatus())}, RequestReceivedTimestamp: metav1.NewMicroTime(time.Unix(0, r.GetReceivedUnixNano()).UTC()),
		StageTimestamp: metav1.NewMicroTime(e.Time), Annotations: map[string]string{audit.RevisionAnnotation: strconv.FormatUint(e.Revision, 10)},
	}
	if by := m.GetActor().GetImpersonator(); by != nil {
		impersonated := event.User
		event.User, event.ImpersonatedUser = user(by), &impersonated
	}
	if o != nil {
		event.ObjectRef = &auditv1.ObjectReference{Resource: o.GetResource(), Namespace: o.GetNamespace(), Name: o.GetName(), UID: types.UID(o.GetUid()),
			APIGroup: o.GetGroup(), APIVersion: audit.RequestedVersion(r, o), ResourceVersion: strconv.FormatUint(e.Revision, 10), Subresource: r.GetSubresource()}
	}
	if digest := m.GetPolicyActivated().GetDigest(); digest != nil {
		event.ObjectRef = &auditv1.ObjectReference{APIGroup: "policy.stele.dev", APIVersion: "v1", Resource: "policies", Name: hex.EncodeToString(digest), ResourceVersion: strconv.FormatUint(e.Revision, 10)}
	}
	allow, failure := "", ""
	if d.GetAuthorizer() != "" {
		allow = "allow"
	}
	if found := d.GetAdmission(); len(found) > 0 {
		type violation struct {
			Rule    string   `json:"rule"`
			Source  string   `json:"source,omitempty"`
			Message string   `json:"message"`
			Actions []string `json:"validationActions"`
		}
		var list []violation
		for _, f := range found {
			list = append(list, violation{f.GetRule(), f.GetSource(), f.GetMessage(), strings.Split(f.GetAction(), ",")})
		}
		text, _ := json.Marshal(list)
		failure = string(text)
	}
	for key, value := range map[string]string{
		"authorization.k8s.io/decision": allow, "authorization.k8s.io/reason": d.GetReason(), audit.RuleAnnotation: d.GetRule(), audit.ProgramAnnotation: d.GetProgram(),
		audit.SourceAnnotation: d.GetSource(), audit.CreateRuleAnnotation: d.GetCreateRule(), audit.CreateSourceAnnotation: d.GetCreateSource(),
		audit.PolicyAnnotation: hex.EncodeToString(m.GetPolicyDigest()), audit.FailureAnnotation: failure,
	} {
		if value != "" {
			event.Annotations[key] = value
		}
	}
	line, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	return string(line) + "\n"
}

// Lines of events that earlier versions wrote must not change by a byte: files of theirs are compared with the log.
func TestEventsOfEarlierVersionsHaveTheSameLines(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "", "a", "alice", "x<y>&z", "\"quoted\\\"", "tab\tnew\nline", "é", "\u2028", "\xff", "日本", "a b", "\x7f", "\x00"}
	text := func() string { return texts[r.IntN(len(texts))] + texts[r.IntN(len(texts))] }
	some := func() (list []string) {
		for range r.IntN(3) {
			list = append(list, text())
		}
		return list
	}
	actor := func() *logpb.Actor {
		a := &logpb.Actor{User: text(), Uid: text(), Groups: some()}
		for i := range r.IntN(3) {
			a.Extra = append(a.Extra, &logpb.Extra{Key: fmt.Sprint(9-i, text()), Values: some()})
		}
		return a
	}
	for range 5000 {
		m := &logpb.Metadata{
			Actor: actor(),
			Request: &logpb.Request{Verb: text(), Subresource: text(), AuditId: text(), UserAgent: text(), SourceIps: some(), Uri: "/apis/example.com/v1beta1/x" + text(),
				Status: uint32(r.IntN(3) * 100), ReceivedUnixNano: r.Int64N(4e18) - 1e18},
			Decisions: &logpb.Decisions{Authorizer: text(), Rule: text(), Source: text(), Reason: text(), Program: text(), CreateRule: text(), CreateSource: text()},
		}
		if r.IntN(2) == 0 {
			m.PolicyDigest = []byte{1, 0xab}
		}
		if r.IntN(3) > 0 {
			m.Object = &logpb.Object{Group: []string{"", "example.com"}[r.IntN(2)], Resource: text(), Namespace: text(), Name: text(), Uid: text(), Version: text()}
		}
		if r.IntN(3) == 0 {
			m.Actor.Impersonator = actor()
		}
		if r.IntN(3) == 0 {
			m.Detail = &logpb.Metadata_PolicyActivated{PolicyActivated: &logpb.PolicyActivated{Digest: []byte{7, 8}}}
		}
		for range r.IntN(3) {
			m.Decisions.Admission = append(m.Decisions.Admission, &logpb.Admission{Rule: text(), Source: text(), Message: text(), Action: text()})
		}
		e := &eventlog.Event{Revision: r.Uint64N(1 << 40), Meta: m}
		if r.IntN(10) > 0 {
			e.Time = time.Unix(r.Int64N(4e9), r.Int64N(1e9)).UTC()
		}
		if diff := cmp.Diff(earlier(t, e), string(audit.Render(nil, e, hashKey))); diff != "" {
			t.Fatalf("(-before +now):\n%s", diff)
		}
	}
}

// audited returns an update at a level, with bodies.
func audited(level logpb.AuditLevel, stages uint32) *eventlog.Event {
	e := write("id")
	e.Revision, e.Time = 9, time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
	e.Meta.Decisions.Audit = &logpb.Audit{Level: level, Stages: stages, Rule: "t/audit/a", Source: "b.cue:3", Timings: "decode=41"}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"managedFields":[{"manager":"m"}],"name":"a"},"spec":{"n":2}}`))
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_REQUEST}, []byte("{\"metadata\": {\"name\": \"a\", \"managedFields\": []},\n \"spec\": {\"n\": 2}}"))
	return e
}

// decided returns a refusal at a level, with a body.
func decided(level logpb.AuditLevel, stages uint32) *eventlog.Event {
	e := audited(level, stages)
	e.Meta.Type, e.Meta.Request.Status = logpb.Type_TYPE_DECISION, 403
	e.Meta.Payloads, e.Contents = e.Meta.Payloads[1:], e.Contents[1:]
	e.Meta.Detail = &logpb.Metadata_Decision{Decision: &logpb.Decision{Outcome: logpb.Outcome_OUTCOME_REFUSED, Stage: "validation", Reason: "Forbidden", Message: "no",
		Rule: "t/validate/x", Source: "v.cue:4", Revision: 8, AuditStage: 4, RecordedUnixNano: e.Time.UnixNano(), FlowSchema: "f", PriorityLevel: "p", BodyCut: true}}
	return e
}

// parse returns the events of lines.
func parse(t *testing.T, lines []byte) (events []auditv1.Event) {
	t.Helper()
	for line := range bytes.Lines(lines) {
		var e auditv1.Event
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		events = append(events, e)
	}
	return events
}

func TestLevelsSayWhatALineHas(t *testing.T) {
	const (
		none     = logpb.AuditLevel_AUDIT_LEVEL_NONE
		metadata = logpb.AuditLevel_AUDIT_LEVEL_METADATA
		request  = logpb.AuditLevel_AUDIT_LEVEL_REQUEST
		response = logpb.AuditLevel_AUDIT_LEVEL_REQUEST_RESPONSE
	)
	const sent, stored = `{"metadata":{"name":"a","managedFields":[]},"spec":{"n":2}}`, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"9","managedFields":[{"manager":"m"}],"name":"a"},"spec":{"n":2}}`
	const refusal = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"Forbidden","code":403}`
	for name, test := range map[string]struct {
		event                  *eventlog.Event
		lines                  int
		level                  auditv1.Level
		requestBody, replyBody string
	}{
		"a write at None":               {audited(none, 4), 0, "", "", ""},
		"a write at Metadata":           {audited(metadata, 4), 1, "Metadata", "", ""},
		"a write at Request":            {audited(request, 4), 1, "Request", sent, ""},
		"a write at RequestResponse":    {audited(response, 4), 1, "RequestResponse", sent, stored},
		"a refusal at None":             {decided(none, 4), 0, "", "", ""},
		"a refusal at Metadata":         {decided(metadata, 4), 1, "Metadata", "", ""},
		"a refusal at Request":          {decided(request, 4), 1, "Request", sent, ""},
		"a refusal at RequestResponse":  {decided(response, 4), 1, "RequestResponse", sent, refusal},
		"a stage that is not selected":  {audited(response, 1|2|8), 1, "RequestResponse", "", ""}, // RequestReceived
		"neither stage is selected":     {audited(response, 2|8), 0, "", "", ""},
		"a rule of an unspecified kind": {audited(0, 0), 1, "Metadata", "", ""},
	} {
		events := parse(t, audit.Render(nil, test.event, hashKey))
		if len(events) != test.lines {
			t.Fatalf("%s: %d lines", name, len(events))
		}
		for _, e := range events {
			got, reply := "", ""
			if e.RequestObject != nil {
				got = string(e.RequestObject.Raw)
			}
			if e.ResponseObject != nil {
				reply = string(e.ResponseObject.Raw)
			}
			if e.Level != test.level || got != test.requestBody || reply != test.replyBody {
				t.Errorf("%s: level %s, request %s, response %s", name, e.Level, got, reply)
			}
		}
	}
}

func TestManagedFieldsAreOmitted(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"an object":            {`{"metadata":{"managedFields":[{"a":1}],"name":"a"}}`, `{"metadata":{"name":"a"}}`},
		"at the end":           {`{"metadata":{"name":"a","managedFields":[{"a":1}]}}`, `{"metadata":{"name":"a"}}`},
		"alone":                {`{"metadata":{"managedFields":null}}`, `{"metadata":{}}`},
		"a list":               {`{"items":[{"metadata":{"managedFields":[],"name":"<a>"},"n":1.0}]}`, `{"items":[{"metadata":{"name":"<a>"},"n":1.0}]}`},
		"a table":              {`{"rows":[{"object":{"metadata":{"managedFields":[]}}}]}`, `{"rows":[{"object":{"metadata":{}}}]}`},
		"a field of that name": {`{"spec":{"managedFields":1}}`, `{"spec":{"managedFields":1}}`},
	} {
		e := audited(logpb.AuditLevel_AUDIT_LEVEL_REQUEST, 4)
		e.Meta.Decisions.Audit.OmitManagedFields = true
		e.Contents[1] = []byte(test.body)
		if got := string(parse(t, audit.Render(nil, e, hashKey))[0].RequestObject.Raw); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestLinesOfDecisions(t *testing.T) {
	got := parse(t, audit.Render(nil, decided(logpb.AuditLevel_AUDIT_LEVEL_METADATA, 1|4), hashKey))
	want := map[string]string{"authorization.k8s.io/decision": "allow", "stele.dev/audit-rule": "t/audit/a", "stele.dev/audit-source": "b.cue:3", "stele.dev/body-cut": "true",
		"stele.dev/decided-at": "8", "stele.dev/decision-revision": "9", "stele.dev/flow-schema": "f", "stele.dev/outcome": "refused", "stele.dev/policy": "ab", "stele.dev/priority-level": "p",
		"stele.dev/refusing-rule": "t/validate/x", "stele.dev/refusing-source": "v.cue:4", "stele.dev/rule": "t/bindings/b", "stele.dev/source": "b.cue:7", "stele.dev/stage": "validation", "stele.dev/timings": "decode=41"}
	if len(got) != 2 || got[0].Stage != "RequestReceived" || len(got[0].Annotations) != 1 || got[1].Stage != "ResponseComplete" {
		t.Fatalf("%v", got)
	}
	if diff := cmp.Diff(want, got[1].Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if s := got[1].ResponseStatus; s.Code != 403 || s.Message != "no" || s.Reason != "Forbidden" || s.Status != "Failure" {
		t.Errorf("status %v", s)
	}

	forbidden := decided(logpb.AuditLevel_AUDIT_LEVEL_METADATA, 4)
	forbidden.Meta.Decisions.Authorizer, forbidden.Meta.GetDecision().Stage = "", "authorization"
	if a := parse(t, audit.Render(nil, forbidden, hashKey))[0].Annotations; a["authorization.k8s.io/decision"] != "forbid" || a["authorization.k8s.io/reason"] != "no" {
		t.Errorf("%v", a)
	}

	// A watch has two records. What was known when the request arrived is shown with the second.
	started := decided(logpb.AuditLevel_AUDIT_LEVEL_METADATA, 1|2|4)
	started.Meta.GetDecision().AuditStage = 2
	if lines := parse(t, audit.Render(nil, started, hashKey)); len(lines) != 1 || lines[0].Stage != "ResponseStarted" {
		t.Errorf("%v", lines)
	}
	panicked := decided(logpb.AuditLevel_AUDIT_LEVEL_METADATA, 1|8)
	panicked.Meta.GetDecision().AuditStage = 8
	if lines := parse(t, audit.Render(nil, panicked, hashKey)); len(lines) != 2 || lines[1].Stage != "Panic" {
		t.Errorf("%v", lines)
	}

	counted := decided(logpb.AuditLevel_AUDIT_LEVEL_METADATA, 1|4)
	counted.Meta.Type = logpb.Type_TYPE_DECISIONS_COUNTED
	counted.Meta.Detail = &logpb.Metadata_DecisionsCounted{DecisionsCounted: &logpb.DecisionsCounted{Count: 31, FirstUnixNano: 5000, LastUnixNano: 9000, Like: counted.Meta.GetDecision()}}
	if lines := parse(t, audit.Render(nil, counted, hashKey)); len(lines) != 1 || lines[0].Annotations["stele.dev/count"] != "31" || lines[0].StageTimestamp.Nanosecond() != 9000 {
		t.Errorf("%v", lines)
	}

	lost := &eventlog.Event{Revision: 3, Meta: &logpb.Metadata{Type: logpb.Type_TYPE_DECISIONS_LOST, Detail: &logpb.Metadata_DecisionsLost{DecisionsLost: &logpb.DecisionsLost{FromUnixNano: 1000, ToUnixNano: 2000, Why: "the disk was full"}}}}
	if lines := parse(t, audit.Render(nil, lost, hashKey)); len(lines) != 1 || lines[0].Annotations["stele.dev/lost"] != "unknown" || lines[0].Annotations["stele.dev/lost-reason"] != "the disk was full" {
		t.Errorf("%v", lines)
	}
}

// No line has what is secret, whatever its level.
func TestLinesHaveHashesOfSecrets(t *testing.T) {
	secret := audited(logpb.AuditLevel_AUDIT_LEVEL_REQUEST_RESPONSE, 4)
	secret.Meta.Object = &logpb.Object{Resource: "secrets", Name: "s", Version: "v1", Kind: "Secret"}
	secret.Contents = [][]byte{[]byte(`{"apiVersion":"v1","data":{"a":"aHVudGVyMg=="},"kind":"Secret","metadata":{"name":"s"}}`), []byte("stringData:\n  a: hunter2\n")}
	marked := audited(logpb.AuditLevel_AUDIT_LEVEL_REQUEST_RESPONSE, 4)
	marked.Meta.Decisions.Audit.SecretFields = hashing.Fields{{"spec", "password"}}.Encode()
	marked.Contents = [][]byte{[]byte(`{"metadata":{"name":"s"},"spec":{"password":"hunter2"}}`), []byte(`{"spec":{"password":"hunter2"}}`)}
	unknown := audited(logpb.AuditLevel_AUDIT_LEVEL_REQUEST_RESPONSE, 4) // it is not recorded which fields are secret
	unknown.Contents = marked.Contents
	for _, p := range unknown.Meta.Payloads {
		p.Class = &logpb.Class{Sensitive: true}
	}
	token := decided(logpb.AuditLevel_AUDIT_LEVEL_REQUEST_RESPONSE, 4)
	token.Meta.Object, token.Meta.Request.Status = &logpb.Object{Resource: "serviceaccounts", Name: "s", Version: "v1"}, 201
	token.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_RESPONSE}, []byte(`{"status":{"token":"hunter2"}}`))
	for name, test := range map[string]struct {
		event  *eventlog.Event
		hashes int
	}{"a Secret": {secret, 2}, "a marked field": {marked, 2}, "unknown fields": {unknown, 0}, "a token": {token, 1}} {
		line := audit.Render(nil, test.event, hashKey)
		if bytes.Contains(line, []byte("hunter2")) || bytes.Contains(line, []byte("aHVud")) {
			t.Errorf("%s: the secret is in %s", name, line)
		}
		if n := strings.Count(string(line), hashKey.Hash([]byte("hunter2"))); n != test.hashes {
			t.Errorf("%s: %d hashes in %s", name, n, line)
		}
		parse(t, line)
	}
}

func BenchmarkRender(b *testing.B) {
	for name, e := range map[string]*eventlog.Event{
		"Metadata": audited(logpb.AuditLevel_AUDIT_LEVEL_METADATA, 4), "Request": audited(logpb.AuditLevel_AUDIT_LEVEL_REQUEST, 4),
		"RequestResponse": audited(logpb.AuditLevel_AUDIT_LEVEL_REQUEST_RESPONSE, 4), "refusal": decided(logpb.AuditLevel_AUDIT_LEVEL_METADATA, 4),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var lines []byte
			for b.Loop() {
				lines = audit.Render(lines[:0], e, hashKey)
			}
		})
	}
}
