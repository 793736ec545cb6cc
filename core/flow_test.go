package core_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/core/resources/explain"
)

// narrow is the bundle of these tests with a flow schema of all users, with one watch in each namespace.
var narrow = strings.Replace(bundle, `	cluster: "test"`, `	cluster: "test"
	flow: flowSchemas: everybody: {
		matchingPrecedence: 2, priorityLevel: "workload-low", distinguisher: "ByNamespace", watches: 1
		subjects: [{user: "*"}]
		rules: all: {apiGroups: ["example.com"], resources: ["*"], verbs: ["watch"]}
	}`, 1)

// A client could name any number of namespaces, and have as many flows.
func TestNamespacesThatDoNotExistAreOneFlow(t *testing.T) {
	p := newPlane(t)
	p.push(t, policyBody(t, narrow, nil))
	p.must(t, 201, "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"present"}}`)
	path := func(namespace string) string {
		return fmt.Sprintf("/apis/example.com/v1/namespaces/%s/widgets?watch=1&resourceVersion=%d", namespace, p.committer.Tip().Revision())
	}
	const auth, user = "Authorization", "Bearer reader-token"
	p.watch(t, path("none-1"), auth, user)
	p.watch(t, path("default"), auth, user)
	p.watch(t, path("present"), auth, user)
	limit := regexp.MustCompile(`none|not exist`)
	for _, namespace := range []string{"none-2", "present"} {
		w, refused := p.tryWatch(t, path(namespace), auth, user)
		if w != nil {
			t.Fatalf("a second watch of %s begins", namespace)
		}
		if refused.code != 429 || limit.MatchString(strings.ReplaceAll(string(refused.body), namespace, "")) {
			t.Errorf("%s: %d %s, want 429, and nothing about whether the namespace exists", namespace, refused.code, refused.body)
		}
	}
	metrics := string(p.must(t, 200, "GET", "/metrics", "").body)
	if want := `apiserver_request_total{code="429",component="apiserver",dry_run="",group="example.com",resource="widgets",scope="namespace",subresource="",verb="WATCH",version="v1"} 2`; !strings.Contains(metrics, want) {
		t.Errorf("refused requests are counted as\n%s\nwant\n%s", strings.Join(regexp.MustCompile(`apiserver_request_total\{code="429".*`).FindAllString(metrics, -1), "\n"), want)
	}
}

// untouched is a body that fails the test if it is read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

// Bodies are read before requests take seats. Those of clients that may not send them would take the memory of others.
func TestLargeBodiesOfUnauthorizedRequestsAreNotRead(t *testing.T) {
	p := newPlane(t)
	for name, length := range map[string]int64{"large": 1 << 20, "of unknown length": -1} {
		q := request("POST", widgetsPath, "", "Authorization", "Bearer nobody-token", "Content-Type", "application/json")
		q.Body, q.ContentLength = io.NopCloser(untouched{t}), length
		if a := p.serve(q); a.code != http.StatusForbidden {
			t.Errorf("%s: %d %s, want 403", name, a.code, a.body)
		}
	}
}

// A request may wait long for its body or for seats. It is decided by the policy that is in force when the wait is over.
func TestARequestThatWaitedIsDecidedByTheNewestPolicy(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("seen", 1))
	list := func() (finish func() answer) {
		reader, writer := io.Pipe()
		q := request("GET", widgetsPath+"?resourceVersion=0", "", "Authorization", "Bearer reader-token")
		q.Body, q.ContentLength = reader, 2
		answered := make(chan answer, 1)
		go func() { answered <- p.serve(q) }()
		if _, err := writer.Write([]byte("{")); err != nil { // returns when the request reads its body
			t.Fatal(err)
		}
		return func() answer {
			_, _ = writer.Write([]byte("}"))
			writer.Close()
			return <-answered
		}
	}
	finish := list()
	p.must(t, 201, "POST", widgetsPath, widget("new", 1))
	if a := finish(); a.code != 200 || !strings.Contains(string(a.body), `"new"`) {
		t.Errorf("an object that was created during the wait is missing: %s", a)
	}
	finish = list()
	p.push(t, policyBody(t, strings.Replace(bundle, `bindings: readers: {clusterRole: "reader", subjects: [{user: "reader"}]`, `bindings: readers: {clusterRole: "reader", subjects: [{user: "another"}]`, 1), nil))
	if a := finish(); a.code != http.StatusForbidden {
		t.Errorf("a grant that was revoked during the wait still holds: %s", a)
	}
}

// A request that is refused before its kind is looked up is counted as what was asked.
func TestRefusedRequestsAreCountedByTheirVerb(t *testing.T) {
	p := newPlane(t)
	p.must(t, 403, "GET", widgetsPath, "", "Authorization", "Bearer nobody-token")
	p.must(t, 403, "GET", "/apis/example.com/v1/namespaces/default/unknowns", "", "Authorization", "Bearer nobody-token")
	metrics := string(p.must(t, 200, "GET", "/metrics", "").body)
	for _, want := range []string{
		`group="example.com",resource="widgets",scope="namespace",subresource="",verb="LIST",version="v1"} 1`,
		`group="",resource="",scope="",subresource="",verb="GET",version=""} 1`,
	} {
		if want = `apiserver_request_total{code="403",component="apiserver",dry_run="",` + want; !strings.Contains(metrics, want) {
			t.Errorf("counted as\n%s\nwant\n%s", strings.Join(regexp.MustCompile(`apiserver_request_total\{code="403".*`).FindAllString(metrics, -1), "\n"), want)
		}
	}
}

// An explanation says how many seats a request takes, if the user may do it: they depend on what there is.
func TestAnExplanationSaysTheSeats(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, strings.Replace(widget("large", 1), `"metadata":{`, `"metadata":{"annotations":{"a":"`+strings.Repeat("x", 250<<10)+`"},`, 1))
	for user, want := range map[string]int{"reader": 2, "nobody": 0} {
		e := p.explain(t, explain.Spec{Verb: "get", Group: "example.com", Version: "v1", Resource: "widgets", Namespace: "default", Name: "large", User: user})
		i := slices.IndexFunc(e.Status.Stages, func(s explain.Stage) bool { return s.Name == "flow" })
		if i < 0 {
			t.Fatalf("%s: no stage flow", user)
		}
		s := e.Status.Stages[i]
		if s.Flow.Seats != want || strings.Contains(s.Message, "2 seats") != (want == 2) || e.Status.Allowed != (want == 2) {
			t.Errorf("%s: %d seats, want %d: %s", user, s.Flow.Seats, want, s.Message)
		}
	}
}
