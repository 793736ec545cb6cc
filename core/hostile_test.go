package core_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

func newConfined(t *testing.T) *planetest.Replica {
	t.Helper()
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, planetest.Confined)
	return p
}

// No path leads out of the namespace that a grant is for.
func TestAGrantInANamespaceStaysThere(t *testing.T) {
	p := newConfined(t)
	p.Must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"other"}}`)
	editor := []string{"Authorization", "Bearer editor-token"}
	const inside = "/api/v1/namespaces/default"
	p.Must(t, 200, "GET", inside, "", editor...) // as in Kubernetes, it is a part of itself
	p.Must(t, 200, "GET", inside+"/configmaps", "", editor...)
	for _, tc := range []struct{ method, path, body string }{
		{"GET", "/api/v1/namespaces", ""},
		{"GET", "/api/v1/namespaces/other", ""},
		{"GET", inside + "/namespaces", ""},
		{"GET", inside + "/namespaces/other", ""},
		{"GET", inside + "/namespaces/kube-system", ""},
		{"POST", inside + "/namespaces", `{"metadata":{"name":"mine"}}`},
		{"DELETE", inside + "/namespaces/other", ""},
		{"PUT", inside + "/namespaces/other", `{"metadata":{"name":"other"}}`},
		{"GET", "/api/v1/watch/namespaces/default/namespaces?timeoutSeconds=1", ""},
	} {
		if a := p.Do(tc.method, tc.path, tc.body, editor...); a.Code != 403 && a.Code != 404 && a.Code != 405 {
			t.Errorf("%s %s: %s", tc.method, tc.path, a)
		}
	}
	p.Must(t, 200, "GET", "/api/v1/namespaces/other", "")
	p.Must(t, 404, "GET", "/api/v1/namespaces/mine", "")
}

// Defaults must not turn a small body into an object that cannot be kept.
func TestObjectsThatDefaultsMakeTooLargeAreRefused(t *testing.T) {
	p := newConfined(t)
	before := p.Committer.Tip().Revision()
	body := func(n int) string {
		return `{"metadata":{"name":"l"},"spec":{"items":[{}` + strings.Repeat(",{}", n) + `]}}`
	}
	const lists = "/apis/example.com/v1/namespaces/default/lists"
	if a := p.Must(t, 413, "POST", lists, body(200_000)); !strings.Contains(string(a.Body), "with its defaults") || p.Committer.Tip().Revision() != before {
		t.Errorf("%s", a)
	}
	p.Must(t, 201, "POST", lists, body(20_000))
}

// Names from outside are no labels of metrics.
func TestMetricsAreBounded(t *testing.T) {
	p := planetest.NewPlane(t)
	for i := range 5 {
		p.Do("GET", fmt.Sprintf("/api/v1/namespaces/default/configmaps/x/junk%d", i), "")
		p.Do("GET", fmt.Sprintf("/apis/example.com/v1/junk%d", i), "")
		p.Do(fmt.Sprintf("JUNK%d", i), planetest.WidgetsPath, "")
	}
	if text := string(p.Must(t, 200, "GET", "/metrics", "").Body); strings.Contains(strings.ToLower(text), "junk") {
		t.Error("metrics have names that clients made up")
	}
}

func TestChangesAreSeenOnlyAsGranted(t *testing.T) {
	p := newConfined(t)
	reader := []string{"Authorization", "Bearer reader-token"}
	p.Must(t, 403, "GET", planetest.ChangesPath, "", reader...)
	p.Must(t, 403, "GET", planetest.ChangesPath+"/2", "", reader...)
	p.Must(t, 405, "DELETE", planetest.ChangesPath, "", reader...)
	a := p.Must(t, 200, "GET", "/apis/log.stele.dev/v1/watch/changes/1?timeoutSeconds=1", "", reader...)
	if n := strings.Count(string(a.Body), `"kind":"Change"`); n > 1 {
		t.Errorf("who may see one change sees %d", n)
	}
}

func TestANamespaceWithContentOutlivesItsFinalizers(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"x","finalizers":["example.com/x"]}}`)
	p.Must(t, 201, "POST", "/api/v1/namespaces/x/configmaps", `{"metadata":{"name":"c"}}`)
	p.Must(t, 200, "DELETE", "/api/v1/namespaces/x", "")
	p.Must(t, 200, "PUT", "/api/v1/namespaces/x/finalize", `{"metadata":{"name":"x","finalizers":["example.com/x"]}}`)
	release := func(code int) {
		t.Helper()
		p.Must(t, code, "PATCH", "/api/v1/namespaces/x", `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json")
	}
	release(200)
	p.Must(t, 200, "GET", "/api/v1/namespaces/x", "")
	if again := p.Must(t, 200, "DELETE", "/api/v1/namespaces/x", ""); again.Field("status", "phase") != "Terminating" {
		t.Errorf("deleted once more: %s", again)
	}
	p.Must(t, 200, "GET", "/api/v1/namespaces/x/configmaps/c", "")
	p.Must(t, 200, "DELETE", "/api/v1/namespaces/x/configmaps/c", "")
	release(200)
	p.Must(t, 404, "GET", "/api/v1/namespaces/x", "")
}

func TestClusterScopedKindsHavePages(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"a"}}`)
	p.Must(t, 201, "POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"b"}}`)
	for _, path := range []string{"/api/v1/namespaces", "/apis/example.com/v1/plains"} {
		first := p.Must(t, 200, "GET", path+"?limit=1", "")
		next := url.QueryEscape(fmt.Sprint(first.Field("metadata", "continue")))
		second := p.Must(t, 200, "GET", path+"?limit=1&continue="+next, "")
		if a, b := names(first), names(second); len(a) != 1 || len(b) != 1 || a[0] >= b[0] || second.Field("metadata", "continue") != nil {
			t.Errorf("%s: pages %v and %v", path, a, b)
		}
	}
}

// An exact list of one kind does not change what one of another kind answers.
func TestExactListsOfTwoKinds(t *testing.T) {
	p := planetest.NewPlane(t)
	for i := range 3 {
		p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, i))
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprintf("w%d", i), 1))
	}
	at := p.Committer.Tip().Revision()
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("later", 1))
	exact := fmt.Sprintf("?resourceVersion=%d&resourceVersionMatch=Exact", at)
	p.Must(t, 200, "GET", planetest.WidgetsPath+exact+"&limit=1", "")
	if got := names(p.Must(t, 200, "GET", "/api/v1/namespaces/default/configmaps"+exact, "")); len(got) != 3 {
		t.Errorf("configmaps at %d: %v", at, got)
	}
}

func names(a planetest.Answer) (list []string) {
	items, _ := a.Field("items").([]any)
	for _, item := range items {
		list = append(list, item.(map[string]any)["metadata"].(map[string]any)["name"].(string))
	}
	return list
}

// What is stored can be patched again, however it is written.
func TestTextOfHTMLTakesNoMoreRoomThanItself(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"c"},"data":{"a":"`+strings.Repeat("<", 700_000)+`"}}`)
	p.Must(t, 200, "PATCH", "/api/v1/namespaces/default/configmaps/c", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", "application/merge-patch+json")
}

// A client that sends half a request holds nothing for longer than the request may take.
func TestAStalledBodyEndsWithItsDeadline(t *testing.T) {
	p := planetest.NewPlane(t)
	s := httptest.NewServer(p)
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s?timeout=200ms HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", planetest.WidgetsPath)
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil && err != io.EOF || strings.Contains(line, " 20") {
		t.Errorf("answered with %q, %v", line, err)
	}
}

// What the reads of all namespaces by a name, and of a limit at a revision, are in
// Kubernetes.
func TestListsThatAreSpecial(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	at := p.Committer.Tip().Revision()
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1))
	p.Must(t, 201, "POST", "/apis/example.com/v1/namespaces/kube-system/widgets", planetest.Widget("a", 1))
	if got := names(p.Must(t, 200, "GET", "/apis/example.com/v1/widgets?fieldSelector=metadata.name%3Da", "")); len(got) != 2 {
		t.Errorf("by name in all namespaces: %v", got)
	}
	w := p.Watch(t, "/apis/example.com/v1/widgets?watch=1&fieldSelector=metadata.name%3Da")
	if e := w.Next(t); e.Type != "ADDED" {
		t.Errorf("%v", e)
	}
	exact := p.Must(t, 200, "GET", fmt.Sprintf("%s?limit=5&resourceVersion=%d", planetest.WidgetsPath, at), "")
	if got := names(exact); len(got) != 1 || exact.Field("metadata", "resourceVersion") != fmt.Sprint(at) {
		t.Errorf("a limit at revision %d: %v of %v", at, got, exact.Field("metadata", "resourceVersion"))
	}
}

func TestNamespacesKeepWhatOnlyTheServerSets(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"x","namespace":"y"}}`)
	a := p.Must(t, 200, "PATCH", "/api/v1/namespaces/x", `{"spec":{"finalizers":null},"metadata":{"labels":{"a":"b"}}}`, "Content-Type", "application/merge-patch+json")
	if got := fmt.Sprint(a.Field("spec", "finalizers")); got != "[kubernetes]" || a.Field("metadata", "namespace") != nil {
		t.Errorf("%s", a)
	}
}
