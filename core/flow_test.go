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
	"stele.dev/stele/core/run/plane/planetest"
)

// narrow is the bundle of these tests with a flow schema of all users, with one watch in each namespace.
var narrow = strings.Replace(planetest.Bundle, `	cluster: "test"`, `	cluster: "test"
	flow: flowSchemas: everybody: {
		matchingPrecedence: 2, priorityLevel: "workload-low", distinguisher: "ByNamespace", watches: 1
		subjects: [{user: "*"}]
		rules: all: {apiGroups: ["example.com"], resources: ["*"], verbs: ["watch"]}
	}`, 1)

// A client could name any number of namespaces, and have as many flows.
func TestNamespacesThatDoNotExistAreOneFlow(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Push(t, planetest.PolicyBody(t, narrow, nil))
	p.Must(t, 201, "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"present"}}`)
	path := func(namespace string) string {
		return fmt.Sprintf("/apis/example.com/v1/namespaces/%s/widgets?watch=1&resourceVersion=%d", namespace, p.Committer.Tip().Revision())
	}
	const auth, user = "Authorization", "Bearer reader-token"
	p.Watch(t, path("none-1"), auth, user)
	p.Watch(t, path("default"), auth, user)
	p.Watch(t, path("present"), auth, user)
	limit := regexp.MustCompile(`none|not exist`)
	for _, namespace := range []string{"none-2", "present"} {
		w, refused := p.TryWatch(t, path(namespace), auth, user)
		if w != nil {
			t.Fatalf("a second watch of %s begins", namespace)
		}
		if refused.Code != 429 || limit.MatchString(strings.ReplaceAll(string(refused.Body), namespace, "")) {
			t.Errorf("%s: %d %s, want 429, and nothing about whether the namespace exists", namespace, refused.Code, refused.Body)
		}
	}
	metrics := string(p.Must(t, 200, "GET", "/metrics", "").Body)
	if want := `apiserver_request_total{code="429",component="apiserver",dry_run="",group="example.com",resource="widgets",scope="namespace",subresource="",verb="WATCH",version="v1"} 2`; !strings.Contains(metrics, want) {
		t.Errorf("refused requests are counted as\n%s\nwant\n%s", strings.Join(regexp.MustCompile(`apiserver_request_total\{code="429".*`).FindAllString(metrics, -1), "\n"), want)
	}
	if want := `apiserver_request_terminations_total{code="429",component="apiserver",group="example.com",resource="widgets",scope="namespace",subresource="",verb="WATCH",version="v1"} 2`; !strings.Contains(metrics, want) {
		t.Errorf("the metrics lack %s", want)
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
	p := planetest.NewPlane(t)
	for name, length := range map[string]int64{"large": 1 << 20, "of unknown length": -1} {
		q := planetest.Request("POST", planetest.WidgetsPath, "", "Authorization", "Bearer nobody-token", "Content-Type", "application/json")
		q.Body, q.ContentLength = io.NopCloser(untouched{t}), length
		if a := p.Serve(q); a.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s, want 403", name, a.Code, a.Body)
		}
	}
}

// A request may wait long for its body or for seats. It is decided by the policy that is in force when the wait is over.
func TestARequestThatWaitedIsDecidedByTheNewestPolicy(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("seen", 1))
	list := func() (finish func() planetest.Answer) {
		reader, writer := io.Pipe()
		q := planetest.Request("GET", planetest.WidgetsPath+"?resourceVersion=0", "", "Authorization", "Bearer reader-token")
		q.Body, q.ContentLength = reader, 2
		answered := make(chan planetest.Answer, 1)
		go func() { answered <- p.Serve(q) }()
		if _, err := writer.Write([]byte("{")); err != nil { // returns when the request reads its body
			t.Fatal(err)
		}
		return func() planetest.Answer {
			_, _ = writer.Write([]byte("}"))
			writer.Close()
			return <-answered
		}
	}
	finish := list()
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("new", 1))
	if a := finish(); a.Code != 200 || !strings.Contains(string(a.Body), `"new"`) {
		t.Errorf("an object that was created during the wait is missing: %s", a)
	}
	finish = list()
	p.Push(t, planetest.PolicyBody(t, strings.Replace(planetest.Bundle, `bindings: readers: {clusterRole: "reader", subjects: [{user: "reader"}]`, `bindings: readers: {clusterRole: "reader", subjects: [{user: "another"}]`, 1), nil))
	if a := finish(); a.Code != http.StatusForbidden {
		t.Errorf("a grant that was revoked during the wait still holds: %s", a)
	}
}

// A request that is refused before its kind is looked up is counted as what was asked.
func TestRefusedRequestsAreCountedByTheirVerb(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 403, "GET", planetest.WidgetsPath, "", "Authorization", "Bearer nobody-token")
	p.Must(t, 403, "GET", "/apis/example.com/v1/namespaces/default/unknowns", "", "Authorization", "Bearer nobody-token")
	metrics := string(p.Must(t, 200, "GET", "/metrics", "").Body)
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
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, strings.Replace(planetest.Widget("large", 1), `"metadata":{`, `"metadata":{"annotations":{"a":"`+strings.Repeat("x", 250<<10)+`"},`, 1))
	for user, want := range map[string]int{"reader": 2, "nobody": 0} {
		e := p.Explain(t, explain.Spec{Verb: "get", Group: "example.com", Version: "v1", Resource: "widgets", Namespace: "default", Name: "large", User: user})
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
