package core_test

import (
	"encoding/json"
	"fmt"
	"testing"
)

// Times of events that are not set are null, as in Kubernetes: in objects, lists and watches, of both groups.
func TestTimesOfEventsThatAreNotSetAreNull(t *testing.T) {
	p := newPlane(t)
	const path, other = "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events"
	from := p.committer.Tip().Revision()
	created := p.must(t, 201, "POST", path, `{"metadata":{"name":"a"},"involvedObject":{"kind":"Widget","namespace":"default","name":"w"},"reason":"Made","message":"\"eventTime\":null","firstTimestamp":"2026-01-02T03:04:05Z"}`)
	nulls := func(o map[string]any, fields ...string) {
		t.Helper()
		for _, f := range fields {
			if value, ok := o[f]; !ok || value != nil {
				t.Errorf("%s is %v (%v) in %v", f, value, ok, o)
			}
		}
	}
	core, faced := []string{"eventTime", "lastTimestamp"}, []string{"eventTime", "deprecatedLastTimestamp"}
	nulls(created.object(), core...)
	got := p.must(t, 200, "GET", path+"/a", "").object()
	nulls(got, core...)
	if got["firstTimestamp"] != "2026-01-02T03:04:05Z" {
		t.Errorf("%v", got)
	}
	nulls(p.must(t, 200, "GET", other+"/a", "").object(), faced...)
	for list, fields := range map[string][]string{path: core, other: faced} {
		items := p.must(t, 200, "GET", list, "").field("items").([]any)
		nulls(items[0].(map[string]any), fields...)
		w := p.watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", list, from))
		nulls(w.next(t).Object, fields...)
	}
	// They are not part of the object: nobody owns them, and sending them back writes nothing.
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if again := p.must(t, 200, "PUT", path+"/a", string(text)); again.field("metadata", "resourceVersion") != created.field("metadata", "resourceVersion") {
		t.Errorf("%s", again)
	}
}
