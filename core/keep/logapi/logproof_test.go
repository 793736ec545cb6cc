package logapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/keep/retention"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/proof"
)

const proofBundle = `
package test
import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		rbac: {
			clusterRoles: auditor: rules: paths: {nonResourceURLs: ["/log/head", "/log/proof", "/log/consistency"], verbs: ["get"]}
			bindings: auditors: {clusterRole: "auditor", subjects: [{group: "auditors"}], namespaces: ["*"]}
		}
	}
}
`

var (
	admin   = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}
	auditor = &user.DefaultInfo{Name: "eve", Groups: []string{"auditors"}}
	nobody  = &user.DefaultInfo{Name: "nobody"}
)

// asker sends requests to a plane.
type asker struct {
	*testing.T
	plane *planetest.Plane
}

func (a asker) ask(as *user.DefaultInfo, path string) (int, []byte) {
	w := httptest.NewRecorder()
	a.plane.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil).WithContext(authn.WithUser(a.Context(), as)))
	return w.Code, w.Body.Bytes()
}

// must returns the answer to a request that is allowed.
func (a asker) must(as *user.DefaultInfo, path string) []byte {
	a.Helper()
	code, body := a.ask(as, path)
	if code != http.StatusOK {
		a.Fatalf("%s: %d %s", path, code, body)
	}
	return body
}

func (a asker) head(path string) proof.TreeHead {
	a.Helper()
	head, err := proof.ParseHead(string(a.must(auditor, path)))
	if err != nil {
		a.Fatal(err)
	}
	return head
}

func start(t *testing.T) asker {
	return asker{t, planetest.Start(t, planetest.Options{Bundle: proofBundle})}
}

func TestProofsThatAreServedVerify(t *testing.T) {
	a := start(t)
	head, earlier := a.head("/log/head"), a.head("/log/head?size=2")
	if head.Log != a.plane.Log.ID() || earlier.Size != 2 || head.Size < 3 {
		t.Fatalf("heads %+v and %+v", earlier, head)
	}
	p, err := proof.DecodeInclusion(a.must(auditor, fmt.Sprintf("/log/proof?revision=%d&size=%d", earlier.Revision, head.Size)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Verify(head); err != nil {
		t.Error(err)
	}
	c, err := proof.DecodeConsistency(a.must(auditor, fmt.Sprintf("/log/consistency?from=2&to=%d", head.Size)))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Verify(earlier, head); err != nil {
		t.Error(err)
	}
}

// Whoever asks for heads gets one that stays comparable, and does not make the log grow without bound.
func TestHeadsThatAreHandedOutStayComparable(t *testing.T) {
	a := start(t)
	began := a.plane.Committer.Tip().Revision()
	var newest proof.TreeHead
	for i := range 30 {
		code := a.send(admin, http.MethodPost, "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%d"}}`, i))
		if code != http.StatusCreated {
			t.Fatal(code)
		}
		changed := a.head("/log/head")
		if changed.Size < newest.Size {
			t.Errorf("a head of size %d after one of size %d", changed.Size, newest.Size)
		}
		newest = changed
		batches, err := a.plane.Log.Back(t.Context(), newest.Revision, 1)
		if err != nil || batches[0].Hash != newest.Batch || !retention.KeepsForEver(batches[0]) {
			t.Errorf("the head of size %d ends with a batch that may be forgotten, %v", newest.Size, err)
		}
		if again := a.head(fmt.Sprint("/log/head?size=", newest.Size)); again != newest {
			t.Errorf("asked for by its size it is %+v, was %+v", again, newest)
		}
	}
	if grown := a.plane.Committer.Tip().Revision() - began; grown > 30+12 { // one more may be due after a minute
		t.Errorf("the log has grown by %d events", grown)
	}
	code, body := a.ask(auditor, fmt.Sprint("/log/head?size=", newest.Size+1))
	if code != http.StatusBadRequest || !strings.Contains(string(body), "ask for the newest head") {
		t.Errorf("a head that ends with a change: %d %s", code, body)
	}
}

// send sends a request with a body, and returns the code of the answer.
func (a asker) send(as *user.DefaultInfo, method, path, body string) int {
	r := httptest.NewRequest(method, path, strings.NewReader(body)).WithContext(authn.WithUser(a.Context(), as))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	a.plane.ServeHTTP(w, r)
	return w.Code
}

func TestContentsNeedAPermissionOfTheirOwn(t *testing.T) {
	a := start(t)
	query := ""
	for revision := a.head("/log/head").Revision; query == ""; revision-- { // the newest event with a payload
		if strings.Contains(string(a.must(auditor, fmt.Sprint("/log/proof?revision=", revision))), "\"hash\"") {
			query = fmt.Sprint("?revision=", revision)
		}
	}
	if text := a.must(auditor, "/log/proof"+query); strings.Contains(string(text), "\"salt\"") {
		t.Errorf("contents for who may not read them:\n%s", text)
	}
	if text := a.must(admin, "/log/proof/contents"+query); !strings.Contains(string(text), "\"content\"") {
		t.Errorf("no contents:\n%s", text)
	}
	for _, path := range []string{"/log/proof/contents" + query} {
		if code, body := a.ask(auditor, path); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for _, path := range []string{"/log/head", "/log/proof" + query, "/log/consistency?from=1"} {
		if code, body := a.ask(nobody, path); code != http.StatusForbidden {
			t.Errorf("%s by nobody: %d %s", path, code, body)
		}
	}
}

func TestBadRequests(t *testing.T) {
	a := start(t)
	for path, want := range map[string]int32{
		"/log/head?size=x":                  http.StatusBadRequest,
		"/log/head?size=0":                  http.StatusBadRequest,
		"/log/head?size=1000000":            http.StatusBadRequest,
		"/log/head?size=1&size=2":           http.StatusBadRequest,
		"/log/proof":                        http.StatusBadRequest,
		"/log/proof?revision=-1":            http.StatusBadRequest,
		"/log/proof?revision=1000000":       http.StatusNotFound,
		"/log/proof?revision=3&size=1":      http.StatusNotFound,
		"/log/consistency":                  http.StatusBadRequest,
		"/log/consistency?from=3&to=2":      http.StatusBadRequest,
		"/log/consistency?from=1&to=100000": http.StatusBadRequest,
	} {
		code, body := a.ask(auditor, path)
		var answer metav1.Status
		if err := json.Unmarshal(body, &answer); err != nil || int32(code) != want || answer.Code != want || answer.Message == "" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}
