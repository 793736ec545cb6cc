package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// observed is a watch, as both peers get it.
type observed struct {
	path   string
	accept string
	table  bool
}

// watches are those that run beside a stream.
func watches() (list []observed) {
	widgets := kinds[0]
	for _, k := range kinds {
		list = append(list, observed{path: k.path("v1", "") + "?"})
	}
	for _, query := range []url.Values{
		{"labelSelector": {"app=x"}},
		{"fieldSelector": {"spec.color=red"}},
		{"fieldSelector": {"metadata.name=a"}},
		{"labelSelector": {"app"}, "fieldSelector": {"spec.color!=blue,metadata.namespace=default"}},
	} {
		list = append(list, observed{path: widgets.path("v1", "") + "?" + query.Encode()})
	}
	return append(list,
		observed{path: engines.path("v1beta1", "") + "?"},
		observed{path: engines.path("v1alpha1", "") + "?"},
		observed{path: engines.path("v1beta1", "default") + "?fieldSelector=spec.fuel%3Doil"},
		observed{path: widgets.path("v1beta1", "other") + "?"},
		observed{path: widgets.path("v1", "default") + "?", accept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"},
		observed{path: widgets.path("v1", "default") + "?", accept: "application/json;as=Table;v=v1;g=meta.k8s.io", table: true},
		observed{path: widgets.path("v1", "default") + "?includeObject=Object", accept: "application/json;as=Table;v=v1;g=meta.k8s.io", table: true},
	)
}

// last is the revision up to which a watch is read: a bookmark of it or of a later one ends
// it.
type watching struct {
	events []any
	done   chan struct{}
	err    error
}

// watch reads events until one is of an object with this name, and has type DELETED.
func (p *peer) watch(ctx context.Context, w observed, after uint64) (*watching, error) {
	q, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("%s%s&watch=true&allowWatchBookmarks=true&resourceVersion=%d", p.url, w.path, after), nil)
	if err != nil {
		return nil, err
	}
	if w.accept != "" {
		q.Header.Set("Accept", w.accept)
	}
	r, err := p.client.Do(q)
	if err != nil {
		return nil, err
	}
	if r.StatusCode != http.StatusOK {
		r.Body.Close()
		return nil, fmt.Errorf("%s: watch %s: %s", p.name, w.path, r.Status)
	}
	out := &watching{done: make(chan struct{})}
	go func() {
		defer close(out.done)
		defer r.Body.Close()
		d := json.NewDecoder(r.Body)
		d.UseNumber()
		for {
			var event map[string]any
			if out.err = d.Decode(&event); out.err != nil {
				return
			}
			if event["type"] == "BOOKMARK" {
				continue // when it comes is the server's choice
			}
			out.events = append(out.events, event)
			if sentinel(event) {
				return
			}
		}
	}()
	return out, nil
}

const last = "zz-last"

// sentinel tells whether an event is the end of what a stream does.
func sentinel(event map[string]any) bool {
	object := event["object"]
	if rows, ok := field(object, "rows").([]any); ok && len(rows) == 1 {
		object = field(rows[0], "object")
	}
	name := field(object, "metadata", "name")
	return event["type"] == "DELETED" && (name == last || name == "a" && field(object, "metadata", "annotations", "last") != nil)
}

// end creates and deletes, in each collection, objects that every watch sees.
func (p *peer) end(t testing.TB) {
	t.Helper()
	for _, k := range kinds {
		in := []string{""}
		if k.namespaced {
			in = namespaces
		}
		for _, namespace := range in {
			for _, name := range []string{"a", last} { // one watch knows only the former
				o := map[string]any{"apiVersion": "example.com/v1", "kind": k.kind, "spec": map[string]any{"color": "red", "fuel": "oil"},
					"metadata": map[string]any{"name": name, "labels": map[string]any{"app": "x"}, "annotations": map[string]any{"last": "yes"}}}
				path := k.path("v1", namespace)
				p.must(t, http.StatusCreated, "POST", path, encode(o))
				p.must(t, http.StatusOK, "DELETE", path+"/"+name, nil)
			}
		}
	}
}

// clear deletes all that there is, whoever wanted to keep it.
func (p *peer) clear(t testing.TB) {
	t.Helper()
	for _, k := range kinds {
		loosest := k.versions[len(k.versions)-1] // another one may refuse what was written in this
		a := p.must(t, http.StatusOK, "GET", k.path(loosest, ""), nil)
		items, _ := field(a.body, "items").([]any)
		slices.SortFunc(items, func(a, b any) int { // by names that are the same for both peers
			return strings.Compare(fmt.Sprint(field(a, "metadata", "namespace"), p.symbol(fmt.Sprint(field(a, "metadata", "name")))), fmt.Sprint(field(b, "metadata", "namespace"), p.symbol(fmt.Sprint(field(b, "metadata", "name")))))
		})
		for _, item := range items {
			namespace, _ := field(item, "metadata", "namespace").(string)
			path := fmt.Sprintf("%s/%s", k.path(loosest, namespace), field(item, "metadata", "name"))
			if field(item, "metadata", "finalizers") != nil {
				if a := p.do(t, "PATCH", path, http.Header{"Content-Type": {"application/json-patch+json"}}, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`)); a.code != http.StatusOK {
					t.Fatalf("%s: %s: %v", p.name, path, a.body)
				}
			}
			if field(item, "metadata", "deletionTimestamp") == nil {
				p.must(t, http.StatusOK, "DELETE", path, nil)
			}
		}
	}
}

// collected waits for the end of a watch, which must be what ends the stream.
func (w *watching) collected(t testing.TB) []any {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(10 * time.Second):
		t.Fatal("a watch has not seen the end")
	}
	if w.err != nil {
		t.Fatal(w.err)
	}
	return w.events
}
