package core_test

import (
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/eventlog/memlog"
)

// What the schema in force does not know is kept by writes that leave its part of the object alone.
func TestAWriteOfAnotherPartKeepsFieldsThatTheSchemaLost(t *testing.T) {
	mine := func(p *replica) any { return p.do("GET", widgetsPath+"/w", "").field("spec", "color") }
	for _, tc := range []struct {
		name  string
		write func(*testing.T, *replica)
		want  string
	}{
		{"a label", func(t *testing.T, p *replica) {
			p.must(t, 200, "PATCH", widgetsPath+"/w", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch)
		}, "red"},
		{"two labels", func(t *testing.T, p *replica) {
			for _, label := range []string{"a", "b"} {
				p.must(t, 200, "PATCH", widgetsPath+"/w", fmt.Sprintf(`{"metadata":{"labels":{%q:"b"}}}`, label), "Content-Type", mergePatch)
			}
		}, "red"},
		{"an update of what was read", func(t *testing.T, p *replica) {
			read := p.must(t, 200, "GET", widgetsPath+"/w", "")
			p.must(t, 200, "PATCH", widgetsPath+"/w", `{"metadata":{"annotations":{"a":"b"}}}`, "Content-Type", mergePatch)
			p.must(t, 409, "PUT", widgetsPath+"/w", string(read.body))
			p.must(t, 200, "PUT", widgetsPath+"/w", string(p.must(t, 200, "GET", widgetsPath+"/w", "").body))
		}, "red"},
		{"the status", func(t *testing.T, p *replica) {
			p.must(t, 200, "PATCH", widgetsPath+"/w/status", `{"status":{"ready":true}}`, "Content-Type", mergePatch)
		}, "red"},
		{"an apply of labels", func(t *testing.T, p *replica) {
			p.must(t, 200, "PATCH", widgetsPath+"/w?fieldManager=m", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","labels":{"a":"b"}}}`, "Content-Type", applied)
		}, "red"},
		{"a finalizer and the mark of a deletion", func(t *testing.T, p *replica) {
			p.must(t, 200, "PATCH", widgetsPath+"/w", `{"metadata":{"finalizers":["example.com/f"]}}`, "Content-Type", mergePatch)
			p.must(t, 200, "DELETE", widgetsPath+"/w", "")
		}, "red"},
		{"the spec", func(t *testing.T, p *replica) {
			p.must(t, 200, "PATCH", widgetsPath+"/w", `{"spec":{"size":2}}`, "Content-Type", mergePatch)
		}, "blue"}, // the default
	} {
		t.Run(tc.name, func(t *testing.T) {
			var store memlog.Store
			p := start(t, store.Open(nil), 0)
			p.bootstrap(t, bundle)
			p.must(t, 201, "POST", widgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"color":"red"}}`)
			p.activate(t, colorless)
			tc.write(t, p)
			if got := mine(p); got != nil {
				t.Errorf("the schema without color shows %v", got)
			}
			hidden := p.committer.Tip().Revision()
			p.activate(t, bundle)
			if got := mine(p); got != tc.want {
				t.Errorf("with color again: %v, want %s", got, tc.want)
			}
			later := start(t, store.Open(nil), 0)
			if got := mine(later); got != tc.want {
				t.Errorf("after a restart: %v, want %s", got, tc.want)
			}
			after := p.committer.Tip().Revision()
			p.must(t, 201, "POST", widgetsPath, widget("other", 1))
			for revision, want := range map[uint64]any{hidden: nil, after: tc.want} {
				for _, r := range []*replica{p, later} {
					if got := r.must(t, 200, "GET", fmt.Sprintf("/at/%d%s/w", revision, widgetsPath), "").field("spec", "color"); got != want {
						t.Errorf("at revision %d: %v, want %v", revision, got, want)
					}
				}
			}
		})
	}
}

// What is kept of a field that was secret is one with secrets, although the schema in force has none.
func TestWhatIsKeptOfASecretIsSensitive(t *testing.T) {
	p := newPlane(t)
	p.activate(t, strings.Replace(bundle, "owner?:", "token?: string @stele(sensitive)\n\t\towner?:", 1))
	p.must(t, 201, "POST", widgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"token":"hunter2"}}`)
	p.activate(t, bundle)
	begin := p.committer.Tip().Head
	for _, label := range []string{"a", "b"} {
		p.must(t, 200, "PATCH", widgetsPath+"/w", fmt.Sprintf(`{"metadata":{"labels":{%q:"b"}}}`, label), "Content-Type", mergePatch)
	}
	batches, err := p.log.CatchUp(t.Context(), begin)
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
