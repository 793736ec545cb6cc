package core_test

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

const (
	coreEvents = "/api/v1/namespaces/default/events"
	newEvents  = "/apis/events.k8s.io/v1/namespaces/default/events"

	oldStyle = `{"apiVersion":"v1","kind":"Event","metadata":{"name":"old"},"involvedObject":{"kind":"Widget","name":"w","namespace":"default"},
		"reason":"Sized","message":"it has a size","source":{"component":"sizer","host":"h"},"firstTimestamp":"2026-01-02T03:04:05Z","lastTimestamp":"2026-01-02T03:04:06Z","count":2,"type":"Normal"}`
	newStyle = `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"new"},"regarding":{"kind":"Widget","name":"w","namespace":"default"},
		"reason":"Sized","note":"it has a size","eventTime":"2026-01-02T03:04:05.000006Z","action":"Size","reportingController":"example.com/sizer","reportingInstance":"sizer-1","type":"Normal"}`
)

// What is written through one group is there in the other, with its names.
func TestEventsHaveTwoFaces(t *testing.T) {
	p := newPlane(t)
	inCore, inEvents := p.watch(t, coreEvents+"?watch=true"), p.watch(t, newEvents+"?watch=true")
	without := func(o map[string]any) map[string]any {
		delete(o, "metadata")
		return o
	}
	p.must(t, 201, "POST", coreEvents, oldStyle)
	want := map[string]any{
		"apiVersion": "events.k8s.io/v1", "kind": "Event",
		"regarding": map[string]any{"kind": "Widget", "name": "w", "namespace": "default"},
		"reason":    "Sized", "note": "it has a size", "type": "Normal",
		"deprecatedSource":         map[string]any{"component": "sizer", "host": "h"},
		"deprecatedFirstTimestamp": "2026-01-02T03:04:05Z", "deprecatedLastTimestamp": "2026-01-02T03:04:06Z", "deprecatedCount": float64(2),
		"eventTime": nil,
	}
	if diff := cmp.Diff(want, without(p.must(t, 200, "GET", newEvents+"/old", "").object())); diff != "" {
		t.Errorf("an old event (-want +got):\n%s", diff)
	}
	created := p.must(t, 201, "POST", newEvents, newStyle)
	if created.field("apiVersion") != "events.k8s.io/v1" || created.field("note") != "it has a size" {
		t.Errorf("created %s", created)
	}
	want = map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"involvedObject": map[string]any{"kind": "Widget", "name": "w", "namespace": "default"},
		"reason":         "Sized", "message": "it has a size", "type": "Normal", "source": map[string]any{},
		"eventTime": "2026-01-02T03:04:05.000006Z", "action": "Size", "reportingComponent": "example.com/sizer", "reportingInstance": "sizer-1",
		"firstTimestamp": nil, "lastTimestamp": nil,
	}
	if diff := cmp.Diff(want, without(p.must(t, 200, "GET", coreEvents+"/new", "").object())); diff != "" {
		t.Errorf("a new event (-want +got):\n%s", diff)
	}
	for path, field := range map[string]string{coreEvents: "message", newEvents: "note"} {
		list := p.must(t, 200, "GET", path, "")
		for _, item := range list.field("items").([]any) {
			if item.(map[string]any)[field] != "it has a size" {
				t.Errorf("GET %s: %v", path, item)
			}
		}
		if got := list.names(); !slices.Equal(got, []string{"new", "old"}) {
			t.Errorf("GET %s: %v", path, got)
		}
	}
	for range 2 {
		if e := inCore.next(t); e.Type != "ADDED" || e.Object["apiVersion"] != "v1" || e.Object["message"] != "it has a size" {
			t.Errorf("core/v1 watches %v", e)
		}
		if e := inEvents.next(t); e.Type != "ADDED" || e.Object["apiVersion"] != "events.k8s.io/v1" || e.Object["note"] != "it has a size" {
			t.Errorf("events.k8s.io/v1 watches %v", e)
		}
	}
	// The log knows one kind of event.
	batches, err := p.log.Back(t.Context(), p.committer.Tip().Revision(), 1)
	if err != nil {
		t.Fatal(err)
	}
	e := batches[0].Events[0]
	if o := e.Meta.GetObject(); o.GetGroup() != "" || o.GetVersion() != "v1" || !strings.HasPrefix(string(e.Content(logpb.Role_ROLE_OBJECT)), `{"apiVersion":"v1","kind":"Event"`) {
		t.Errorf("the log has %v: %s", o, e.Content(logpb.Role_ROLE_OBJECT))
	}
	p.must(t, 200, "DELETE", newEvents+"/old", "")
	p.must(t, 404, "GET", coreEvents+"/old", "").refuses(t, 404, `events \"old\" not found`)
	if e := inEvents.next(t); e.Type != "DELETED" || e.Object["note"] != "it has a size" {
		t.Errorf("events.k8s.io/v1 watches %v", e)
	}
}

// Each group has its rules, and its fields.
func TestEventsAreHeldToTheRulesOfTheirGroup(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", coreEvents, oldStyle)
	asNew := strings.NewReplacer(`"v1"`, `"events.k8s.io/v1"`, "involvedObject", "regarding", "message", "note", "source", "deprecatedSource",
		"firstT", "deprecatedFirstT", "lastT", "deprecatedLastT", "count", "deprecatedCount").Replace(oldStyle)
	p.do("POST", newEvents, asNew).refuses(t, 422, `Event \"old\" is invalid`, "eventTime: Required value", "count: Invalid value: \\\"\\\": needs to be unset")
	p.do("POST", newEvents+"?fieldValidation=Strict", strings.Replace(newStyle, `"note"`, `"message"`, 1)).refuses(t, 400, `unknown field \"message\"`)
	p.do("POST", newEvents, strings.Replace(newStyle, `"it has a size"`, `7`, 1)).refuses(t, 400, "Go struct field Event.note of type string")
	p.do("POST", newEvents, oldStyle).refuses(t, 400, "the API version in the data (v1) does not match the expected API version (events.k8s.io/v1)")
	p.must(t, 201, "POST", newEvents, newStyle)
	changed := strings.Replace(newStyle, "it has a size", "it has none", 1)
	p.do("PUT", newEvents+"/new", changed).refuses(t, 422, "message: Invalid value: \\\"it has none\\\": field is immutable")
	patch := []string{"Content-Type", "application/merge-patch+json"}
	p.must(t, 200, "PATCH", coreEvents+"/new", `{"message":"it has none"}`, patch...)
	if got := p.must(t, 200, "GET", newEvents+"/new", "").field("note"); got != "it has none" {
		t.Errorf("note is %q", got)
	}
	// A patch that changes nothing is no write.
	before := p.committer.Tip().Revision()
	p.must(t, 200, "PATCH", newEvents+"/new", `{"note":"it has none"}`, patch...)
	p.must(t, 200, "PUT", newEvents+"/new", changed)
	if after := p.committer.Tip().Revision(); after != before {
		t.Errorf("revision %d after %d", after, before)
	}
}

func TestEventsAreSelectedByTheFieldsOfTheirGroup(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", coreEvents, oldStyle)
	p.must(t, 201, "POST", newEvents, newStyle)
	for _, tc := range []struct {
		path, selector string
		want           []string
	}{
		{newEvents, "regarding.name=w,reportingController=example.com/sizer", []string{"new"}},
		{newEvents, "regarding.kind=Widget,metadata.name=old", []string{"old"}},
		{newEvents, "reason!=Sized", nil},
		{coreEvents, "reportingComponent=example.com/sizer", []string{"new"}},
		{coreEvents, "source=example.com/sizer", []string{"new"}},
		{coreEvents, "source=sizer", []string{"old"}},
	} {
		if got := p.must(t, 200, "GET", tc.path+"?fieldSelector="+tc.selector, "").names(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v", tc.selector, got)
		}
	}
	w := p.watch(t, newEvents+"?watch=true&fieldSelector=reportingController=example.com/sizer")
	if e := w.next(t); !strings.HasPrefix(e.String(), "ADDED new@") {
		t.Errorf("watch: %v", e)
	}
	for path, selector := range map[string]string{newEvents: "involvedObject.name=w", coreEvents: "regarding.name=w", newEvents + "?": "source=sizer"} {
		p.do("GET", strings.TrimSuffix(path, "?")+"?fieldSelector="+selector, "").refuses(t, 400, "field label not supported")
	}
}

// Both groups have upstream's columns: the last time is that of the series, or the time at
// which the event was observed.
func TestTablesOfEvents(t *testing.T) {
	p := newPlane(t)
	const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(metav1.RFC3339Micro) }
	p.must(t, 201, "POST", coreEvents, strings.NewReplacer("2026-01-02T03:04:05Z", ago(time.Hour), "2026-01-02T03:04:06Z", ago(30*time.Minute)).Replace(oldStyle))
	p.must(t, 201, "POST", newEvents, strings.Replace(newStyle, "2026-01-02T03:04:05.000006Z", ago(3*time.Hour), 1))
	p.must(t, 201, "POST", newEvents, strings.NewReplacer("2026-01-02T03:04:05.000006Z", ago(3*time.Hour), `"new"`, `"series"`,
		`"action"`, `"series":{"count":7,"lastObservedTime":"`+ago(2*time.Hour)+`"},"action"`).Replace(newStyle))
	for _, path := range []string{coreEvents, newEvents} {
		table := p.must(t, 200, "GET", path, "", "Accept", asTable)
		var columns []string
		for _, c := range table.field("columnDefinitions").([]any) {
			columns = append(columns, c.(map[string]any)["name"].(string))
		}
		if got := strings.Join(columns, ","); got != "Last Seen,Type,Reason,Object,Subobject,Source,Message,First Seen,Count,Name" {
			t.Errorf("%s: columns %s", path, got)
		}
		var rows [][]any
		for _, r := range table.field("rows").([]any) {
			rows = append(rows, r.(map[string]any)["cells"].([]any))
		}
		if diff := cmp.Diff([][]any{
			{"3h", "Normal", "Sized", "widget/w", "", "example.com/sizer, sizer-1", "it has a size", "3h", 1., "new"},
			{"30m", "Normal", "Sized", "widget/w", "", "sizer, h", "it has a size", "60m", 2., "old"},
			{"120m", "Normal", "Sized", "widget/w", "", "example.com/sizer, sizer-1", "it has a size", "3h", 7., "series"},
		}, rows); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// Who may do something in one group may not do it in the other for that.
func TestEachGroupOfEventsIsAuthorizedByItself(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 0)
	p.bootstrap(t, strings.Replace(bundle, "bindings: editors:", `clusterRoles: recorders: rules: r: {apiGroups: ["events.k8s.io"], resources: ["events"], verbs: ["create"]}
			bindings: recorders: {clusterRole: "recorders", subjects: [{user: "nobody"}], namespaces: ["*"]}
			bindings: editors:`, 1))
	nobody := []string{"Authorization", "Bearer nobody-token"}
	p.must(t, 201, "POST", newEvents, newStyle, nobody...)
	p.do("POST", coreEvents, oldStyle, nobody...).refuses(t, 403, `cannot create resource \"events\" in API group \"\"`)
	p.do("GET", newEvents, "", nobody...).refuses(t, 403, `cannot list resource \"events\" in API group \"events.k8s.io\"`)
}

// A rule of admission is about the events of both groups, whichever it names, and sees
// them as the one that it names has them.
func TestAdmissionRulesAreAboutBothGroupsOfEvents(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 0)
	p.bootstrap(t, strings.Replace(bundle, "		rbac: {", `		admission: validate: message: {
			match: {apiGroups: [""], resources: ["events"]}
			validations: v: {expression: "object.message != 'secret' && (oldObject == null || oldObject.message != 'closed')", messageExpression: "request.requestKind.group + ' as ' + request.kind.group"}
		}
		admission: validate: note: {
			match: {apiGroups: ["events.k8s.io"], resources: ["events"]}
			validations: v: {expression: "object.note != 'private'", messageExpression: "request.requestKind.group + ' as ' + request.kind.group"}
		}
		rbac: {`, 1))
	says := func(text, message string) string { return strings.Replace(text, "it has a size", message, 1) }
	p.do("POST", newEvents, says(newStyle, "secret")).refuses(t, 422, "t/validate/message/v", "events.k8s.io as ")
	p.do("POST", newEvents, says(newStyle, "private")).refuses(t, 422, "t/validate/note/v", "events.k8s.io as events.k8s.io")
	p.do("POST", coreEvents, says(oldStyle, "secret")).refuses(t, 422, "t/validate/message/v", "denied the request: as\"")
	p.do("POST", coreEvents, says(oldStyle, "private")).refuses(t, 422, "t/validate/note/v", " as events.k8s.io")
	p.must(t, 201, "POST", newEvents, says(newStyle, "closed"))
	p.do("PATCH", newEvents+"/new", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", "application/merge-patch+json").refuses(t, 422, "t/validate/message/v")
}

// client-go's broadcaster records an event, and patches it into a series when it comes again.
func TestTheBroadcasterOfClientGoMakesSeries(t *testing.T) {
	p := newPlane(t)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, BearerToken: "admin-token", QPS: -1, ContentConfig: rest.ContentConfig{
			ContentType: contentType, AcceptContentTypes: runtime.ContentTypeJSON,
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		name := "of-" + contentType[len(contentType)-4:]
		w, err := client.EventsV1().Events("default").Watch(ctx, metav1.ListOptions{FieldSelector: "regarding.name=" + name})
		if err != nil {
			t.Fatal(err)
		}
		broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
		if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
			t.Fatal(err)
		}
		recorder := broadcaster.NewRecorder(clientgoscheme.Scheme, "example.com/sizer")
		about := &corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: "default", Name: name}
		recorder.Eventf(about, nil, corev1.EventTypeNormal, "Sized", "Size", "it has a size")
		first := (<-w.ResultChan()).Object.(*eventsv1.Event)
		if first.Series != nil || first.Note != "it has a size" || first.ReportingController != "example.com/sizer" {
			t.Errorf("recorded as %v", first)
		}
		recorder.Eventf(about, nil, corev1.EventTypeNormal, "Sized", "Size", "it has a size")
		second := (<-w.ResultChan()).Object.(*eventsv1.Event)
		if second.Name != first.Name || second.Series == nil || second.Series.Count != 2 {
			t.Errorf("patched to %v", second)
		}
		broadcaster.Shutdown()
		w.Stop()
	}
}

// A policy that was compiled before there was the other group is served without it.
func TestOldFormsHaveOneGroupOfEvents(t *testing.T) {
	old := *planetest.Compile(t, bundle).Form
	old.Kinds = slices.DeleteFunc(slices.Clone(old.Kinds), func(k schemas.Kind) bool { return k.Group == "events.k8s.io" })
	old.Probes = &policy.Probes{Access: old.Probes.Access, Objects: slices.DeleteFunc(slices.Clone(old.Probes.Objects), func(o policy.ObjectProbe) bool { return o.Resource == "events.events.k8s.io" })}
	text, _ := old.Encode()
	p, err := policy.New(text)
	if err != nil {
		t.Fatal(err)
	}
	gvr := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
	if p.Version(gvr) != nil {
		t.Errorf("%v is served", gvr)
	}
	if gvr.Group = ""; p.Version(gvr) == nil {
		t.Errorf("%v is not served", gvr)
	}
}

// Whatever is taken for an event in one group can be read in both, and written in both as
// it was read without a change.
func FuzzEvents(f *testing.F) {
	for _, text := range []string{oldStyle, newStyle,
		`{"metadata":{"name":"a"},"regarding":{"namespace":"default"},"message":"x","note":null,"deprecatedCount":1.5}`,
		`{"metadata":{"name":"a"},"involvedObject":{},"series":{"count":3},"related":{"kind":""},"reportingInstance":"","note":"x","eventTime":"2026-01-02T03:04:05.000006+01:00"}`,
	} {
		f.Add(true, text)
		f.Add(false, text)
	}
	f.Fuzz(func(t *testing.T, inCore bool, body string) {
		p := newPlane(t)
		path := newEvents
		if inCore {
			path = coreEvents
		}
		before := p.committer.Tip().Revision()
		a := p.do("POST", path, body)
		checkAnswer(t, a)
		after := p.committer.Tip().Revision()
		if a.code >= 400 {
			if after != before {
				t.Fatalf("refused, and yet an event: %s", a)
			}
			return
		}
		name, _ := a.field("metadata", "name").(string)
		for _, path := range []string{coreEvents, newEvents} {
			read := p.must(t, 200, "GET", path+"/"+name, "")
			again := p.must(t, 200, "PUT", path+"/"+name, string(read.body))
			if string(again.body) != string(read.body) || p.committer.Tip().Revision() != after {
				t.Fatalf("writing what was read changed it:\n%s\n%s", read.body, again.body)
			}
			for _, as := range []string{"Table", "PartialObjectMetadata"} {
				checkAnswer(t, p.do("GET", path+"/"+name, "", "Accept", "application/json;as="+as+";v=v1;g=meta.k8s.io"))
			}
		}
	})
}
