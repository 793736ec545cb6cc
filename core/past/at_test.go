package past_test

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
	p := planetest.StartReplica(t, store.Open(nil), 1)
	p.Bootstrap(t, planetest.Versioned("v1beta1"))
	before := p.Committer.Tip().Revision()
	paths := []string{"/api", "/apis", "/api/v1", "/apis/example.com", "/apis/example.com/v1beta1", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/example.com/v1beta1", planetest.PoliciesPath}
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	ask := func(root string) map[string]string {
		said := map[string]string{}
		for _, path := range paths {
			said[path] = string(p.Must(t, 200, "GET", root+path, "").Body)
		}
		said["aggregated"] = string(p.Must(t, 200, "GET", root+"/apis", "", "Accept", aggregated).Body)
		return said
	}
	then := ask("")
	p.Activate(t, planetest.Versioned("v1beta1", "v1"))
	after := p.Committer.Tip().Revision()
	if diff := cmp.Diff(then, ask(planetest.BelowAt(before, ""))); diff != "" {
		t.Errorf("before the activation (-then +now):\n%s", diff)
	}
	if diff := cmp.Diff(ask(""), ask(planetest.BelowAt(after, ""))); diff != "" {
		t.Errorf("at the activation (-now +there):\n%s", diff)
	}
	if text := p.Must(t, 200, "GET", "/apis/example.com/v1", ""); !strings.Contains(string(text.Body), "widgets") {
		t.Errorf("today: %s", text)
	}
	if text := p.Must(t, 200, "GET", planetest.BelowAt(before, "/apis/example.com/v1"), ""); strings.Contains(string(text.Body), "widgets") {
		t.Errorf("then: %s", text)
	}
	if got, want := p.Must(t, 200, "GET", planetest.BelowAt(before, "/version"), ""), p.Must(t, 200, "GET", "/version", ""); string(got.Body) != string(want.Body) {
		t.Errorf("version %s", got)
	}
	p.Must(t, 404, "GET", planetest.BelowAt(before, "/metrics"), "")
	moved := p.Must(t, 301, "GET", planetest.BelowAt(before, "/openapi/v3/apis/example.com/v1beta1?hash=other"), "")
	if to := moved.Header.Get("Location"); !strings.HasPrefix(to, planetest.BelowAt(before, "/openapi/v3/apis/example.com/v1beta1?hash=")) {
		t.Errorf("another hash leads to %s", to)
	}
}

// What is asked for in a version or kind of today is answered or refused with what there was.
func TestVersionsAndKindsThatWereNotServed(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 1)
	p.Bootstrap(t, planetest.Versioned("v1beta1"))
	p.Must(t, 201, "POST", planetest.BetaPath, `{"metadata":{"name":"w"},"spec":{"size":1}}`)
	before := p.Committer.Tip().Revision()
	p.Must(t, 200, "GET", planetest.BelowAt(before, planetest.BetaPath+"/w"), "")
	p.Activate(t, planetest.Both)
	p.Must(t, 200, "PATCH", planetest.BetaPath+"/w", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")

	a := p.Must(t, 200, "GET", planetest.BelowAt(before, planetest.WidgetsPath+"/w"), "")
	if a.Field("apiVersion") != "example.com/v1" || a.Field("spec", "size") != 1.0 || !strings.Contains(strings.Join(a.Header.Values("Warning"), ""), "converted now") {
		t.Errorf("in a version of today: %v %s", a.Header.Values("Warning"), a)
	}
	for path, want := range map[string]string{
		"/apis/example.com/v2/namespaces/default/widgets":   "its versions were v1beta1",
		"/apis/example.com/v2/namespaces/default/widgets/w": "its versions were v1beta1",
		"/apis/none.example.com/v1/gizmos":                  "was not served at revision",
	} {
		if a := p.Must(t, 404, "GET", planetest.BelowAt(before, path), ""); !strings.Contains(fmt.Sprint(a.Field("message")), want) {
			t.Errorf("%s: %s", path, a)
		}
	}
}

// A kind that is new says since when it is there.
func TestAKindThatCameLater(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 1)
	without, _, _ := strings.Cut(planetest.Bundle, `		kinds: "plains.example.com"`)
	_, rest, _ := strings.Cut(planetest.Bundle, `versions: v1: #schema: {spec?: {a?: int}}`+"\n\t\t}\n")
	p.Bootstrap(t, without+rest)
	before := p.Committer.Tip().Revision()
	p.Activate(t, planetest.Bundle)
	since := p.Committer.Tip().Revision()
	a := p.Must(t, 404, "GET", planetest.BelowAt(before, "/apis/example.com/v1/plains"), "")
	if want := fmt.Sprintf("the kind is there since revision %d", since); !strings.Contains(fmt.Sprint(a.Field("message")), want) {
		t.Errorf("%s, want %q", a, want)
	}
}

// Namespaces come and go: a get says so, a list is empty and says so in a warning.
func TestNamespacesThatWereNotThere(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 1)
	p.Bootstrap(t, planetest.Bundle)
	before := p.Committer.Tip().Revision()
	came := p.Namespace(t, "team")
	p.Must(t, 200, "DELETE", "/api/v1/namespaces/team", "")
	p.Finalize(t, "team")
	went := p.Committer.Tip().Revision()
	const path = "/apis/example.com/v1/namespaces/team/widgets"
	for revision, want := range map[uint64]string{before: fmt.Sprintf("created at revision %d", came), went: fmt.Sprintf("deleted at revision %d", went)} {
		if a := p.Must(t, 404, "GET", planetest.BelowAt(revision, path+"/w"), ""); !strings.Contains(fmt.Sprint(a.Field("message")), want) {
			t.Errorf("%s, want %q", a, want)
		}
		a := p.Must(t, 200, "GET", planetest.BelowAt(revision, path), "")
		if warning := strings.Join(a.Header.Values("Warning"), ""); !strings.Contains(warning, want) || len(a.Names()) > 0 {
			t.Errorf("warning %q, want %q", warning, want)
		}
	}
	if a := p.Must(t, 200, "GET", planetest.BelowAt(came, path), ""); a.Header.Get("Warning") != "" {
		t.Errorf("while it was there: %v", a.Header)
	}
}

// The past is read-only; whoever may not write today hears that instead.
func TestThePastIsReadOnly(t *testing.T) {
	p, moments := lived(t, 1)
	m, tip := moments[0].revision, p.Committer.Tip().Revision()
	for _, tc := range []struct{ method, path, body string }{
		{"POST", planetest.WidgetsPath, planetest.Widget("new", 1)}, {"PUT", planetest.WidgetsPath + "/w00", planetest.Widget("w00", 1)}, {"PATCH", planetest.WidgetsPath + "/w00", `{}`},
		{"DELETE", planetest.WidgetsPath + "/w00", ""}, {"DELETE", planetest.WidgetsPath, ""}, {"POST", planetest.PoliciesPath, `{}`}, {"DELETE", planetest.RolesPath + "/view", ""},
		{"PUT", planetest.WidgetsPath + "/w00/status", planetest.Widget("w00", 1)}, {"POST", "/api/v1/namespaces", `{"metadata":{"name":"x"}}`},
	} {
		a := p.Must(t, 405, tc.method, planetest.BelowAt(m, tc.path), tc.body)
		if a.Field("reason") != "MethodNotAllowed" || !strings.Contains(fmt.Sprint(a.Field("message")), fmt.Sprintf("as of revision %d, and read-only", m)) {
			t.Errorf("%s %s: %s", tc.method, tc.path, a)
		}
		p.Must(t, 403, tc.method, planetest.BelowAt(m, tc.path), tc.body, "Authorization", "Bearer nobody-token")
	}
	if now := p.Committer.Tip().Revision(); now != tip {
		t.Errorf("the log went on from %d to %d", tip, now)
	}
}

// Access is today's business: who may read is decided now, and so are questions about it.
func TestAccessBelowAtIsTodays(t *testing.T) {
	p := planetest.NewPlane(t)
	planetest.Fill(t, p, 1)
	before := p.Committer.Tip().Revision()
	const review = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"group":"example.com","resource":"widgets","verb":"get","namespace":"default"}}}`
	may := func() (int, any) {
		a := p.Must(t, 201, "POST", planetest.BelowAt(before, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"), review, "Authorization", "Bearer reader-token")
		return p.Do("GET", planetest.BelowAt(before, planetest.WidgetsPath), "", "Authorization", "Bearer reader-token").Code, a.Field("status", "allowed")
	}
	if code, allowed := may(); code != 200 || allowed != true {
		t.Errorf("%d, allowed %v", code, allowed)
	}
	p.Activate(t, strings.Replace(planetest.Bundle, `{user: "reader"}`, `{user: "another"}`, 1))
	if code, allowed := may(); code != 403 || allowed != false {
		t.Errorf("when it is taken away: %d, allowed %v", code, allowed)
	}
	p.Must(t, 401, "GET", planetest.BelowAt(before, planetest.WidgetsPath), "", "Authorization", "")
	p.Must(t, 200, "GET", planetest.BelowAt(before, "/version"), "", "Authorization", "")
}

// Moments that are none are refused with what would be one.
func TestMomentsThatAreNone(t *testing.T) {
	p := planetest.NewRestored(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("after", 1))
	tip := p.Committer.Tip().Revision()
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
		fmt.Sprint(p.Lost):     fmt.Sprintf("410 was lost when the log was restored: the nearest are %d before it, and those from %d on", p.Lost-1, p.Next),
		"1":                    "410 no policy was in force at revision 1",
	} {
		a := p.Do("GET", planetest.BelowAt(moment, planetest.WidgetsPath), "")
		code, text, _ := strings.Cut(want, " ")
		if fmt.Sprint(a.Code) != code || !strings.Contains(fmt.Sprint(a.Field("message")), text) || a.Field("kind") != "Status" {
			t.Errorf("%q: %s, want %s", moment, a, want)
		}
		// Of errors of discovery client-go shows nothing but warnings.
		if got := a.Header.Values("Warning"); len(got) > 0 {
			t.Errorf("%q: a resource, and the warnings %q", moment, got)
		}
		a = p.Do("GET", planetest.BelowAt(moment, "/api"), "")
		warnings, errs := utilnet.ParseWarningHeaders(a.Header.Values("Warning"))
		if fmt.Sprint(a.Code) != code || len(errs) > 0 || len(warnings) != 1 || warnings[0].Text != a.Field("message") {
			t.Errorf("%q: discovery: %s, with the warnings %q", moment, a, a.Header.Values("Warning"))
		}
	}
	for _, query := range []string{"resourceVersion=%d", "resourceVersionMatch=Exact&resourceVersion=%d", "watch=1&resourceVersion=%d"} {
		a := p.Must(t, 504, "GET", planetest.BelowAt(tip-1, planetest.WidgetsPath+"?"+fmt.Sprintf(query, tip)), "")
		if want := fmt.Sprintf("Too large resource version: %d, current: %d", tip, tip-1); !strings.Contains(fmt.Sprint(a.Field("message")), want) {
			t.Errorf("%s, want %q", a, want)
		}
	}
}

// Changes are those up to the moment.
func TestChangesBelowAt(t *testing.T) {
	p, moments := lived(t, 1)
	m := moments[0].revision
	list := p.Must(t, 200, "GET", planetest.BelowAt(m, planetest.ChangesPath+"?limit=1"), "")
	if got := list.Names(); !slices.Equal(got, []string{fmt.Sprint(m)}) || planetest.Revision(t, list) != m {
		t.Errorf("the newest is %s", list)
	}
	p.Must(t, 200, "GET", planetest.BelowAt(m, fmt.Sprintf("%s/%d", planetest.ChangesPath, m)), "")
	p.Must(t, 404, "GET", planetest.BelowAt(m, fmt.Sprintf("%s/%d", planetest.ChangesPath, m+1)), "")
	w := p.Watch(t, planetest.BelowAt(m, fmt.Sprintf("%s?watch=1&resourceVersion=%d&timeoutSeconds=1&allowWatchBookmarks=true", planetest.ChangesPath, m-1)))
	if e := w.Next(t); e.Type != "ADDED" || e.Object["metadata"].(map[string]any)["name"] != fmt.Sprint(m) {
		t.Errorf("%v", e)
	}
	if e := w.Next(t); e.Type != "BOOKMARK" || e.Object["metadata"].(map[string]any)["resourceVersion"] != fmt.Sprint(m) {
		t.Errorf("%v", e)
	}
	<-w.Ended
}

// A watch below /at has what there was, or what led to it, and then nothing but bookmarks.
func TestWatchesBelowAtEndInSilence(t *testing.T) {
	for _, text := range []string{planetest.Bundle, planetest.Graded, planetest.Regraded, planetest.Colorless} {
		planetest.Compile(t, text)
	}
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p := planetest.StartReplica(t, store.Open(nil), 1)
		p.Bootstrap(t, planetest.Bundle)
		planetest.Fill(t, p, 2)
		from := p.Committer.Tip().Revision()
		p.Activate(t, planetest.Graded)
		p.Patch("w00", "merge", `{"spec":{"size":5}}`)
		p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w01", "")
		m := p.Committer.Tip().Revision()
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("later", 1))
		for query, want := range map[string][]string{
			"":                   {"ADDED w00", "BOOKMARK <nil>"},
			"&resourceVersion=0": {"ADDED w00", "BOOKMARK <nil>"},
			"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan": {"ADDED w00", "BOOKMARK <nil>"},
			fmt.Sprintf("&resourceVersion=%d", m):                       nil,
			fmt.Sprintf("&resourceVersion=%d", from):                    {"MODIFIED w00", "MODIFIED w01", "MODIFIED w00", "DELETED w01"},
		} {
			began := time.Now()
			w := p.Watch(t, planetest.BelowAt(m, planetest.WidgetsPath+"?watch=1&allowWatchBookmarks=true&timeoutSeconds=150"+query))
			var got []string
			bookmarks := 0
			for open := true; open; {
				select {
				case e := <-w.Events:
					meta := e.Object["metadata"].(map[string]any)
					if e.Type == "BOOKMARK" && meta["annotations"] == nil {
						if bookmarks++; meta["resourceVersion"] != fmt.Sprint(m) {
							t.Errorf("%s: %v", query, e)
						}
						continue
					}
					got = append(got, fmt.Sprintf("%s %v", e.Type, meta["name"]))
				case <-w.Ended:
					open = false
				}
			}
			if diff := cmp.Diff(want, got); diff != "" || bookmarks < 2 || time.Since(began) != 150*time.Second {
				t.Errorf("%q: %d bookmarks in %v (-want +got):\n%s", query, bookmarks, time.Since(began), diff)
			}
		}
		w := p.Watch(t, planetest.BelowAt(m, planetest.DefinitionsPath+fmt.Sprintf("?watch=1&resourceVersion=%d", from)))
		if e := w.Next(t); e.Type != "MODIFIED" || e.Object["metadata"].(map[string]any)["name"] != "widgets.example.com" {
			t.Errorf("what the policy says: %v", e)
		}
		w.Stop()
	})
}

// A watch of the past ends when its watcher may not read any more today.
func TestAWatchBelowAtEndsWithItsPermission(t *testing.T) {
	p := planetest.NewPlane(t)
	planetest.Fill(t, p, 1)
	w := p.Watch(t, planetest.BelowAt(p.Committer.Tip().Revision(), planetest.WidgetsPath+"?watch=1"), "Authorization", "Bearer reader-token")
	w.Next(t)
	p.Activate(t, strings.Replace(planetest.Bundle, `{user: "reader"}`, `{user: "another"}`, 1))
	if e := w.Next(t); e.Type != "ERROR" || e.Object["code"] != 403.0 {
		t.Errorf("%v", e)
	}
}

// Kubernetes' own clients find their way below /at: discovery, and an informer that has the
// state of then and hears of nothing that came later.
func TestClientsBelowAt(t *testing.T) {
	p, moments := lived(t, 1)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL + planetest.BelowAt(moments[2].revision, ""), BearerToken: "admin-token", QPS: -1}
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerResourcesForGroupVersion("example.com/v1")
	if err != nil || len(resources.APIResources) == 0 {
		t.Fatalf("%v %v", resources, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0)
	widgets := factory.ForResource(planetest.WidgetsGVR)
	informer := widgets.Informer()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("not synced")
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("now", 1))
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
	if _, err := dynamic.NewForConfigOrDie(config).Resource(planetest.WidgetsGVR).Namespace("default").Get(ctx, "now", metav1.GetOptions{}); err == nil {
		t.Error("what came later is there")
	}
}

// Clients of client-go try again by themselves where they are told when; a moment that has not come
// is none that is about to.
func TestMomentsThatHaveNotComeAreNotWaitedFor(t *testing.T) {
	p := planetest.NewPlane(t)
	future := p.Committer.Tip().Revision() + 1
	a := p.Must(t, 504, "GET", fmt.Sprintf("/at/%d%s", future, planetest.WidgetsPath), "")
	if retry, said := a.Header["Retry-After"]; said || a.Field("details", "retryAfterSeconds") != nil {
		t.Errorf("Retry-After %v: %s", retry, a)
	}
}
