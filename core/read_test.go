package core_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// names of the items of a list.
func (a answer) names() (names []string) {
	items, _ := a.field("items").([]any)
	for _, i := range items {
		names = append(names, i.(map[string]any)["metadata"].(map[string]any)["name"].(string))
	}
	return names
}

func fill(t testing.TB, p *replica, n int) {
	t.Helper()
	for i := range n {
		color := []string{"blue", "red", "green"}[i%3]
		p.must(t, 201, "POST", widgetsPath, fmt.Sprintf(`{"metadata":{"name":"w%02d","labels":{"mod":"%d"}},"spec":{"size":%d,"color":%q}}`, i, i%2, i+1, color))
	}
}

func TestListSelects(t *testing.T) {
	p := newPlane(t)
	fill(t, p, 6)
	p.must(t, 201, "POST", "/apis/example.com/v1/namespaces/kube-system/widgets", widget("elsewhere", 1))
	for _, tc := range []struct {
		path, query string
		want        []string
	}{
		{widgetsPath, "", []string{"w00", "w01", "w02", "w03", "w04", "w05"}},
		{"/apis/example.com/v1/widgets", "", []string{"w00", "w01", "w02", "w03", "w04", "w05", "elsewhere"}},
		{"/apis/example.com/v1/namespaces/none/widgets", "", nil},
		{widgetsPath, "labelSelector=mod=1", []string{"w01", "w03", "w05"}},
		{widgetsPath, "labelSelector=mod+in+(0,2)", []string{"w00", "w02", "w04"}},
		{widgetsPath, "labelSelector=!mod", nil},
		{widgetsPath, "fieldSelector=spec.color=red", []string{"w01", "w04"}},
		{widgetsPath, "fieldSelector=spec.color!=red", []string{"w00", "w02", "w03", "w05"}},
		{widgetsPath, "fieldSelector=metadata.name=w03", []string{"w03"}},
		{widgetsPath, "fieldSelector=metadata.name=w03,spec.color=red", nil},
		{"/apis/example.com/v1/widgets", "fieldSelector=metadata.namespace=kube-system", []string{"elsewhere"}},
		{widgetsPath, "labelSelector=mod=1&fieldSelector=spec.color=red", []string{"w01"}},
	} {
		a := p.must(t, 200, "GET", tc.path+"?"+tc.query, "")
		if diff := cmp.Diff(tc.want, a.names()); diff != "" {
			t.Errorf("%s?%s (-want +got):\n%s", tc.path, tc.query, diff)
		}
		if a.field("kind") != "WidgetList" || a.field("apiVersion") != "example.com/v1" || a.field("metadata", "resourceVersion") != fmt.Sprint(p.committer.Tip().Revision()) || a.field("items") == nil {
			t.Errorf("list %s", a)
		}
	}
}

// The pages of a list add up to what there was when it began, whatever happens
// meanwhile.
func TestPagesAreOfOneRevision(t *testing.T) {
	p := newPlane(t)
	fill(t, p, 10)
	whole := p.must(t, 200, "GET", widgetsPath, "")
	page := p.must(t, 200, "GET", widgetsPath+"?limit=3", "")
	items := page.field("items").([]any)
	if page.field("metadata", "remainingItemCount") != 7.0 {
		t.Errorf("remaining %v", page.field("metadata", "remainingItemCount"))
	}
	for page.field("metadata", "continue") != nil {
		p.must(t, 200, "DELETE", widgetsPath+"/"+fmt.Sprintf("w%02d", len(items)), "")
		p.must(t, 201, "POST", widgetsPath, widget(fmt.Sprintf("x%d", len(items)), 1))
		p.patch("w09", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, 100+len(items)))
		page = p.must(t, 200, "GET", widgetsPath+"?limit=3&continue="+page.field("metadata", "continue").(string), "")
		if page.field("metadata", "resourceVersion") != whole.field("metadata", "resourceVersion") {
			t.Errorf("a page at %v", page.field("metadata", "resourceVersion"))
		}
		items = append(items, page.field("items").([]any)...)
	}
	if diff := cmp.Diff(whole.field("items"), any(items)); diff != "" {
		t.Errorf("pages together (-want +got):\n%s", diff)
	}
	if a := p.must(t, 200, "GET", widgetsPath+"?limit=2&labelSelector=mod=1", ""); a.field("metadata", "remainingItemCount") != nil {
		t.Error("a selected list claims to know how many remain")
	}
}

func TestExactListIsThePast(t *testing.T) {
	p := newPlane(t)
	fill(t, p, 3)
	past := p.must(t, 200, "GET", widgetsPath, "")
	at := past.field("metadata", "resourceVersion").(string)
	p.must(t, 200, "DELETE", widgetsPath+"/w01", "")
	p.patch("w02", "merge", `{"spec":{"size":500}}`)
	if got := p.must(t, 200, "GET", widgetsPath+"?resourceVersionMatch=Exact&resourceVersion="+at, ""); string(got.body) != string(past.body) {
		t.Errorf("then\n%s\nnow\n%s", past.body, got.body)
	}
	for _, query := range []string{"resourceVersion=0", "resourceVersion=" + at, "resourceVersionMatch=NotOlderThan&resourceVersion=" + at} {
		if got := p.must(t, 200, "GET", widgetsPath+"?"+query, "").names(); !slices.Equal(got, []string{"w00", "w02"}) {
			t.Errorf("%s: %v", query, got)
		}
	}
}

// What has left memory goes on from history.
func TestWhatHasLeftMemoryIsThere(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 2<<10)
	p.bootstrap(t, bundle)
	fill(t, p, 5)
	whole := p.must(t, 200, "GET", widgetsPath, "")
	page := p.must(t, 200, "GET", widgetsPath+"?limit=2", "")
	token := page.field("metadata", "continue").(string)
	at := page.field("metadata", "resourceVersion").(string)
	p.forget(t, at)
	items := page.field("items").([]any)
	next := p.must(t, 200, "GET", widgetsPath+"?limit=5&continue="+token, "")
	if diff := cmp.Diff(whole.field("items"), any(append(items, next.field("items").([]any)...))); diff != "" {
		t.Errorf("pages together (-want +got):\n%s", diff)
	}
	if got := p.must(t, 200, "GET", widgetsPath+"?resourceVersionMatch=Exact&resourceVersion="+at, ""); string(got.body) != string(whole.body) {
		t.Errorf("then\n%s\nnow\n%s", whole.body, got.body)
	}
	w := p.watch(t, widgetsPath+"?watch=1&resourceVersion="+at)
	if e := w.next(t); what([]watchEvent{e}) != "ADDED forgetful" {
		t.Errorf("watch: %+v", e)
	}
}

// forget writes until a revision of widgets has left memory.
func (r *replica) forget(t testing.TB, revision string) {
	t.Helper()
	at, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, 201, "POST", widgetsPath, widget("forgetful", 1))
	waitFor(t, func() bool {
		r.patch("forgetful", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, 1+r.committer.Tip().Revision()%999))
		_, err := r.committer.Objects().At(widgetsResource, at)
		return errors.Is(err, objects.ErrExpired)
	})
	r.must(t, 200, "DELETE", widgetsPath+"/forgetful", "")
}

// waitFor waits for something that happens on its own.
func waitFor(t testing.TB, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited for a minute")
		}
	}
}

func TestOtherForms(t *testing.T) {
	p := newPlane(t)
	fill(t, p, 2)
	const tableAccept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	a := p.must(t, 200, "GET", widgetsPath, "", "Accept", tableAccept)
	rows, _ := a.field("rows").([]any)
	if a.field("kind") != "Table" || len(rows) != 2 {
		t.Fatalf("table %s", a)
	}
	if diff := cmp.Diff([]any{"w01", 2.0}, rows[1].(map[string]any)["cells"]); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	object := rows[0].(map[string]any)["object"].(map[string]any)
	if object["kind"] != "PartialObjectMetadata" || object["metadata"].(map[string]any)["name"] != "w00" || object["spec"] != nil {
		t.Errorf("row's object %v", object)
	}
	columns := a.field("columnDefinitions").([]any)
	if columns[0].(map[string]any)["format"] != "name" || columns[1].(map[string]any)["name"] != "Size" {
		t.Errorf("columns %v", columns)
	}
	if a := p.must(t, 200, "GET", widgetsPath+"/w00?includeObject=Object", "", "Accept", tableAccept); a.field("rows").([]any)[0].(map[string]any)["object"].(map[string]any)["spec"] == nil {
		t.Errorf("includeObject=Object: %s", a)
	}
	a = p.must(t, 200, "GET", widgetsPath, "", "Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	if a.field("kind") != "PartialObjectMetadataList" || a.field("items").([]any)[0].(map[string]any)["spec"] != nil || len(a.names()) != 2 {
		t.Errorf("metadata only: %s", a)
	}
	a = p.must(t, 200, "GET", widgetsPath+"/w00", "", "Accept", "application/yaml")
	if a.header.Get("Content-Type") != "application/yaml" || !strings.Contains(string(a.body), "\n  size: 1\n") {
		t.Errorf("YAML: %s", a.body)
	}
	a = p.must(t, 201, "POST", widgetsPath, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: from-yaml}\nspec: {size: 1}\n", "Content-Type", "application/yaml")
	if a.field("spec", "size") != 1.0 {
		t.Errorf("from YAML: %s", a)
	}
	if a := p.must(t, 200, "HEAD", widgetsPath+"/w00", ""); len(a.body) > 0 {
		t.Errorf("HEAD has a body: %s", a.body)
	}
	if a := p.must(t, 200, "GET", widgetsPath+"/w00?pretty=true", ""); !strings.Contains(string(a.body), "\n  \"kind\": \"Widget\"") {
		t.Errorf("pretty: %s", a.body)
	}
}

// watching is a client that watches.
type watching struct {
	events chan watchEvent
	ended  chan struct{}
	stop   context.CancelFunc
}

type watchEvent struct {
	Type   string         `json:"type"`
	Object map[string]any `json:"object"`
}

func (e watchEvent) String() string {
	meta, _ := e.Object["metadata"].(map[string]any)
	return fmt.Sprintf("%s %v@%v", e.Type, meta["name"], meta["resourceVersion"])
}

// pipeResponse is a ResponseWriter whose body can be read while it is written.
type pipeResponse struct {
	header http.Header
	code   chan int
	w      *io.PipeWriter
	once   bool
}

func (p *pipeResponse) Header() http.Header { return p.header }
func (p *pipeResponse) WriteHeader(code int) {
	if !p.once {
		p.once = true
		p.code <- code
	}
}
func (p *pipeResponse) Write(b []byte) (int, error) { p.WriteHeader(200); return p.w.Write(b) }
func (p *pipeResponse) Flush()                      {}

// watch fails the test unless the watch begins.
func (r *replica) watch(t testing.TB, path string, header ...string) *watching {
	t.Helper()
	w, refused := r.tryWatch(t, path, header...)
	if w == nil {
		t.Fatalf("watch %s: %s", path, refused)
	}
	return w
}

// tryWatch returns what the answer was if the watch does not begin.
func (r *replica) tryWatch(t testing.TB, path string, header ...string) (*watching, answer) {
	body, writer := io.Pipe()
	response := &pipeResponse{header: http.Header{}, code: make(chan int, 1), w: writer}
	ctx, cancel := context.WithCancel(context.Background())
	w := &watching{events: make(chan watchEvent, 1000), ended: make(chan struct{}), stop: cancel}
	go func() {
		defer writer.Close()
		r.ServeHTTP(response, request("GET", path, "", header...).WithContext(ctx))
	}()
	if code := <-response.code; code != 200 {
		text, _ := io.ReadAll(body)
		cancel()
		return nil, answer{code, response.header, text}
	}
	go func() {
		defer close(w.ended)
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 8<<20)
		for lines.Scan() {
			var e watchEvent
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = watchEvent{Type: "undecodable", Object: map[string]any{"text": lines.Text()}}
			}
			w.events <- e
		}
	}()
	t.Cleanup(cancel)
	return w, answer{}
}

func (w *watching) next(t testing.TB) watchEvent {
	t.Helper()
	select {
	case e := <-w.events:
		return e
	case <-w.ended:
		select {
		case e := <-w.events:
			return e
		default:
			t.Fatal("the watch has ended")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no event")
	}
	return watchEvent{}
}

func TestWatch(t *testing.T) {
	p := newPlane(t)
	fill(t, p, 1)
	at := p.must(t, 200, "GET", widgetsPath, "").field("metadata", "resourceVersion").(string)
	w := p.watch(t, widgetsPath+"?watch=true&resourceVersion="+at)
	red := p.watch(t, widgetsPath+"?watch=true&resourceVersion="+at+"&fieldSelector="+url.QueryEscape("spec.color=red"))
	one := p.watch(t, widgetsPath+"?watch=true&resourceVersion="+at+"&fieldSelector="+url.QueryEscape("metadata.name=b"))
	created := p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	patched := p.patch("a", "merge", `{"spec":{"color":"red"}}`)
	p.patch("a", "merge", `{"spec":{"color":"green"}}`)
	p.must(t, 201, "POST", widgetsPath, widget("b", 1))
	p.must(t, 200, "DELETE", widgetsPath+"/a", "")

	e := w.next(t)
	if diff := cmp.Diff(watchEvent{"ADDED", created.object()}, e); diff != "" {
		t.Errorf("first event (-want +got):\n%s", diff)
	}
	if e := w.next(t); e.Type != "MODIFIED" || e.Object["spec"].(map[string]any)["color"] != "red" {
		t.Errorf("second event %v", e)
	}
	w.next(t)
	w.next(t)
	if e := w.next(t); e.Type != "DELETED" || e.Object["metadata"].(map[string]any)["resourceVersion"] != fmt.Sprint(p.committer.Tip().Revision()) || e.Object["spec"].(map[string]any)["color"] != "green" {
		t.Errorf("last event %v", e)
	}
	if e := red.next(t); e.Type != "ADDED" || e.Object["metadata"].(map[string]any)["resourceVersion"] != patched.field("metadata", "resourceVersion") {
		t.Errorf("what became red: %v", e)
	}
	if e := red.next(t); e.Type != "DELETED" || e.Object["spec"].(map[string]any)["color"] != "red" {
		t.Errorf("what was red: %v", e)
	}
	if e := one.next(t); e.Type != "ADDED" || e.Object["metadata"].(map[string]any)["name"] != "b" {
		t.Errorf("by name: %v", e)
	}
}

func TestWatchBeginsWithWhatIsThere(t *testing.T) {
	p := newPlane(t)
	fill(t, p, 2)
	for _, query := range []string{"watch=1", "watch=1&resourceVersion=0"} {
		w := p.watch(t, widgetsPath+"?"+query)
		if a, b := w.next(t), w.next(t); a.Type != "ADDED" || b.Type != "ADDED" || a.Object["metadata"].(map[string]any)["name"] != "w00" {
			t.Errorf("%s: %v %v", query, a, b)
		}
	}
	w := p.watch(t, widgetsPath+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	w.next(t)
	w.next(t)
	e := w.next(t)
	meta := e.Object["metadata"].(map[string]any)
	if e.Type != "BOOKMARK" || meta["resourceVersion"] != fmt.Sprint(p.committer.Tip().Revision()) || meta["annotations"].(map[string]any)["k8s.io/initial-events-end"] != "true" || e.Object["kind"] != "Widget" {
		t.Errorf("end of the initial events: %v", e)
	}
	p.must(t, 201, "POST", widgetsPath, widget("later", 1))
	if e := w.next(t); e.Type != "ADDED" || e.Object["metadata"].(map[string]any)["name"] != "later" {
		t.Errorf("then: %v", e)
	}
	if a := p.must(t, 422, "GET", widgetsPath+"?watch=1&sendInitialEvents=true", ""); !strings.Contains(string(a.body), "resourceVersionMatch") {
		t.Errorf("%s", a)
	}
}

func TestWatchAsTable(t *testing.T) {
	p := newPlane(t)
	w := p.watch(t, widgetsPath+"?watch=1", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	p.must(t, 201, "POST", widgetsPath, widget("b", 2))
	a, b := w.next(t), w.next(t)
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
	planetest.Compile(t, bundle)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p := start(t, store.Open(nil), 0)
		p.bootstrap(t, bundle)
		w := p.watch(t, fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion=%d", widgetsPath, p.committer.Tip().Revision()))
		p.must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"other"}}`)
		began := time.Now()
		e := w.next10min(t)
		if took := time.Since(began); e.Type != "BOOKMARK" || e.Object["metadata"].(map[string]any)["resourceVersion"] != fmt.Sprint(p.committer.Tip().Revision()) || took > time.Minute {
			t.Errorf("after %v: %v", took, e)
		}
		for e.Type == "BOOKMARK" {
			select {
			case e = <-w.events:
			case <-w.ended:
				if took := time.Since(began); took != 150*time.Second {
					t.Errorf("ended after %v", took)
				}
				return
			}
		}
		t.Errorf("event %v", e)
	})
}

func (w *watching) next10min(t testing.TB) watchEvent {
	select {
	case e := <-w.events:
		return e
	case <-time.After(10 * time.Minute):
		t.Fatal("no event")
	}
	return watchEvent{}
}

func TestDrainEndsWatchesWithABookmark(t *testing.T) {
	p := newPlane(t)
	now := fmt.Sprintf("&resourceVersion=%d", p.committer.Tip().Revision())
	w := p.watch(t, widgetsPath+"?watch=1&allowWatchBookmarks=true"+now)
	plain := p.watch(t, widgetsPath+"?watch=1"+now)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	if e := w.next(t); e.Type != "ADDED" {
		t.Fatal(e)
	}
	plain.next(t)
	p.Drain()
	if e := w.next(t); e.Type != "BOOKMARK" || e.Object["metadata"].(map[string]any)["resourceVersion"] != fmt.Sprint(p.committer.Tip().Revision()) {
		t.Errorf("%v", e)
	}
	<-w.ended
	<-plain.ended
	if len(plain.events) > 0 {
		t.Errorf("a watch without bookmarks got %v", <-plain.events)
	}
}

// HEAD is for custom kinds alone: upstream has no route for it to those that are built in.
func TestHead(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	p.must(t, 201, "POST", configMapsPath, `{"metadata":{"name":"a"}}`)
	for path, code := range map[string]int{
		widgetsPath: 200, widgetsPath + "/a": 200, widgetsPath + "/b": 404,
		configMapsPath: 405, configMapsPath + "/a": 405, configMapsPath + "?watch=true": 405, "/api/v1/namespaces/default": 405,
		rolesPath: 405, rolesPath + "/view": 405, definitionsPath: 405,
	} {
		if a := p.must(t, code, "HEAD", path, "", "Accept-Encoding", "gzip"); len(a.body) > 0 {
			t.Errorf("%s: %s", path, a)
		}
		p.must(t, 403, "HEAD", path, "", "Authorization", "Bearer nobody-token")
	}
}
