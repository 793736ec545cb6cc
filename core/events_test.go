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

// What is written through one group is there in the other, with its names.
func TestEventsHaveTwoFaces(t *testing.T) {
	p := planetest.NewPlane(t)
	inCore, inEvents := p.Watch(t, planetest.CoreEvents+"?watch=true"), p.Watch(t, planetest.NewEvents+"?watch=true")
	without := func(o map[string]any) map[string]any {
		delete(o, "metadata")
		return o
	}
	p.Must(t, 201, "POST", planetest.CoreEvents, planetest.OldStyle)
	want := map[string]any{
		"apiVersion": "events.k8s.io/v1", "kind": "Event",
		"regarding": map[string]any{"kind": "Widget", "name": "w", "namespace": "default"},
		"reason":    "Sized", "note": "it has a size", "type": "Normal",
		"deprecatedSource":         map[string]any{"component": "sizer", "host": "h"},
		"deprecatedFirstTimestamp": "2026-01-02T03:04:05Z", "deprecatedLastTimestamp": "2026-01-02T03:04:06Z", "deprecatedCount": float64(2),
		"eventTime": nil,
	}
	if diff := cmp.Diff(want, without(p.Must(t, 200, "GET", planetest.NewEvents+"/old", "").Object())); diff != "" {
		t.Errorf("an old event (-want +got):\n%s", diff)
	}
	created := p.Must(t, 201, "POST", planetest.NewEvents, planetest.NewStyle)
	if created.Field("apiVersion") != "events.k8s.io/v1" || created.Field("note") != "it has a size" {
		t.Errorf("created %s", created)
	}
	want = map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"involvedObject": map[string]any{"kind": "Widget", "name": "w", "namespace": "default"},
		"reason":         "Sized", "message": "it has a size", "type": "Normal", "source": map[string]any{},
		"eventTime": "2026-01-02T03:04:05.000006Z", "action": "Size", "reportingComponent": "example.com/sizer", "reportingInstance": "sizer-1",
		"firstTimestamp": nil, "lastTimestamp": nil,
	}
	if diff := cmp.Diff(want, without(p.Must(t, 200, "GET", planetest.CoreEvents+"/new", "").Object())); diff != "" {
		t.Errorf("a new event (-want +got):\n%s", diff)
	}
	for path, field := range map[string]string{planetest.CoreEvents: "message", planetest.NewEvents: "note"} {
		list := p.Must(t, 200, "GET", path, "")
		for _, item := range list.Field("items").([]any) {
			if item.(map[string]any)[field] != "it has a size" {
				t.Errorf("GET %s: %v", path, item)
			}
		}
		if got := list.Names(); !slices.Equal(got, []string{"new", "old"}) {
			t.Errorf("GET %s: %v", path, got)
		}
	}
	for range 2 {
		if e := inCore.Next(t); e.Type != "ADDED" || e.Object["apiVersion"] != "v1" || e.Object["message"] != "it has a size" {
			t.Errorf("core/v1 watches %v", e)
		}
		if e := inEvents.Next(t); e.Type != "ADDED" || e.Object["apiVersion"] != "events.k8s.io/v1" || e.Object["note"] != "it has a size" {
			t.Errorf("events.k8s.io/v1 watches %v", e)
		}
	}
	// The log knows one kind of event.
	batches, err := p.Log.Back(t.Context(), p.Committer.Tip().Revision(), 1)
	if err != nil {
		t.Fatal(err)
	}
	e := batches[0].Events[0]
	if o := e.Meta.GetObject(); o.GetGroup() != "" || o.GetVersion() != "v1" || !strings.HasPrefix(string(e.Content(logpb.Role_ROLE_OBJECT)), `{"apiVersion":"v1","kind":"Event"`) {
		t.Errorf("the log has %v: %s", o, e.Content(logpb.Role_ROLE_OBJECT))
	}
	p.Must(t, 200, "DELETE", planetest.NewEvents+"/old", "")
	p.Must(t, 404, "GET", planetest.CoreEvents+"/old", "").Refuses(t, 404, `events \"old\" not found`)
	if e := inEvents.Next(t); e.Type != "DELETED" || e.Object["note"] != "it has a size" {
		t.Errorf("events.k8s.io/v1 watches %v", e)
	}
}

// Each group has its rules, and its fields.
func TestEventsAreHeldToTheRulesOfTheirGroup(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.CoreEvents, planetest.OldStyle)
	asNew := strings.NewReplacer(`"v1"`, `"events.k8s.io/v1"`, "involvedObject", "regarding", "message", "note", "source", "deprecatedSource",
		"firstT", "deprecatedFirstT", "lastT", "deprecatedLastT", "count", "deprecatedCount").Replace(planetest.OldStyle)
	p.Do("POST", planetest.NewEvents, asNew).Refuses(t, 422, `Event \"old\" is invalid`, "eventTime: Required value", "count: Invalid value: \\\"\\\": needs to be unset")
	p.Do("POST", planetest.NewEvents+"?fieldValidation=Strict", strings.Replace(planetest.NewStyle, `"note"`, `"message"`, 1)).Refuses(t, 400, `unknown field \"message\"`)
	p.Do("POST", planetest.NewEvents, strings.Replace(planetest.NewStyle, `"it has a size"`, `7`, 1)).Refuses(t, 400, "Go struct field Event.note of type string")
	p.Do("POST", planetest.NewEvents, planetest.OldStyle).Refuses(t, 400, "the API version in the data (v1) does not match the expected API version (events.k8s.io/v1)")
	p.Must(t, 201, "POST", planetest.NewEvents, planetest.NewStyle)
	changed := strings.Replace(planetest.NewStyle, "it has a size", "it has none", 1)
	p.Do("PUT", planetest.NewEvents+"/new", changed).Refuses(t, 422, "message: Invalid value: \\\"it has none\\\": field is immutable")
	patch := []string{"Content-Type", "application/merge-patch+json"}
	p.Must(t, 200, "PATCH", planetest.CoreEvents+"/new", `{"message":"it has none"}`, patch...)
	if got := p.Must(t, 200, "GET", planetest.NewEvents+"/new", "").Field("note"); got != "it has none" {
		t.Errorf("note is %q", got)
	}
	// A patch that changes nothing is no write.
	before := p.Committer.Tip().Revision()
	p.Must(t, 200, "PATCH", planetest.NewEvents+"/new", `{"note":"it has none"}`, patch...)
	p.Must(t, 200, "PUT", planetest.NewEvents+"/new", changed)
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("revision %d after %d", after, before)
	}
}

func TestEventsAreSelectedByTheFieldsOfTheirGroup(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.CoreEvents, planetest.OldStyle)
	p.Must(t, 201, "POST", planetest.NewEvents, planetest.NewStyle)
	for _, tc := range []struct {
		path, selector string
		want           []string
	}{
		{planetest.NewEvents, "regarding.name=w,reportingController=example.com/sizer", []string{"new"}},
		{planetest.NewEvents, "regarding.kind=Widget,metadata.name=old", []string{"old"}},
		{planetest.NewEvents, "reason!=Sized", nil},
		{planetest.CoreEvents, "reportingComponent=example.com/sizer", []string{"new"}},
		{planetest.CoreEvents, "source=example.com/sizer", []string{"new"}},
		{planetest.CoreEvents, "source=sizer", []string{"old"}},
	} {
		if got := p.Must(t, 200, "GET", tc.path+"?fieldSelector="+tc.selector, "").Names(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v", tc.selector, got)
		}
	}
	w := p.Watch(t, planetest.NewEvents+"?watch=true&fieldSelector=reportingController=example.com/sizer")
	if e := w.Next(t); !strings.HasPrefix(e.String(), "ADDED new@") {
		t.Errorf("watch: %v", e)
	}
	for path, selector := range map[string]string{planetest.NewEvents: "involvedObject.name=w", planetest.CoreEvents: "regarding.name=w", planetest.NewEvents + "?": "source=sizer"} {
		p.Do("GET", strings.TrimSuffix(path, "?")+"?fieldSelector="+selector, "").Refuses(t, 400, "field label not supported")
	}
}

// Both groups have upstream's columns: the last time is that of the series, or the time at
// which the event was observed.
func TestTablesOfEvents(t *testing.T) {
	p := planetest.NewPlane(t)
	const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(metav1.RFC3339Micro) }
	p.Must(t, 201, "POST", planetest.CoreEvents, strings.NewReplacer("2026-01-02T03:04:05Z", ago(time.Hour), "2026-01-02T03:04:06Z", ago(30*time.Minute)).Replace(planetest.OldStyle))
	p.Must(t, 201, "POST", planetest.NewEvents, strings.Replace(planetest.NewStyle, "2026-01-02T03:04:05.000006Z", ago(3*time.Hour), 1))
	p.Must(t, 201, "POST", planetest.NewEvents, strings.NewReplacer("2026-01-02T03:04:05.000006Z", ago(3*time.Hour), `"new"`, `"series"`,
		`"action"`, `"series":{"count":7,"lastObservedTime":"`+ago(2*time.Hour)+`"},"action"`).Replace(planetest.NewStyle))
	for _, path := range []string{planetest.CoreEvents, planetest.NewEvents} {
		table := p.Must(t, 200, "GET", path, "", "Accept", asTable)
		var columns []string
		for _, c := range table.Field("columnDefinitions").([]any) {
			columns = append(columns, c.(map[string]any)["name"].(string))
		}
		if got := strings.Join(columns, ","); got != "Last Seen,Type,Reason,Object,Subobject,Source,Message,First Seen,Count,Name" {
			t.Errorf("%s: columns %s", path, got)
		}
		var rows [][]any
		for _, r := range table.Field("rows").([]any) {
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
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, strings.Replace(planetest.Bundle, "bindings: editors:", `clusterRoles: recorders: rules: r: {apiGroups: ["events.k8s.io"], resources: ["events"], verbs: ["create"]}
			bindings: recorders: {clusterRole: "recorders", subjects: [{user: "nobody"}], namespaces: ["*"]}
			bindings: editors:`, 1))
	nobody := []string{"Authorization", "Bearer nobody-token"}
	p.Must(t, 201, "POST", planetest.NewEvents, planetest.NewStyle, nobody...)
	p.Do("POST", planetest.CoreEvents, planetest.OldStyle, nobody...).Refuses(t, 403, `cannot create resource \"events\" in API group \"\"`)
	p.Do("GET", planetest.NewEvents, "", nobody...).Refuses(t, 403, `cannot list resource \"events\" in API group \"events.k8s.io\"`)
}

// A rule of admission is about the events of both groups, whichever it names, and sees
// them as the one that it names has them.
func TestAdmissionRulesAreAboutBothGroupsOfEvents(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, strings.Replace(planetest.Bundle, "		rbac: {", `		admission: validate: message: {
			match: {apiGroups: [""], resources: ["events"]}
			validations: v: {expression: "object.message != 'secret' && (oldObject == null || oldObject.message != 'closed')", messageExpression: "request.requestKind.group + ' as ' + request.kind.group"}
		}
		admission: validate: note: {
			match: {apiGroups: ["events.k8s.io"], resources: ["events"]}
			validations: v: {expression: "object.note != 'private'", messageExpression: "request.requestKind.group + ' as ' + request.kind.group"}
		}
		rbac: {`, 1))
	says := func(text, message string) string { return strings.Replace(text, "it has a size", message, 1) }
	p.Do("POST", planetest.NewEvents, says(planetest.NewStyle, "secret")).Refuses(t, 422, "t/validate/message/v", "events.k8s.io as ")
	p.Do("POST", planetest.NewEvents, says(planetest.NewStyle, "private")).Refuses(t, 422, "t/validate/note/v", "events.k8s.io as events.k8s.io")
	p.Do("POST", planetest.CoreEvents, says(planetest.OldStyle, "secret")).Refuses(t, 422, "t/validate/message/v", "denied the request: as\"")
	p.Do("POST", planetest.CoreEvents, says(planetest.OldStyle, "private")).Refuses(t, 422, "t/validate/note/v", " as events.k8s.io")
	p.Must(t, 201, "POST", planetest.NewEvents, says(planetest.NewStyle, "closed"))
	p.Do("PATCH", planetest.NewEvents+"/new", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", "application/merge-patch+json").Refuses(t, 422, "t/validate/message/v")
}

// client-go's broadcaster records an event, and patches it into a series when it comes again.
func TestTheBroadcasterOfClientGoMakesSeries(t *testing.T) {
	p := planetest.NewPlane(t)
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
	old := *planetest.Compile(t, planetest.Bundle).Form
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
	for _, text := range []string{planetest.OldStyle, planetest.NewStyle,
		`{"metadata":{"name":"a"},"regarding":{"namespace":"default"},"message":"x","note":null,"deprecatedCount":1.5}`,
		`{"metadata":{"name":"a"},"involvedObject":{},"series":{"count":3},"related":{"kind":""},"reportingInstance":"","note":"x","eventTime":"2026-01-02T03:04:05.000006+01:00"}`,
	} {
		f.Add(true, text)
		f.Add(false, text)
	}
	f.Fuzz(func(t *testing.T, inCore bool, body string) {
		p := planetest.NewPlane(t)
		path := planetest.NewEvents
		if inCore {
			path = planetest.CoreEvents
		}
		before := p.Committer.Tip().Revision()
		a := p.Do("POST", path, body)
		planetest.CheckAnswer(t, a)
		after := p.Committer.Tip().Revision()
		if a.Code >= 400 {
			if after != before {
				t.Fatalf("refused, and yet an event: %s", a)
			}
			return
		}
		name, _ := a.Field("metadata", "name").(string)
		for _, path := range []string{planetest.CoreEvents, planetest.NewEvents} {
			read := p.Must(t, 200, "GET", path+"/"+name, "")
			again := p.Must(t, 200, "PUT", path+"/"+name, string(read.Body))
			if string(again.Body) != string(read.Body) || p.Committer.Tip().Revision() != after {
				t.Fatalf("writing what was read changed it:\n%s\n%s", read.Body, again.Body)
			}
			for _, as := range []string{"Table", "PartialObjectMetadata"} {
				planetest.CheckAnswer(t, p.Do("GET", path+"/"+name, "", "Accept", "application/json;as="+as+";v=v1;g=meta.k8s.io"))
			}
		}
	})
}
