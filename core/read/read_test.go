package read_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/objects"
)

func TestListSelects(t *testing.T) {
	p := planetest.NewPlane(t)
	planetest.Fill(t, p, 6)
	p.Must(t, 201, "POST", "/apis/example.com/v1/namespaces/kube-system/widgets", planetest.Widget("elsewhere", 1))
	for _, tc := range []struct {
		path, query string
		want        []string
	}{
		{planetest.WidgetsPath, "", []string{"w00", "w01", "w02", "w03", "w04", "w05"}},
		{"/apis/example.com/v1/widgets", "", []string{"w00", "w01", "w02", "w03", "w04", "w05", "elsewhere"}},
		{"/apis/example.com/v1/namespaces/none/widgets", "", nil},
		{planetest.WidgetsPath, "labelSelector=mod=1", []string{"w01", "w03", "w05"}},
		{planetest.WidgetsPath, "labelSelector=mod+in+(0,2)", []string{"w00", "w02", "w04"}},
		{planetest.WidgetsPath, "labelSelector=!mod", nil},
		{planetest.WidgetsPath, "fieldSelector=spec.color=red", []string{"w01", "w04"}},
		{planetest.WidgetsPath, "fieldSelector=spec.color!=red", []string{"w00", "w02", "w03", "w05"}},
		{planetest.WidgetsPath, "fieldSelector=metadata.name=w03", []string{"w03"}},
		{planetest.WidgetsPath, "fieldSelector=metadata.name=w03,spec.color=red", nil},
		{"/apis/example.com/v1/widgets", "fieldSelector=metadata.namespace=kube-system", []string{"elsewhere"}},
		{planetest.WidgetsPath, "labelSelector=mod=1&fieldSelector=spec.color=red", []string{"w01"}},
	} {
		a := p.Must(t, 200, "GET", tc.path+"?"+tc.query, "")
		if diff := cmp.Diff(tc.want, a.Names()); diff != "" {
			t.Errorf("%s?%s (-want +got):\n%s", tc.path, tc.query, diff)
		}
		if a.Field("kind") != "WidgetList" || a.Field("apiVersion") != "example.com/v1" || a.Field("metadata", "resourceVersion") != fmt.Sprint(p.Committer.Tip().Revision()) || a.Field("items") == nil {
			t.Errorf("list %s", a)
		}
	}
}

// The pages of a list add up to what there was when it began, whatever happens
// meanwhile.
func TestPagesAreOfOneRevision(t *testing.T) {
	p := planetest.NewPlane(t)
	planetest.Fill(t, p, 10)
	whole := p.Must(t, 200, "GET", planetest.WidgetsPath, "")
	page := p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=3", "")
	items := page.Field("items").([]any)
	if page.Field("metadata", "remainingItemCount") != 7.0 {
		t.Errorf("remaining %v", page.Field("metadata", "remainingItemCount"))
	}
	for page.Field("metadata", "continue") != nil {
		p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/"+fmt.Sprintf("w%02d", len(items)), "")
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprintf("x%d", len(items)), 1))
		p.Patch("w09", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, 100+len(items)))
		page = p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=3&continue="+page.Field("metadata", "continue").(string), "")
		if page.Field("metadata", "resourceVersion") != whole.Field("metadata", "resourceVersion") {
			t.Errorf("a page at %v", page.Field("metadata", "resourceVersion"))
		}
		items = append(items, page.Field("items").([]any)...)
	}
	if diff := cmp.Diff(whole.Field("items"), any(items)); diff != "" {
		t.Errorf("pages together (-want +got):\n%s", diff)
	}
	if a := p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=2&labelSelector=mod=1", ""); a.Field("metadata", "remainingItemCount") != nil {
		t.Error("a selected list claims to know how many remain")
	}
}

func TestExactListIsThePast(t *testing.T) {
	p := planetest.NewPlane(t)
	planetest.Fill(t, p, 3)
	past := p.Must(t, 200, "GET", planetest.WidgetsPath, "")
	at := past.Field("metadata", "resourceVersion").(string)
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w01", "")
	p.Patch("w02", "merge", `{"spec":{"size":500}}`)
	if got := p.Must(t, 200, "GET", planetest.WidgetsPath+"?resourceVersionMatch=Exact&resourceVersion="+at, ""); string(got.Body) != string(past.Body) {
		t.Errorf("then\n%s\nnow\n%s", past.Body, got.Body)
	}
	for _, query := range []string{"resourceVersion=0", "resourceVersion=" + at, "resourceVersionMatch=NotOlderThan&resourceVersion=" + at} {
		if got := p.Must(t, 200, "GET", planetest.WidgetsPath+"?"+query, "").Names(); !slices.Equal(got, []string{"w00", "w02"}) {
			t.Errorf("%s: %v", query, got)
		}
	}
}

// What has left memory goes on from history.
func TestWhatHasLeftMemoryIsThere(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 2<<10)
	p.Bootstrap(t, planetest.Bundle)
	planetest.Fill(t, p, 5)
	whole := p.Must(t, 200, "GET", planetest.WidgetsPath, "")
	page := p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=2", "")
	token := page.Field("metadata", "continue").(string)
	at := page.Field("metadata", "resourceVersion").(string)
	forget(p, t, at)
	items := page.Field("items").([]any)
	next := p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=5&continue="+token, "")
	if diff := cmp.Diff(whole.Field("items"), any(append(items, next.Field("items").([]any)...))); diff != "" {
		t.Errorf("pages together (-want +got):\n%s", diff)
	}
	if got := p.Must(t, 200, "GET", planetest.WidgetsPath+"?resourceVersionMatch=Exact&resourceVersion="+at, ""); string(got.Body) != string(whole.Body) {
		t.Errorf("then\n%s\nnow\n%s", whole.Body, got.Body)
	}
	w := p.Watch(t, planetest.WidgetsPath+"?watch=1&resourceVersion="+at)
	if e := w.Next(t); planetest.What([]planetest.WatchEvent{e}) != "ADDED forgetful" {
		t.Errorf("watch: %+v", e)
	}
}

// forget writes until a revision of widgets has left memory.
func forget(r *planetest.Replica, t testing.TB, revision string) {
	t.Helper()
	at, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("forgetful", 1))
	planetest.WaitFor(t, func() bool {
		r.Patch("forgetful", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, 1+r.Committer.Tip().Revision()%999))
		_, err := r.Committer.Objects().At(planetest.WidgetsResource, at)
		return errors.Is(err, objects.ErrExpired)
	})
	r.Must(t, 200, "DELETE", planetest.WidgetsPath+"/forgetful", "")
}

func TestOtherForms(t *testing.T) {
	p := planetest.NewPlane(t)
	planetest.Fill(t, p, 2)
	const tableAccept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	a := p.Must(t, 200, "GET", planetest.WidgetsPath, "", "Accept", tableAccept)
	rows, _ := a.Field("rows").([]any)
	if a.Field("kind") != "Table" || len(rows) != 2 {
		t.Fatalf("table %s", a)
	}
	if diff := cmp.Diff([]any{"w01", 2.0}, rows[1].(map[string]any)["cells"]); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	object := rows[0].(map[string]any)["object"].(map[string]any)
	if object["kind"] != "PartialObjectMetadata" || object["metadata"].(map[string]any)["name"] != "w00" || object["spec"] != nil {
		t.Errorf("row's object %v", object)
	}
	columns := a.Field("columnDefinitions").([]any)
	if columns[0].(map[string]any)["format"] != "name" || columns[1].(map[string]any)["name"] != "Size" {
		t.Errorf("columns %v", columns)
	}
	if a := p.Must(t, 200, "GET", planetest.WidgetsPath+"/w00?includeObject=Object", "", "Accept", tableAccept); a.Field("rows").([]any)[0].(map[string]any)["object"].(map[string]any)["spec"] == nil {
		t.Errorf("includeObject=Object: %s", a)
	}
	a = p.Must(t, 200, "GET", planetest.WidgetsPath, "", "Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	if a.Field("kind") != "PartialObjectMetadataList" || a.Field("items").([]any)[0].(map[string]any)["spec"] != nil || len(a.Names()) != 2 {
		t.Errorf("metadata only: %s", a)
	}
	a = p.Must(t, 200, "GET", planetest.WidgetsPath+"/w00", "", "Accept", "application/yaml")
	if a.Header.Get("Content-Type") != "application/yaml" || !strings.Contains(string(a.Body), "\n  size: 1\n") {
		t.Errorf("YAML: %s", a.Body)
	}
	a = p.Must(t, 201, "POST", planetest.WidgetsPath, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: from-yaml}\nspec: {size: 1}\n", "Content-Type", "application/yaml")
	if a.Field("spec", "size") != 1.0 {
		t.Errorf("from YAML: %s", a)
	}
	if a := p.Must(t, 200, "HEAD", planetest.WidgetsPath+"/w00", ""); len(a.Body) > 0 {
		t.Errorf("HEAD has a body: %s", a.Body)
	}
	if a := p.Must(t, 200, "GET", planetest.WidgetsPath+"/w00?pretty=true", ""); !strings.Contains(string(a.Body), "\n  \"kind\": \"Widget\"") {
		t.Errorf("pretty: %s", a.Body)
	}
}

func TestWatch(t *testing.T) {
	p := planetest.NewPlane(t)
	planetest.Fill(t, p, 1)
	at := p.Must(t, 200, "GET", planetest.WidgetsPath, "").Field("metadata", "resourceVersion").(string)
	w := p.Watch(t, planetest.WidgetsPath+"?watch=true&resourceVersion="+at)
	red := p.Watch(t, planetest.WidgetsPath+"?watch=true&resourceVersion="+at+"&fieldSelector="+url.QueryEscape("spec.color=red"))
	one := p.Watch(t, planetest.WidgetsPath+"?watch=true&resourceVersion="+at+"&fieldSelector="+url.QueryEscape("metadata.name=b"))
	created := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	patched := p.Patch("a", "merge", `{"spec":{"color":"red"}}`)
	p.Patch("a", "merge", `{"spec":{"color":"green"}}`)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1))
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", "")

	e := w.Next(t)
	if diff := cmp.Diff(planetest.WatchEvent{Type: "ADDED", Object: created.Object()}, e); diff != "" {
		t.Errorf("first event (-want +got):\n%s", diff)
	}
	if e := w.Next(t); e.Type != "MODIFIED" || e.Object["spec"].(map[string]any)["color"] != "red" {
		t.Errorf("second event %v", e)
	}
	w.Next(t)
	w.Next(t)
	if e := w.Next(t); e.Type != "DELETED" || e.Object["metadata"].(map[string]any)["resourceVersion"] != fmt.Sprint(p.Committer.Tip().Revision()) || e.Object["spec"].(map[string]any)["color"] != "green" {
		t.Errorf("last event %v", e)
	}
	if e := red.Next(t); e.Type != "ADDED" || e.Object["metadata"].(map[string]any)["resourceVersion"] != patched.Field("metadata", "resourceVersion") {
		t.Errorf("what became red: %v", e)
	}
	if e := red.Next(t); e.Type != "DELETED" || e.Object["spec"].(map[string]any)["color"] != "red" {
		t.Errorf("what was red: %v", e)
	}
	if e := one.Next(t); e.Type != "ADDED" || e.Object["metadata"].(map[string]any)["name"] != "b" {
		t.Errorf("by name: %v", e)
	}
}

func TestWatchBeginsWithWhatIsThere(t *testing.T) {
	p := planetest.NewPlane(t)
	planetest.Fill(t, p, 2)
	for _, query := range []string{"watch=1", "watch=1&resourceVersion=0"} {
		w := p.Watch(t, planetest.WidgetsPath+"?"+query)
		if a, b := w.Next(t), w.Next(t); a.Type != "ADDED" || b.Type != "ADDED" || a.Object["metadata"].(map[string]any)["name"] != "w00" {
			t.Errorf("%s: %v %v", query, a, b)
		}
	}
	w := p.Watch(t, planetest.WidgetsPath+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	w.Next(t)
	w.Next(t)
	e := w.Next(t)
	meta := e.Object["metadata"].(map[string]any)
	if e.Type != "BOOKMARK" || meta["resourceVersion"] != fmt.Sprint(p.Committer.Tip().Revision()) || meta["annotations"].(map[string]any)["k8s.io/initial-events-end"] != "true" || e.Object["kind"] != "Widget" {
		t.Errorf("end of the initial events: %v", e)
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("later", 1))
	if e := w.Next(t); e.Type != "ADDED" || e.Object["metadata"].(map[string]any)["name"] != "later" {
		t.Errorf("then: %v", e)
	}
	if a := p.Must(t, 422, "GET", planetest.WidgetsPath+"?watch=1&sendInitialEvents=true", ""); !strings.Contains(string(a.Body), "resourceVersionMatch") {
		t.Errorf("%s", a)
	}
}

func TestWatchAsTable(t *testing.T) {
	p := planetest.NewPlane(t)
	w := p.Watch(t, planetest.WidgetsPath+"?watch=1", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 2))
	a, b := w.Next(t), w.Next(t)
	if a.Object["kind"] != "Table" || a.Object["columnDefinitions"] == nil || b.Object["columnDefinitions"] != nil {
		t.Errorf("tables %v and %v", a.Object, b.Object)
	}
	if diff := cmp.Diff([]any{"b", 2.0}, b.Object["rows"].([]any)[0].(map[string]any)["cells"]); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}

// Quiet watches get bookmarks, of the log's revision and not only of their kind's; all
// end at their timeout, with a last one.
func TestBookmarksAndTimeout(t *testing.T) {
	planetest.Compile(t, planetest.Bundle)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p := planetest.StartReplica(t, store.Open(nil), 0)
		p.Bootstrap(t, planetest.Bundle)
		w := p.Watch(t, fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion=%d", planetest.WidgetsPath, p.Committer.Tip().Revision()))
		p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"other"}}`)
		began := time.Now()
		e := next10min(w, t)
		if took := time.Since(began); e.Type != "BOOKMARK" || e.Object["metadata"].(map[string]any)["resourceVersion"] != fmt.Sprint(p.Committer.Tip().Revision()) || took > time.Minute {
			t.Errorf("after %v: %v", took, e)
		}
		for e.Type == "BOOKMARK" {
			select {
			case e = <-w.Events:
			case <-w.Ended:
				if took := time.Since(began); took != 150*time.Second {
					t.Errorf("ended after %v", took)
				}
				return
			}
		}
		t.Errorf("event %v", e)
	})
}

func next10min(w *planetest.Watching, t testing.TB) planetest.WatchEvent {
	select {
	case e := <-w.Events:
		return e
	case <-time.After(10 * time.Minute):
		t.Fatal("no event")
	}
	return planetest.WatchEvent{}
}

func TestDrainEndsWatchesWithABookmark(t *testing.T) {
	p := planetest.NewPlane(t)
	now := fmt.Sprintf("&resourceVersion=%d", p.Committer.Tip().Revision())
	w := p.Watch(t, planetest.WidgetsPath+"?watch=1&allowWatchBookmarks=true"+now)
	plain := p.Watch(t, planetest.WidgetsPath+"?watch=1"+now)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	if e := w.Next(t); e.Type != "ADDED" {
		t.Fatal(e)
	}
	plain.Next(t)
	p.Drain()
	if e := w.Next(t); e.Type != "BOOKMARK" || e.Object["metadata"].(map[string]any)["resourceVersion"] != fmt.Sprint(p.Committer.Tip().Revision()) {
		t.Errorf("%v", e)
	}
	<-w.Ended
	<-plain.Ended
	if len(plain.Events) > 0 {
		t.Errorf("a watch without bookmarks got %v", <-plain.Events)
	}
}

// HEAD is for custom kinds alone: upstream has no route for it to those that are built in.
func TestHead(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 201, "POST", planetest.ConfigMapsPath, `{"metadata":{"name":"a"}}`)
	for path, code := range map[string]int{
		planetest.WidgetsPath: 200, planetest.WidgetsPath + "/a": 200, planetest.WidgetsPath + "/b": 404,
		planetest.ConfigMapsPath: 405, planetest.ConfigMapsPath + "/a": 405, planetest.ConfigMapsPath + "?watch=true": 405, "/api/v1/namespaces/default": 405,
		planetest.RolesPath: 405, planetest.RolesPath + "/view": 405, planetest.DefinitionsPath: 405,
	} {
		if a := p.Must(t, code, "HEAD", path, "", "Accept-Encoding", "gzip"); len(a.Body) > 0 {
			t.Errorf("%s: %s", path, a)
		}
		p.Must(t, 403, "HEAD", path, "", "Authorization", "Bearer nobody-token")
	}
}
