package core_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// Discovery and OpenAPI tell of the kinds and versions of then.
func TestWhatIsServedBelowAtIsOfThen(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 1)
	p.bootstrap(t, versioned("v1beta1"))
	before := p.committer.Tip().Revision()
	paths := []string{"/api", "/apis", "/api/v1", "/apis/example.com", "/apis/example.com/v1beta1", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/example.com/v1beta1", policiesPath}
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	ask := func(root string) map[string]string {
		said := map[string]string{}
		for _, path := range paths {
			said[path] = string(p.must(t, 200, "GET", root+path, "").body)
		}
		said["aggregated"] = string(p.must(t, 200, "GET", root+"/apis", "", "Accept", aggregated).body)
		return said
	}
	then := ask("")
	p.activate(t, versioned("v1beta1", "v1"))
	after := p.committer.Tip().Revision()
	if diff := cmp.Diff(then, ask(belowAt(before, ""))); diff != "" {
		t.Errorf("before the activation (-then +now):\n%s", diff)
	}
	if diff := cmp.Diff(ask(""), ask(belowAt(after, ""))); diff != "" {
		t.Errorf("at the activation (-now +there):\n%s", diff)
	}
	if text := p.must(t, 200, "GET", "/apis/example.com/v1", ""); !strings.Contains(string(text.body), "widgets") {
		t.Errorf("today: %s", text)
	}
	if text := p.must(t, 200, "GET", belowAt(before, "/apis/example.com/v1"), ""); strings.Contains(string(text.body), "widgets") {
		t.Errorf("then: %s", text)
	}
	if got, want := p.must(t, 200, "GET", belowAt(before, "/version"), ""), p.must(t, 200, "GET", "/version", ""); string(got.body) != string(want.body) {
		t.Errorf("version %s", got)
	}
	p.must(t, 404, "GET", belowAt(before, "/metrics"), "")
	moved := p.must(t, 301, "GET", belowAt(before, "/openapi/v3/apis/example.com/v1beta1?hash=other"), "")
	if to := moved.header.Get("Location"); !strings.HasPrefix(to, belowAt(before, "/openapi/v3/apis/example.com/v1beta1?hash=")) {
		t.Errorf("another hash leads to %s", to)
	}
}

// What is asked for in a version or kind of today is answered or refused with what there was.
func TestVersionsAndKindsThatWereNotServed(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 1)
	p.bootstrap(t, versioned("v1beta1"))
	p.must(t, 201, "POST", betaPath, `{"metadata":{"name":"w"},"spec":{"size":1}}`)
	before := p.committer.Tip().Revision()
	p.must(t, 200, "GET", belowAt(before, betaPath+"/w"), "")
	p.activate(t, both)
	p.must(t, 200, "PATCH", betaPath+"/w", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")

	a := p.must(t, 200, "GET", belowAt(before, widgetsPath+"/w"), "")
	if a.field("apiVersion") != "example.com/v1" || a.field("spec", "size") != 1.0 || !strings.Contains(strings.Join(a.header.Values("Warning"), ""), "converted now") {
		t.Errorf("in a version of today: %v %s", a.header.Values("Warning"), a)
	}
	for path, want := range map[string]string{
		"/apis/example.com/v2/namespaces/default/widgets":   "its versions were v1beta1",
		"/apis/example.com/v2/namespaces/default/widgets/w": "its versions were v1beta1",
		"/apis/none.example.com/v1/gizmos":                  "was not served at revision",
	} {
		if a := p.must(t, 404, "GET", belowAt(before, path), ""); !strings.Contains(fmt.Sprint(a.field("message")), want) {
			t.Errorf("%s: %s", path, a)
		}
	}
}

// A kind that is new says since when it is there.
func TestAKindThatCameLater(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 1)
	without, _, _ := strings.Cut(bundle, `		kinds: "plains.example.com"`)
	_, rest, _ := strings.Cut(bundle, `versions: v1: #schema: {spec?: {a?: int}}`+"\n\t\t}\n")
	p.bootstrap(t, without+rest)
	before := p.committer.Tip().Revision()
	p.activate(t, bundle)
	since := p.committer.Tip().Revision()
	a := p.must(t, 404, "GET", belowAt(before, "/apis/example.com/v1/plains"), "")
	if want := fmt.Sprintf("the kind is there since revision %d", since); !strings.Contains(fmt.Sprint(a.field("message")), want) {
		t.Errorf("%s, want %q", a, want)
	}
}

// Namespaces come and go: a get says so, a list is empty and says so in a warning.
func TestNamespacesThatWereNotThere(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 1)
	p.bootstrap(t, bundle)
	before := p.committer.Tip().Revision()
	came := p.namespace(t, "team")
	p.must(t, 200, "DELETE", "/api/v1/namespaces/team", "")
	p.finalize(t, "team")
	went := p.committer.Tip().Revision()
	const path = "/apis/example.com/v1/namespaces/team/widgets"
	for revision, want := range map[uint64]string{before: fmt.Sprintf("created at revision %d", came), went: fmt.Sprintf("deleted at revision %d", went)} {
		if a := p.must(t, 404, "GET", belowAt(revision, path+"/w"), ""); !strings.Contains(fmt.Sprint(a.field("message")), want) {
			t.Errorf("%s, want %q", a, want)
		}
		a := p.must(t, 200, "GET", belowAt(revision, path), "")
		if warning := strings.Join(a.header.Values("Warning"), ""); !strings.Contains(warning, want) || len(a.names()) > 0 {
			t.Errorf("warning %q, want %q", warning, want)
		}
	}
	if a := p.must(t, 200, "GET", belowAt(came, path), ""); a.header.Get("Warning") != "" {
		t.Errorf("while it was there: %v", a.header)
	}
}

// The past is read-only; whoever may not write today hears that instead.
func TestThePastIsReadOnly(t *testing.T) {
	p, moments := lived(t, 1)
	m, tip := moments[0].revision, p.committer.Tip().Revision()
	for _, tc := range []struct{ method, path, body string }{
		{"POST", widgetsPath, widget("new", 1)}, {"PUT", widgetsPath + "/w00", widget("w00", 1)}, {"PATCH", widgetsPath + "/w00", `{}`},
		{"DELETE", widgetsPath + "/w00", ""}, {"DELETE", widgetsPath, ""}, {"POST", policiesPath, `{}`}, {"DELETE", rolesPath + "/view", ""},
		{"PUT", widgetsPath + "/w00/status", widget("w00", 1)}, {"POST", "/api/v1/namespaces", `{"metadata":{"name":"x"}}`},
	} {
		a := p.must(t, 405, tc.method, belowAt(m, tc.path), tc.body)
		if a.field("reason") != "MethodNotAllowed" || !strings.Contains(fmt.Sprint(a.field("message")), fmt.Sprintf("as of revision %d, and read-only", m)) {
			t.Errorf("%s %s: %s", tc.method, tc.path, a)
		}
		p.must(t, 403, tc.method, belowAt(m, tc.path), tc.body, "Authorization", "Bearer nobody-token")
	}
	if now := p.committer.Tip().Revision(); now != tip {
		t.Errorf("the log went on from %d to %d", tip, now)
	}
}

// Access is today's business: who may read is decided now, and so are questions about it.
func TestAccessBelowAtIsTodays(t *testing.T) {
	p := newPlane(t)
	fill(t, p, 1)
	before := p.committer.Tip().Revision()
	const review = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"group":"example.com","resource":"widgets","verb":"get","namespace":"default"}}}`
	may := func() (int, any) {
		a := p.must(t, 201, "POST", belowAt(before, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"), review, "Authorization", "Bearer reader-token")
		return p.do("GET", belowAt(before, widgetsPath), "", "Authorization", "Bearer reader-token").code, a.field("status", "allowed")
	}
	if code, allowed := may(); code != 200 || allowed != true {
		t.Errorf("%d, allowed %v", code, allowed)
	}
	p.activate(t, strings.Replace(bundle, `{user: "reader"}`, `{user: "another"}`, 1))
	if code, allowed := may(); code != 403 || allowed != false {
		t.Errorf("when it is taken away: %d, allowed %v", code, allowed)
	}
	p.must(t, 401, "GET", belowAt(before, widgetsPath), "", "Authorization", "")
	p.must(t, 200, "GET", belowAt(before, "/version"), "", "Authorization", "")
}

// Moments that are none are refused with what would be one.
func TestMomentsThatAreNone(t *testing.T) {
	p := newRestored(t)
	p.must(t, 201, "POST", widgetsPath, widget("after", 1))
	tip := p.committer.Tip().Revision()
	for moment, want := range map[string]string{
		"":                     "400 is not a moment: want a revision that is above 0, as 1200, or a time of RFC 3339",
		"0":                    "400 is not a moment",
		"-1":                   "400 is not a moment",
		"yesterday":            "400 is not a moment",
		"2026-03-01":           "400 is not a moment",
		"2026-13-01T00:00:00Z": "400 is not a moment",
		"1e3":                  "400 is not a moment",
		"99999999999999999999": "400 is not a moment",
		fmt.Sprint(tip + 1):    fmt.Sprintf("504 Too large resource version: %d, current: %d", tip+1, tip),
		"2999-01-01T00:00:00Z": fmt.Sprintf("400 has not come yet: the newest revision is %d, of ", tip),
		"0001-01-01T00:00:00Z": "410 is before all that is known: the first revision is 1, of ",
		"1999-01-01T00:00:00Z": "410 is before all that is known: the first revision is 1, of ",
		fmt.Sprint(p.lost):     fmt.Sprintf("410 was lost when the log was restored: the nearest are %d before it, and those from %d on", p.lost-1, p.next),
		"1":                    "410 no policy was in force at revision 1",
	} {
		a := p.do("GET", belowAt(moment, widgetsPath), "")
		code, text, _ := strings.Cut(want, " ")
		if fmt.Sprint(a.code) != code || !strings.Contains(fmt.Sprint(a.field("message")), text) || a.field("kind") != "Status" {
			t.Errorf("%q: %s, want %s", moment, a, want)
		}
		// Of errors of discovery client-go shows nothing but warnings.
		if got := a.header.Values("Warning"); len(got) > 0 {
			t.Errorf("%q: a resource, and the warnings %q", moment, got)
		}
		a = p.do("GET", belowAt(moment, "/api"), "")
		warnings, errs := utilnet.ParseWarningHeaders(a.header.Values("Warning"))
		if fmt.Sprint(a.code) != code || len(errs) > 0 || len(warnings) != 1 || warnings[0].Text != a.field("message") {
			t.Errorf("%q: discovery: %s, with the warnings %q", moment, a, a.header.Values("Warning"))
		}
	}
	for _, query := range []string{"resourceVersion=%d", "resourceVersionMatch=Exact&resourceVersion=%d", "watch=1&resourceVersion=%d"} {
		a := p.must(t, 504, "GET", belowAt(tip-1, widgetsPath+"?"+fmt.Sprintf(query, tip)), "")
		if want := fmt.Sprintf("Too large resource version: %d, current: %d", tip, tip-1); !strings.Contains(fmt.Sprint(a.field("message")), want) {
			t.Errorf("%s, want %q", a, want)
		}
	}
}

// Changes are those up to the moment.
func TestChangesBelowAt(t *testing.T) {
	p, moments := lived(t, 1)
	m := moments[0].revision
	list := p.must(t, 200, "GET", belowAt(m, changesPath+"?limit=1"), "")
	if got := list.names(); !slices.Equal(got, []string{fmt.Sprint(m)}) || revision(t, list) != m {
		t.Errorf("the newest is %s", list)
	}
	p.must(t, 200, "GET", belowAt(m, fmt.Sprintf("%s/%d", changesPath, m)), "")
	p.must(t, 404, "GET", belowAt(m, fmt.Sprintf("%s/%d", changesPath, m+1)), "")
	w := p.watch(t, belowAt(m, fmt.Sprintf("%s?watch=1&resourceVersion=%d&timeoutSeconds=1&allowWatchBookmarks=true", changesPath, m-1)))
	if e := w.next(t); e.Type != "ADDED" || e.Object["metadata"].(map[string]any)["name"] != fmt.Sprint(m) {
		t.Errorf("%v", e)
	}
	if e := w.next(t); e.Type != "BOOKMARK" || e.Object["metadata"].(map[string]any)["resourceVersion"] != fmt.Sprint(m) {
		t.Errorf("%v", e)
	}
	<-w.ended
}

// A watch below /at has what there was, or what led to it, and then nothing but bookmarks.
func TestWatchesBelowAtEndInSilence(t *testing.T) {
	for _, text := range []string{bundle, graded, regraded, colorless} {
		planetest.Compile(t, text)
	}
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p := start(t, store.Open(nil), 1)
		p.bootstrap(t, bundle)
		fill(t, p, 2)
		from := p.committer.Tip().Revision()
		p.activate(t, graded)
		p.patch("w00", "merge", `{"spec":{"size":5}}`)
		p.must(t, 200, "DELETE", widgetsPath+"/w01", "")
		m := p.committer.Tip().Revision()
		p.must(t, 201, "POST", widgetsPath, widget("later", 1))
		for query, want := range map[string][]string{
			"":                   {"ADDED w00", "BOOKMARK <nil>"},
			"&resourceVersion=0": {"ADDED w00", "BOOKMARK <nil>"},
			"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan": {"ADDED w00", "BOOKMARK <nil>"},
			fmt.Sprintf("&resourceVersion=%d", m):                       nil,
			fmt.Sprintf("&resourceVersion=%d", from):                    {"MODIFIED w00", "MODIFIED w01", "MODIFIED w00", "DELETED w01"},
		} {
			began := time.Now()
			w := p.watch(t, belowAt(m, widgetsPath+"?watch=1&allowWatchBookmarks=true&timeoutSeconds=150"+query))
			var got []string
			bookmarks := 0
			for open := true; open; {
				select {
				case e := <-w.events:
					meta := e.Object["metadata"].(map[string]any)
					if e.Type == "BOOKMARK" && meta["annotations"] == nil {
						if bookmarks++; meta["resourceVersion"] != fmt.Sprint(m) {
							t.Errorf("%s: %v", query, e)
						}
						continue
					}
					got = append(got, fmt.Sprintf("%s %v", e.Type, meta["name"]))
				case <-w.ended:
					open = false
				}
			}
			if diff := cmp.Diff(want, got); diff != "" || bookmarks < 2 || time.Since(began) != 150*time.Second {
				t.Errorf("%q: %d bookmarks in %v (-want +got):\n%s", query, bookmarks, time.Since(began), diff)
			}
		}
		w := p.watch(t, belowAt(m, bindingsPath+fmt.Sprintf("?watch=1&resourceVersion=%d", from)))
		if e := w.next(t); e.Type != "MODIFIED" || e.Object["metadata"].(map[string]any)["name"] != "t:editors" {
			t.Errorf("what the policy says: %v", e)
		}
		w.stop()
	})
}

// A watch of the past ends when its watcher may not read any more today.
func TestAWatchBelowAtEndsWithItsPermission(t *testing.T) {
	p := newPlane(t)
	fill(t, p, 1)
	w := p.watch(t, belowAt(p.committer.Tip().Revision(), widgetsPath+"?watch=1"), "Authorization", "Bearer reader-token")
	w.next(t)
	p.activate(t, strings.Replace(bundle, `{user: "reader"}`, `{user: "another"}`, 1))
	if e := w.next(t); e.Type != "ERROR" || e.Object["code"] != 403.0 {
		t.Errorf("%v", e)
	}
}

// Kubernetes' own clients find their way below /at: discovery, and an informer that has the
// state of then and hears of nothing that came later.
func TestClientsBelowAt(t *testing.T) {
	p, moments := lived(t, 1)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL + belowAt(moments[2].revision, ""), BearerToken: "admin-token", QPS: -1}
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerResourcesForGroupVersion("example.com/v1")
	if err != nil || len(resources.APIResources) == 0 {
		t.Fatalf("%v %v", resources, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0)
	widgets := factory.ForResource(widgetsGVR)
	informer := widgets.Informer()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("not synced")
	}
	p.must(t, 201, "POST", widgetsPath, widget("now", 1))
	objects, err := widgets.Lister().List(labels.Everything())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		u := o.(*unstructured.Unstructured)
		grade, _, _ := unstructured.NestedString(u.Object, "spec", "grade")
		got = append(got, u.GetName()+" "+grade)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"w00 a", "w01 b", "w03 a"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := dynamic.NewForConfigOrDie(config).Resource(widgetsGVR).Namespace("default").Get(ctx, "now", metav1.GetOptions{}); err == nil {
		t.Error("what came later is there")
	}
}

// Clients of client-go try again by themselves where they are told when; a moment that has not come
// is none that is about to.
func TestMomentsThatHaveNotComeAreNotWaitedFor(t *testing.T) {
	p := newPlane(t)
	future := p.committer.Tip().Revision() + 1
	a := p.must(t, 504, "GET", fmt.Sprintf("/at/%d%s", future, widgetsPath), "")
	if retry, said := a.header["Retry-After"]; said || a.field("details", "retryAfterSeconds") != nil {
		t.Errorf("Retry-After %v: %s", retry, a)
	}
}
