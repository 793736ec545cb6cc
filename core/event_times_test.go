package core_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// Times of events that are not set are null, as in Kubernetes: in objects, lists and watches, of both groups.
func TestTimesOfEventsThatAreNotSetAreNull(t *testing.T) {
	p := planetest.NewPlane(t)
	const path, other = "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events"
	from := p.Committer.Tip().Revision()
	created := p.Must(t, 201, "POST", path, `{"metadata":{"name":"a"},"involvedObject":{"kind":"Widget","namespace":"default","name":"w"},"reason":"Made","message":"\"eventTime\":null","firstTimestamp":"2026-01-02T03:04:05Z"}`)
	nulls := func(o map[string]any, fields ...string) {
		t.Helper()
		for _, f := range fields {
			if value, ok := o[f]; !ok || value != nil {
				t.Errorf("%s is %v (%v) in %v", f, value, ok, o)
			}
		}
	}
	core, faced := []string{"eventTime", "lastTimestamp"}, []string{"eventTime", "deprecatedLastTimestamp"}
	nulls(created.Object(), core...)
	got := p.Must(t, 200, "GET", path+"/a", "").Object()
	nulls(got, core...)
	if got["firstTimestamp"] != "2026-01-02T03:04:05Z" {
		t.Errorf("%v", got)
	}
	nulls(p.Must(t, 200, "GET", other+"/a", "").Object(), faced...)
	for list, fields := range map[string][]string{path: core, other: faced} {
		items := p.Must(t, 200, "GET", list, "").Field("items").([]any)
		nulls(items[0].(map[string]any), fields...)
		w := p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", list, from))
		nulls(w.Next(t).Object, fields...)
	}
	// They are not part of the object: nobody owns them, and sending them back writes nothing.
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if again := p.Must(t, 200, "PUT", path+"/a", string(text)); again.Field("metadata", "resourceVersion") != created.Field("metadata", "resourceVersion") {
		t.Errorf("%s", again)
	}
}
