package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	upstream "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/audit"
)

// collector is an audit backend of the API server that keeps the events.
type collector struct{ events []auditv1.Event }

func (c *collector) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		var v1 auditv1.Event
		if err := auditv1.Convert_audit_Event_To_v1_Event(e.DeepCopy(), &v1, nil); err != nil {
			panic(err)
		}
		c.events = append(c.events, v1)
	}
	return true
}

// exchange is a request, and how both sides record it.
type exchange struct {
	method, uri, body string
	attributes        request.RequestInfo
	// answer is what a handler of the API server does between the request and the answer.
	answer func(ctx context.Context, w http.ResponseWriter, r *http.Request)
	long   bool
	// event is what the log has of it.
	event func(e *eventlog.Event)
}

var (
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
	maps1  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

func init() {
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err)
	}
}

const (
	sentMap   = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","managedFields":[{"manager":"m"}]},"data":{"k":"v"}}`
	storedMap = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","uid":"u","managedFields":[{"manager":"m"}]},"data":{"k":"v"}}`
)

func decodeMap(text string) *corev1.ConfigMap {
	var m corev1.ConfigMap
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		panic(err)
	}
	return &m
}

// answerMap answers with the stored object at revision 9, as the API server does.
func answerMap(ctx context.Context, w http.ResponseWriter, code int) {
	m := decodeMap(storedMap)
	m.ResourceVersion = "9"
	upstream.LogResponseObject(ctx, m, corev1.SchemeGroupVersion, codecs)
	w.WriteHeader(code)
}

// details are those of a Status, as the log has them.
func details(s metav1.Status) string {
	text, err := json.Marshal(s.Details)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, codecs.WithoutConversion(), corev1.SchemeGroupVersion, w, r)
}

// exchanges are requests of every kind that leaves a record.
func exchanges() map[string]exchange {
	const path = "/api/v1/namespaces/ns/configmaps"
	resource := func(verb, name string) request.RequestInfo {
		return request.RequestInfo{IsResourceRequest: true, Verb: verb, APIPrefix: "api", APIVersion: "v1", Namespace: "ns", Resource: "configmaps", Name: name}
	}
	written := func(t logpb.Type, code uint32, body string) func(*eventlog.Event) {
		return func(e *eventlog.Event) {
			e.Meta.Type, e.Meta.Request.Status = t, code
			e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, []byte(storedMap))
			if body != "" {
				e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_REQUEST}, []byte(body))
			}
		}
	}
	decided := func(d *logpb.Decision, code uint32, body, answer string) func(*eventlog.Event) {
		return func(e *eventlog.Event) {
			e.Meta.Type, e.Meta.Request.Status = logpb.Type_TYPE_DECISION, code
			e.Meta.Object.Uid = ""
			d := proto.Clone(d).(*logpb.Decision)
			d.RecordedUnixNano = e.Time.UnixNano()
			e.Meta.Detail = &logpb.Metadata_Decision{Decision: d}
			if body != "" {
				e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_REQUEST}, []byte(body))
			}
			if answer != "" {
				e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_RESPONSE}, []byte(answer))
			}
		}
	}
	logObject := func(ctx context.Context, text string) {
		upstream.LogRequestObject(ctx, decodeMap(text), corev1.SchemeGroupVersion, maps1, "", codecs)
	}
	const patch = `{"data":{"k":"w"}}`
	const options = `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`
	deleted := &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: "a", Kind: "configmaps", UID: "u"}}
	deleted.Kind, deleted.APIVersion = "Status", "v1"
	return map[string]exchange{
		"create": {method: "POST", uri: path, body: sentMap, attributes: resource("create", ""), answer: func(ctx context.Context, w http.ResponseWriter, _ *http.Request) {
			logObject(ctx, sentMap)
			answerMap(ctx, w, 201)
		}, event: written(logpb.Type_TYPE_CREATED, 201, sentMap)},
		"update": {method: "PUT", uri: path + "/a?fieldManager=m", body: sentMap, attributes: resource("update", "a"), answer: func(ctx context.Context, w http.ResponseWriter, _ *http.Request) {
			logObject(ctx, sentMap)
			answerMap(ctx, w, 200)
		}, event: written(logpb.Type_TYPE_UPDATED, 200, sentMap)},
		"patch": {method: "PATCH", uri: path + "/a", body: patch, attributes: resource("patch", "a"), answer: func(ctx context.Context, w http.ResponseWriter, _ *http.Request) {
			upstream.LogRequestPatch(ctx, []byte(patch))
			answerMap(ctx, w, 200)
		}, event: written(logpb.Type_TYPE_UPDATED, 200, patch)},
		"delete": {method: "DELETE", uri: path + "/a", body: options, attributes: resource("delete", "a"), answer: func(ctx context.Context, w http.ResponseWriter, _ *http.Request) {
			policy := metav1.DeletePropagationBackground
			upstream.LogRequestObject(ctx, &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}, PropagationPolicy: &policy}, corev1.SchemeGroupVersion, maps1, "", codecs.WithoutConversion())
			upstream.LogResponseObject(ctx, deleted, corev1.SchemeGroupVersion, codecs.WithoutConversion())
			w.WriteHeader(200)
		}, event: written(logpb.Type_TYPE_DELETED, 200, options)},
		"get": {method: "GET", uri: path + "/a", attributes: resource("get", "a"), answer: func(ctx context.Context, w http.ResponseWriter, _ *http.Request) {
			answerMap(ctx, w, 200)
		}, event: decided(&logpb.Decision{Outcome: logpb.Outcome_OUTCOME_READ, Stage: "answer", AuditStage: 4}, 200, "", strings.Replace(storedMap, `"name":"a"`, `"name":"a","resourceVersion":"9"`, 1))},
		"a list": {method: "GET", uri: path, attributes: resource("list", ""), answer: func(ctx context.Context, w http.ResponseWriter, _ *http.Request) {
			list := &corev1.ConfigMapList{Items: []corev1.ConfigMap{*decodeMap(storedMap)}}
			list.Items[0].TypeMeta = metav1.TypeMeta{}
			upstream.LogResponseObject(ctx, list, corev1.SchemeGroupVersion, codecs)
			w.WriteHeader(200)
		}, event: decided(&logpb.Decision{Outcome: logpb.Outcome_OUTCOME_READ, AuditStage: 4}, 200, "",
			`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[`+strings.Replace(storedMap, `"kind":"ConfigMap","apiVersion":"v1",`, "", 1)+`]}`)},
		"a read that is forbidden": {method: "GET", uri: path + "/a", attributes: resource("get", "a"), answer: func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
			upstream.AddAuditAnnotations(ctx, "authorization.k8s.io/decision", "forbid", "authorization.k8s.io/reason", "no rule")
			refuse(w, r, apierrors.NewForbidden(maps1.GroupResource(), "a", nil))
		}, event: func(e *eventlog.Event) {
			s := apierrors.NewForbidden(maps1.GroupResource(), "a", nil).ErrStatus
			decided(&logpb.Decision{Outcome: logpb.Outcome_OUTCOME_REFUSED, Stage: "authorization", Reason: "Forbidden", Message: s.Message, Details: details(s), AuditStage: 4}, 403, "", "")(e)
			e.Meta.Decisions.Authorizer, e.Meta.Decisions.Reason = "", "no rule"
		}},
		"a conflict": {method: "PUT", uri: path + "/a", body: sentMap, attributes: resource("update", "a"), answer: func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
			logObject(ctx, sentMap)
			refuse(w, r, apierrors.NewConflict(maps1.GroupResource(), "a", nil))
		}, event: func(e *eventlog.Event) {
			s := apierrors.NewConflict(maps1.GroupResource(), "a", nil).ErrStatus
			decided(&logpb.Decision{Outcome: logpb.Outcome_OUTCOME_CONFLICT, Stage: "commit", Reason: "Conflict", Message: s.Message, Details: details(s), AuditStage: 4}, 409, sentMap, "")(e)
		}},
		"a path": {method: "GET", uri: "/metrics", attributes: request.RequestInfo{Verb: "get", Path: "/metrics"}, answer: func(_ context.Context, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
		}, event: func(e *eventlog.Event) {
			decided(&logpb.Decision{Outcome: logpb.Outcome_OUTCOME_READ, AuditStage: 4}, 200, "", "")(e)
			e.Meta.Object = nil
		}},
		"a watch": {method: "GET", uri: path + "?watch=1", attributes: resource("watch", ""), long: true, answer: func(_ context.Context, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
		}, event: decided(&logpb.Decision{Outcome: logpb.Outcome_OUTCOME_READ, AuditStage: 4}, 200, "", "")},
		"a watch that is refused": {method: "GET", uri: path + "?watch=1&fieldSelector=x%3D1", attributes: resource("watch", ""), long: true, answer: func(_ context.Context, w http.ResponseWriter, r *http.Request) {
			refuse(w, r, apierrors.NewBadRequest("field label not supported: x"))
		}, event: decided(&logpb.Decision{Outcome: logpb.Outcome_OUTCOME_REFUSED, Stage: "answer", Reason: "BadRequest", Message: "field label not supported: x", AuditStage: 6}, 400, "", "")},
		"a panic": {method: "GET", uri: path + "/a", attributes: resource("get", "a"), answer: func(context.Context, http.ResponseWriter, *http.Request) {
			panic("oops")
		}, event: decided(&logpb.Decision{Outcome: logpb.Outcome_OUTCOME_FAILED, Stage: "answer", Reason: "InternalError", Message: "APIServer panic'd: oops", AuditStage: 8}, 500, "", "")},
	}
}

// Requests are recorded like those of kube-apiserver: its own filters and functions make an event for every stage, and the
// log's record of the same request must have the same lines, but for the differences that allowed removes.
func TestLinesAreLikeThoseOfKubernetes(t *testing.T) {
	levels := []auditinternal.Level{auditinternal.LevelMetadata, auditinternal.LevelRequest, auditinternal.LevelRequestResponse}
	for name, x := range exchanges() {
		for i, level := range levels {
			for _, omit := range []bool{false, true} {
				theirs := recordUpstream(t, x, level, omit)
				ours := recordHere(t, x, logpb.AuditLevel_AUDIT_LEVEL_METADATA+logpb.AuditLevel(i), omit, theirs)
				if diff := cmp.Diff(allowed(t, theirs), allowed(t, ours)); diff != "" {
					t.Errorf("%s at %s, without managed fields %v (-kubernetes +ours):\n%s", name, level, omit, diff)
				}
			}
		}
	}
}

// A namespace is in itself for requests that name it in their path, and in none for others.
func TestNamespacesOfNamespaces(t *testing.T) {
	factory := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	for _, q := range [][2]string{
		{"POST", "/api/v1/namespaces"}, {"PUT", "/api/v1/namespaces/a"}, {"PATCH", "/api/v1/namespaces/a"}, {"DELETE", "/api/v1/namespaces/a"},
		{"PUT", "/api/v1/namespaces/a/status"}, {"PUT", "/api/v1/namespaces/a/finalize"}, {"DELETE", "/api/v1/namespaces"},
	} {
		info, err := factory.NewRequestInfo(httptest.NewRequest(q[0], q[1], nil))
		if err != nil {
			t.Fatal(err)
		}
		e := write("audit-1")
		e.Meta.Object = &logpb.Object{Resource: "namespaces", Name: "a", Uid: "u", Version: "v1", Kind: "Namespace"}
		e.Meta.Request.Verb, e.Meta.Request.Uri, e.Meta.Request.Subresource = info.Verb, q[1], info.Subresource
		e.Meta.Decisions = &logpb.Decisions{Audit: &logpb.Audit{Level: logpb.AuditLevel_AUDIT_LEVEL_METADATA, Stages: 15}}
		lines := parse(t, audit.Render(nil, e, hashKey))
		for _, line := range lines {
			if line.ObjectRef == nil || line.ObjectRef.Namespace != info.Namespace {
				t.Errorf("%s: %v, want the namespace %q", q, line.ObjectRef, info.Namespace)
			}
		}
		if len(lines) != 2 {
			t.Errorf("%s: %d lines", q, len(lines))
		}
	}
}

// recordUpstream sends the request through the API server's audit filter.
func recordUpstream(t *testing.T, x exchange, level auditinternal.Level, omit bool) []auditv1.Event {
	t.Helper()
	sink := &collector{}
	rules := policy.NewPolicyRuleEvaluator(&auditinternal.Policy{OmitManagedFields: omit, Rules: []auditinternal.PolicyRule{{Level: level}}})
	long := func(*http.Request, *request.RequestInfo) bool { return x.long }
	handler := filters.WithAudit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.answer(r.Context(), w, r)
	}), sink, rules, long)
	r := httptest.NewRequest(x.method, x.uri, strings.NewReader(x.body))
	r.RemoteAddr = "10.0.0.1:99"
	r.Header.Set("User-Agent", strings.Repeat("agent", 300))
	ctx := upstream.WithAuditContext(r.Context())
	upstream.WithAuditID(ctx, types.UID("audit-1"))
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: "alice", UID: "7", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}})
	info := x.attributes
	info.Path = r.URL.Path
	ctx = request.WithRequestInfo(ctx, &info)
	ctx = request.WithReceivedTimestamp(ctx, time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC))
	func() {
		defer func() { _ = recover() }()
		handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	}()
	return sink.events
}

// recordHere renders the log's record of the request, with the times of the API server's.
func recordHere(t *testing.T, x exchange, level logpb.AuditLevel, omit bool, theirs []auditv1.Event) (events []auditv1.Event) {
	t.Helper()
	last := theirs[len(theirs)-1]
	event := func() *eventlog.Event {
		e := write("audit-1")
		e.Revision, e.Time = 9, last.StageTimestamp.Time
		e.Meta.Object = &logpb.Object{Resource: "configmaps", Namespace: "ns", Name: "a", Uid: "u", Version: "v1", Kind: "ConfigMap"}
		if x.attributes.Verb == "list" || x.attributes.Verb == "watch" {
			e.Meta.Object.Name = ""
		}
		e.Meta.Request.Verb, e.Meta.Request.Uri, e.Meta.Request.Subresource, e.Meta.Request.UserAgent = x.attributes.Verb, x.uri, "", strings.Repeat("agent", 300)
		e.Meta.Decisions = &logpb.Decisions{Authorizer: "rbac", Audit: &logpb.Audit{Level: level, Stages: 15, OmitManagedFields: omit}}
		x.event(e)
		return e
	}
	if event().Meta.GetDecision().GetAuditStage() == 6 {
		theirs[1].StageTimestamp = last.StageTimestamp // both stages are one moment here
	}
	lines := audit.Render(nil, event(), hashKey)
	if x.long && event().Meta.GetDecision().GetAuditStage() == 4 { // the second record of the same request
		started := event()
		started.Meta.GetDecision().AuditStage, started.Meta.GetDecision().RecordedUnixNano = 2, theirs[1].StageTimestamp.UnixNano()
		received, complete, _ := bytes.Cut(lines, []byte("\n"))
		lines = slices.Concat(received, []byte("\n"), audit.Render(nil, started, hashKey), complete)
	}
	return parse(t, lines)
}

// allowed removes from events what may differ:
//   - annotations: ours have those of stele.dev, and those of the authorizer are only compared where the exchange sets them;
//   - objectRef of an answered write: ours has the uid and the resourceVersion of the object as it was stored, and the API
//     server's those that the client sent. So has the name of a create that the API server reads from the body;
//   - the bodies of objects: the order of fields, and fields that are null or empty.
func allowed(t *testing.T, events []auditv1.Event) (list []map[string]any) {
	t.Helper()
	for _, e := range events {
		maps.DeleteFunc(e.Annotations, func(key, value string) bool {
			return strings.HasPrefix(key, "stele.dev/") || key == "authorization.k8s.io/decision" && value == "allow"
		})
		if len(e.Annotations) == 0 {
			e.Annotations = nil
		}
		if e.ObjectRef != nil && e.Stage != auditv1.StageRequestReceived {
			e.ObjectRef.UID, e.ObjectRef.ResourceVersion, e.ObjectRef.Name = "", "", ""
		}
		e.Kind, e.APIVersion = "Event", "audit.k8s.io/v1"
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		list = append(list, withoutEmpty(fields).(map[string]any))
	}
	return list
}

// withoutEmpty removes fields that are null or empty.
func withoutEmpty(value any) any {
	if fields, ok := value.(map[string]any); ok {
		for name, v := range fields {
			v = withoutEmpty(v)
			if below, ok := v.(map[string]any); v == nil || ok && len(below) == 0 {
				delete(fields, name)
			}
		}
	}
	if list, ok := value.([]any); ok {
		for _, v := range list {
			withoutEmpty(v)
		}
	}
	return value
}
