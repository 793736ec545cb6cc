package read_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// The table of Kubernetes' API concepts, "Semantics for watch", and KEP-3157's. A watch of
// the future that does not begin with the state is refused at once, where kube-apiserver
// would let it wait in silence.
func TestWatchesByResourceVersion(t *testing.T) {
	const state, since = "ADDED w00, ADDED w02, ADDED w03, ADDED w04", "DELETED w01"
	forgotten := strings.Repeat("MODIFIED w00, ", 50) + since // where kube-apiserver says 410
	for _, row := range []struct {
		query                                             string
		unset, any, past, now, future, forgotten, garbage string
	}{
		{"", state, state, since, "", "504", forgotten, "400"},
		{"sendInitialEvents=true&resourceVersionMatch=NotOlderThan", state, state, state, state, "ERROR 504", state, "400"},
		{"sendInitialEvents=false&resourceVersionMatch=NotOlderThan", "", "", since, "", "504", forgotten, "400"},
		{"sendInitialEvents=true", "422", "422", "422", "422", "422", "422", "422"},
		{"sendInitialEvents=false", "422", "422", "422", "422", "422", "422", "422"},
		{"sendInitialEvents=true&resourceVersionMatch=Exact", "422", "422", "422", "422", "422", "422", "422"},
		{"resourceVersionMatch=NotOlderThan", "422", "422", "422", "422", "422", "422", "422"},
		{"resourceVersionMatch=Exact", "422", "422", "422", "422", "422", "422", "422"},
		{"continue=x", "422", "422", since, "", "504", forgotten, "400"},
		{"limit=1", state, state, since, "", "504", forgotten, "400"},
	} {
		for i, want := range []string{row.unset, row.any, row.past, row.now, row.future, row.forgotten, row.garbage} {
			for _, bookmarks := range []bool{false, true} {
				p := newTimes(t)
				version := []string{"", "0", fmt.Sprint(p.past), fmt.Sprint(p.now), fmt.Sprint(p.now + 1), fmt.Sprint(p.expired), "x"}[i]
				query, want := "watch=1&"+row.query, want
				if version != "" {
					query += "&resourceVersion=" + version
				}
				if bookmarks {
					if query += "&allowWatchBookmarks=true"; want == state {
						want += fmt.Sprintf(", END@%d", p.now)
					}
				}
				w, refused := p.TryWatch(t, planetest.WidgetsPath+"?"+query)
				got := fmt.Sprint(refused.Code)
				if w != nil {
					marker := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("zz", 1))
					got = planetest.What(w.Until(t, fmt.Sprint(planetest.Revision(t, marker))))
					w.Stop()
				}
				if got != want {
					t.Errorf("%s: %s, want %s", query, got, want)
				}
			}
		}
	}
}

// A watch that begins with the state has each object at its own revision, then the
// revision of the state, then what follows that.
func TestInitialEvents(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", "/apis/example.com/v1/namespaces/kube-system/widgets", planetest.Widget("a", 1))
	planetest.Fill(t, p, 2)
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"other"}}`)
	list := p.Must(t, 200, "GET", "/apis/example.com/v1/widgets", "")
	w := p.Watch(t, "/apis/example.com/v1/widgets?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	for _, item := range list.Field("items").([]any) {
		if diff := cmp.Diff(planetest.WatchEvent{Type: "ADDED", Object: item.(map[string]any)}, w.Next(t)); diff != "" {
			t.Errorf("(-listed +watched):\n%s", diff)
		}
	}
	if got, want := planetest.What([]planetest.WatchEvent{w.Next(t)}), fmt.Sprintf("END@%d", planetest.Revision(t, list)); got != want {
		t.Errorf("then %s, want %s", got, want)
	}
	later := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("later", 1))
	if diff := cmp.Diff(planetest.WatchEvent{Type: "ADDED", Object: later.Object()}, w.Next(t)); diff != "" {
		t.Errorf("then (-want +got):\n%s", diff)
	}
}

// Selections are followed as objects come into them and leave. What leaves is told as it
// was, at the revision of what made it leave.
func TestWatchesSelect(t *testing.T) {
	const elsewhere = "/apis/example.com/v1/widgets"
	for _, tc := range []struct {
		path, selector, labels, color string // with labels and color it comes again
		want                          string // events, each with the number of the write
	}{
		{planetest.WidgetsPath, "", "", "blue", "ADDED 0, MODIFIED 1, MODIFIED 2, MODIFIED 3, MODIFIED 4, DELETED 5"},
		{planetest.WidgetsPath, "labelSelector=env=dev", `"env":"dev"`, "blue", "ADDED 1, DELETED 2"},
		{planetest.WidgetsPath, "labelSelector=env==prod", `"env":"prod"`, "blue", "ADDED 2, DELETED 3"},
		{planetest.WidgetsPath, "labelSelector=env!=dev", "", "blue", "ADDED 0, DELETED 1, ADDED 2, MODIFIED 3, MODIFIED 4, DELETED 5"},
		{planetest.WidgetsPath, "labelSelector=env in (dev,prod)", `"env":"dev"`, "blue", "ADDED 1, MODIFIED 2, DELETED 3"},
		{planetest.WidgetsPath, "labelSelector=env notin (dev)", "", "blue", "ADDED 0, DELETED 1, ADDED 2, MODIFIED 3, MODIFIED 4, DELETED 5"},
		{planetest.WidgetsPath, "labelSelector=env", `"env":"x"`, "blue", "ADDED 1, MODIFIED 2, DELETED 3"},
		{planetest.WidgetsPath, "labelSelector=!env", "", "blue", "ADDED 0, DELETED 1, ADDED 3, MODIFIED 4, DELETED 5"},
		{planetest.WidgetsPath, "labelSelector=n>3", `"n":"9"`, "blue", "ADDED 3, DELETED 4"},
		{planetest.WidgetsPath, "labelSelector=n<3", `"n":"2"`, "blue", "ADDED 4, DELETED 5"},
		{planetest.WidgetsPath, "labelSelector=env=dev,!n", `"env":"dev"`, "blue", "ADDED 1, DELETED 2"},
		{planetest.WidgetsPath, "fieldSelector=spec.color=red", "", "red", "ADDED 2, MODIFIED 3, DELETED 4"},
		{planetest.WidgetsPath, "fieldSelector=spec.color==red", "", "red", "ADDED 2, MODIFIED 3, DELETED 4"},
		{planetest.WidgetsPath, "fieldSelector=spec.color!=red", "", "blue", "ADDED 0, MODIFIED 1, DELETED 2, ADDED 4, DELETED 5"},
		{elsewhere, "fieldSelector=metadata.namespace=default,spec.color=red", "", "red", "ADDED 2, MODIFIED 3, DELETED 4"},
		{elsewhere, "fieldSelector=metadata.namespace!=kube-system,metadata.name=x", "", "red", "ADDED 0, MODIFIED 1, MODIFIED 2, MODIFIED 3, MODIFIED 4, DELETED 5"},
		{elsewhere, "fieldSelector=metadata.name=x&labelSelector=env=prod", `"env":"prod"`, "red", "ADDED 2, DELETED 3"},
		{planetest.WidgetsPath, "fieldSelector=metadata.name!=x,spec.color=red", "", "", ""},
		{planetest.WidgetsPath, "fieldSelector=metadata.name=y", "", "", ""},
		{"/apis/example.com/v1/namespaces/kube-system/widgets", "", "", "", ""},
	} {
		p := planetest.NewPlane(t)
		query, err := url.ParseQuery(tc.selector)
		if err != nil {
			t.Fatal(err)
		}
		query.Set("watch", "true")
		query.Set("resourceVersion", fmt.Sprint(p.Committer.Tip().Revision()))
		w := p.Watch(t, tc.path+"?"+query.Encode())
		writes := []planetest.Answer{
			p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"x"},"spec":{"size":1}}`),
			p.Patch("x", "merge", `{"metadata":{"labels":{"env":"dev"}}}`),
			p.Patch("x", "merge", `{"metadata":{"labels":{"env":"prod"}},"spec":{"color":"red"}}`),
			p.Patch("x", "merge", `{"metadata":{"labels":{"env":null,"n":"5"}}}`),
			p.Patch("x", "merge", `{"metadata":{"labels":{"n":"1"}},"spec":{"color":"green"}}`),
			p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/x", ""),
		}
		gone := p.Committer.Tip().Revision()
		last := ""
		if tc.want == "" { // nothing of x is to be heard
			for _, path := range []string{planetest.WidgetsPath, "/apis/example.com/v1/namespaces/kube-system/widgets"} {
				last = fmt.Sprint(planetest.Revision(t, p.Must(t, 201, "POST", path, `{"metadata":{"name":"y"},"spec":{"size":1,"color":"red"}}`)))
				if path == tc.path {
					break
				}
			}
		} else {
			last = fmt.Sprint(planetest.Revision(t, p.Must(t, 201, "POST", planetest.WidgetsPath, fmt.Sprintf(`{"metadata":{"name":"x","labels":{%s}},"spec":{"size":1,"color":%q}}`, tc.labels, tc.color))))
		}
		var got []string
		for _, e := range w.Until(t, last) {
			at := fmt.Sprint(e.Object["metadata"].(map[string]any)["resourceVersion"])
			i := slices.IndexFunc(writes, func(a planetest.Answer) bool { return fmt.Sprint(a.Field("metadata", "resourceVersion")) == at })
			if at == fmt.Sprint(gone) {
				i = len(writes) - 1
			}
			got = append(got, fmt.Sprintf("%s %d", e.Type, i))
			if e.Type == "DELETED" {
				i-- // as it was
			}
			if want := writes[max(0, i)].Object()["spec"]; !cmp.Equal(want, e.Object["spec"]) {
				t.Errorf("%s: %s with %v, want %v", tc.selector, e, e.Object["spec"], want)
			}
		}
		if got := strings.Join(got, ", "); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.selector, got, tc.want)
		}
		w.Stop()
	}
}

// The paths that watch without saying so in the query are old, and served: of a kind, in a
// namespace, of one object. So are selectors that mean the same.
func TestWatchPaths(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1))
	p.Must(t, 201, "POST", "/apis/example.com/v1/namespaces/kube-system/widgets", planetest.Widget("a", 1))
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"c"}}`)
	for path, want := range map[string][]string{
		"/apis/example.com/v1/watch/widgets":                                                           {"default/a", "default/b", "kube-system/a"},
		"/apis/example.com/v1/watch/namespaces/default/widgets":                                        {"default/a", "default/b"},
		"/apis/example.com/v1/watch/namespaces/default/widgets/b":                                      {"default/b"},
		"/apis/example.com/v1/watch/namespaces/default/widgets/b?fieldSelector=metadata.name%3Db":      {"default/b"},
		"/apis/example.com/v1/watch/namespaces/default/widgets?watch=false":                            {"default/a", "default/b"},
		"/apis/example.com/v1/watch/namespaces/default/widgets?labelSelector=x":                        {},
		"/api/v1/watch/configmaps":                                                                     {"default/c"},
		"/api/v1/watch/namespaces/default/configmaps/c":                                                {"default/c"},
		"/api/v1/watch/namespaces/default":                                                             {"/default"},
		"/apis/rbac.authorization.k8s.io/v1/watch/clusterroles/view":                                   {"/view"},
		"/apis/example.com/v1/widgets?watch=1&fieldSelector=metadata.name%3Da":                         {"default/a", "kube-system/a"},
		"/apis/example.com/v1/namespaces/default/widgets?watch=1&fieldSelector=metadata.name%3Da":      {"default/a"},
		"/apis/example.com/v1/widgets?watch=1&fieldSelector=metadata.namespace%3Dkube-system":          {"kube-system/a"},
		"/apis/example.com/v1/widgets?watch=&unknown=parameter&fieldSelector=metadata.name%3Db":        {"default/b"},
		"/apis/example.com/v1/widgets?watch=TRUE&fieldSelector=metadata.name%3Da,metadata.name%21%3Da": {},
	} {
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		w := p.Watch(t, path+separator+"timeoutSeconds=-1") // as soon as it has begun
		<-w.Ended
		got := []string{}
		for len(w.Events) > 0 {
			meta := (<-w.Events).Object["metadata"].(map[string]any)
			namespace, _ := meta["namespace"].(string)
			got = append(got, fmt.Sprintf("%s/%v", namespace, meta["name"]))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	mismatch := "/apis/example.com/v1/watch/namespaces/default/widgets/b?fieldSelector="
	for _, selector := range []string{"metadata.name%3Da", "metadata.name%21%3Da", "spec.color%3Dred"} {
		if a := p.Must(t, 400, "GET", mismatch+selector, ""); a.Field("message") != "fieldSelector metadata.name doesn't match requested name" {
			t.Errorf("%s: %s", selector, a)
		}
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		p.Must(t, 405, method, "/apis/example.com/v1/watch/namespaces/default/widgets", `{}`)
	}
	p.Must(t, 404, "GET", "/apis/example.com/v1/watch/gadgets", "")
	// At the path of one object, watch means nothing.
	if a := p.Must(t, 200, "GET", planetest.WidgetsPath+"/a?watch=true", ""); a.Field("kind") != "Widget" {
		t.Errorf("%s", a)
	}
	if a := p.Must(t, 200, "HEAD", planetest.WidgetsPath+"?limit=1", ""); len(a.Body) > 0 || a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD: %v %s", a.Header, a)
	}
}

// A watch shows objects in the form that is asked for; of tables, the columns come once.
func TestWatchesInOtherForms(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	const asTable, asMetadata = "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	for include, want := range map[string]any{"": "PartialObjectMetadata", "Metadata": "PartialObjectMetadata", "Object": "Widget", "None": nil} {
		w := p.Watch(t, planetest.WidgetsPath+"?watch=1&includeObject="+include, "Accept", asTable)
		p.Patch("a", "merge", fmt.Sprintf(`{"metadata":{"annotations":{"by":%q}}}`, include+"."))
		for i, kind := range []string{"ADDED", "MODIFIED"} {
			e := w.Next(t)
			rows, _ := e.Object["rows"].([]any)
			if e.Type != kind || e.Object["kind"] != "Table" || len(rows) != 1 || (e.Object["columnDefinitions"] != nil) != (i == 0) {
				t.Fatalf("event %d: %v", i, e.Object)
			}
			object, _ := rows[0].(map[string]any)["object"].(map[string]any)
			if object["kind"] != want {
				t.Errorf("includeObject=%s: %v", include, object)
			}
		}
		w.Stop()
	}
	if a := p.Must(t, 400, "GET", planetest.WidgetsPath+"?watch=1&includeObject=Some", "", "Accept", asTable); !strings.Contains(string(a.Body), "includeObject") {
		t.Errorf("%s", a)
	}
	w := p.Watch(t, planetest.WidgetsPath+"?watch=1&allowWatchBookmarks=1", "Accept", asMetadata)
	if e := w.Next(t); e.Object["kind"] != "PartialObjectMetadata" || e.Object["apiVersion"] != "meta.k8s.io/v1" || e.Object["spec"] != nil {
		t.Errorf("%v", e.Object)
	}
	if e := w.Next(t); planetest.What([]planetest.WatchEvent{e}) != fmt.Sprintf("END@%d", p.Committer.Tip().Revision()) || e.Object["kind"] != "PartialObjectMetadata" {
		t.Errorf("%v", e.Object)
	}
}

// What is recorded of the log is no list with a state: clients that want to begin a watch
// with one hear that, as from a server without KEP-3157, and list.
func TestChangesHaveNoInitialEvents(t *testing.T) {
	p := planetest.NewPlane(t)
	a := p.Must(t, 422, "GET", planetest.ChangesPath+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "")
	if a.Field("reason") != "Invalid" || !strings.Contains(string(a.Body), "sendInitialEvents is forbidden") {
		t.Errorf("%s", a)
	}
}

// A replica that starts from the log knows what the one before knew: who was cut off goes on.
func TestWatchesGoOnAfterARestart(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, planetest.Bundle)
	planetest.Fill(t, p, 2)
	at := p.Committer.Tip().Revision()
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w01", "")
	p.Close()
	p = planetest.StartReplica(t, store.Open(nil), 0)
	w := p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", planetest.WidgetsPath, at))
	if got := planetest.What([]planetest.WatchEvent{w.Next(t)}); got != "DELETED w01" {
		t.Errorf("%s", got)
	}
}

// A bookmark has an object as other events have, with no more in it than the type cannot do
// without: no time of creation. As a table it is a row, which says that the initial events are
// over, whatever else rows carry.
func TestObjectsOfBookmarks(t *testing.T) {
	p := planetest.NewPlane(t)
	const initial = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&fieldSelector=metadata.name=none"
	revision := fmt.Sprint(p.Committer.Tip().Revision())
	meta := map[string]any{"resourceVersion": revision, "annotations": map[string]any{"k8s.io/initial-events-end": "true"}}
	row := func(cells ...any) map[string]any {
		partial := map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
		return map[string]any{"cells": cells, "object": partial}
	}
	for _, tc := range []struct {
		path, accept string
		want         map[string]any
	}{
		{planetest.WidgetsPath + initial, "", map[string]any{"kind": "Widget", "apiVersion": "example.com/v1", "metadata": meta}},
		{planetest.ConfigMapsPath + initial, "", map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta}},
		{"/apis/coordination.k8s.io/v1/leases" + initial, "", map[string]any{"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": meta, "spec": map[string]any{}}},
		{planetest.RolesPath + initial, "", map[string]any{"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": meta, "rules": nil}},
		{planetest.WidgetsPath + initial, planetest.AsPartial, map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}},
		{planetest.WidgetsPath + initial, planetest.AsTable, row("", nil)},
		{planetest.WidgetsPath + initial + "&includeObject=None", planetest.AsTable, row("", nil)},
		{planetest.ConfigMapsPath + initial, planetest.AsTable, row("", 0., "<unknown>")},
	} {
		w := p.Watch(t, tc.path, "Accept", "application/json"+tc.accept)
		e, want := w.Next(t), tc.want
		got := e.Object
		if tc.want["cells"] != nil {
			if table := got["metadata"].(map[string]any); got["kind"] != "Table" || got["columnDefinitions"] == nil || table["resourceVersion"] != revision || len(table) != 1 {
				t.Errorf("%s as %s: %v", tc.path, tc.accept, got)
			}
			got = got["rows"].([]any)[0].(map[string]any)
		}
		if diff := cmp.Diff(want, got); e.Type != "BOOKMARK" || diff != "" {
			t.Errorf("%s as %s: %s (-want +got):\n%s", tc.path, tc.accept, e.Type, diff)
		}
		w.Stop()
	}
}
