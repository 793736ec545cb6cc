package past_test

import (
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// What the schema in force does not know is kept by writes that leave its part of the object alone.
func TestAWriteOfAnotherPartKeepsFieldsThatTheSchemaLost(t *testing.T) {
	mine := func(p *planetest.Replica) any {
		return p.Do("GET", planetest.WidgetsPath+"/w", "").Field("spec", "color")
	}
	for _, tc := range []struct {
		name  string
		write func(*testing.T, *planetest.Replica)
		want  string
	}{
		{"a label", func(t *testing.T, p *planetest.Replica) {
			p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/w", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", planetest.MergePatch)
		}, "red"},
		{"two labels", func(t *testing.T, p *planetest.Replica) {
			for _, label := range []string{"a", "b"} {
				p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/w", fmt.Sprintf(`{"metadata":{"labels":{%q:"b"}}}`, label), "Content-Type", planetest.MergePatch)
			}
		}, "red"},
		{"an update of what was read", func(t *testing.T, p *planetest.Replica) {
			read := p.Must(t, 200, "GET", planetest.WidgetsPath+"/w", "")
			p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/w", `{"metadata":{"annotations":{"a":"b"}}}`, "Content-Type", planetest.MergePatch)
			p.Must(t, 409, "PUT", planetest.WidgetsPath+"/w", string(read.Body))
			p.Must(t, 200, "PUT", planetest.WidgetsPath+"/w", string(p.Must(t, 200, "GET", planetest.WidgetsPath+"/w", "").Body))
		}, "red"},
		{"the status", func(t *testing.T, p *planetest.Replica) {
			p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/w/status", `{"status":{"ready":true}}`, "Content-Type", planetest.MergePatch)
		}, "red"},
		{"an apply of labels", func(t *testing.T, p *planetest.Replica) {
			p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/w?fieldManager=m", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","labels":{"a":"b"}}}`, "Content-Type", planetest.Applied)
		}, "red"},
		{"a finalizer and the mark of a deletion", func(t *testing.T, p *planetest.Replica) {
			p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/w", `{"metadata":{"finalizers":["example.com/f"]}}`, "Content-Type", planetest.MergePatch)
			p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w", "")
		}, "red"},
		{"the spec", func(t *testing.T, p *planetest.Replica) {
			p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/w", `{"spec":{"size":2}}`, "Content-Type", planetest.MergePatch)
		}, "blue"}, // the default
	} {
		t.Run(tc.name, func(t *testing.T) {
			var store memlog.Store
			p := planetest.StartReplica(t, store.Open(nil), 0)
			p.Bootstrap(t, planetest.Bundle)
			p.Must(t, 201, "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"color":"red"}}`)
			p.Activate(t, planetest.Colorless)
			tc.write(t, p)
			if got := mine(p); got != nil {
				t.Errorf("the schema without color shows %v", got)
			}
			hidden := p.Committer.Tip().Revision()
			p.Activate(t, planetest.Bundle)
			if got := mine(p); got != tc.want {
				t.Errorf("with color again: %v, want %s", got, tc.want)
			}
			later := planetest.StartReplica(t, store.Open(nil), 0)
			if got := mine(later); got != tc.want {
				t.Errorf("after a restart: %v, want %s", got, tc.want)
			}
			after := p.Committer.Tip().Revision()
			p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("other", 1))
			for revision, want := range map[uint64]any{hidden: nil, after: tc.want} {
				for _, r := range []*planetest.Replica{p, later} {
					if got := r.Must(t, 200, "GET", fmt.Sprintf("/at/%d%s/w", revision, planetest.WidgetsPath), "").Field("spec", "color"); got != want {
						t.Errorf("at revision %d: %v, want %v", revision, got, want)
					}
				}
			}
		})
	}
}

// What is kept of a field that was secret is one with secrets, although the schema in force has none.
func TestWhatIsKeptOfASecretIsSensitive(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Activate(t, strings.Replace(planetest.Bundle, "owner?:", "token?: string @stele(sensitive)\n\t\towner?:", 1))
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"token":"hunter2"}}`)
	p.Activate(t, planetest.Bundle)
	begin := p.Committer.Tip().Head
	for _, label := range []string{"a", "b"} {
		p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/w", fmt.Sprintf(`{"metadata":{"labels":{%q:"b"}}}`, label), "Content-Type", planetest.MergePatch)
	}
	batches, err := p.Log.CatchUp(t.Context(), begin)
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, b := range batches {
		for _, e := range b.Events {
			for i, payload := range e.Meta.GetPayloads() {
				if strings.Contains(string(e.Contents[i]), "hunter2") {
					kept++
					if !payload.GetClass().GetSensitive() {
						t.Errorf("%v of revision %d is not sensitive", payload.GetRole(), e.Revision)
					}
				}
			}
		}
	}
	if kept != 2 {
		t.Errorf("the token was kept %d times, want 2", kept)
	}
}
