package core_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
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
