package core_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// guarded is a bundle whose user "eddie" may do everything in the namespace default, and "helper" everything with the Secret "mine"
// there.
const guarded = `
package test
import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		rbac: {
			clusterRoles: all: rules: r: {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
			clusterRoles: one: rules: r: {apiGroups: [""], resources: ["secrets"], resourceNames: ["mine"], verbs: ["*"]}
			bindings: a: {clusterRole: "all", subjects: [{user: "eddie"}], namespaces: ["default"]}
			bindings: b: {clusterRole: "one", subjects: [{user: "helper"}], namespaces: ["default"]}
		}
	}
}
`

const planted = "cGxhbnRlZA=="

func startGuarded(t *testing.T) (p *planetest.Replica, before uint64) {
	t.Helper()
	var store memlog.Store
	p = planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, guarded)
	p.Must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"other"}}`)
	p.Must(t, 201, "POST", "/api/v1/namespaces/other/secrets", `{"metadata":{"name":"theirs"},"data":{"k":"`+planted+`"}}`)
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"theirs"},"data":{"k":"`+planted+`"}}`)
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"mine"},"data":{"k":"bWluZQ=="}}`)
	return p, p.Committer.Tip().Revision()
}

// What is authorized is what is read, however a path is spelled.
func TestNoSpellingOfAPathLeadsToAnotherNamespace(t *testing.T) {
	p, revision := startGuarded(t)
	at := fmt.Sprintf("/at/%d", revision)
	const inside, outside = "/api/v1/namespaces/default/secrets/theirs", "/api/v1/namespaces/other/secrets/theirs"
	eddie := []string{"Authorization", "Bearer editor-token"}
	for _, path := range []string{inside, at + inside} { // what follows finds nothing because of its spelling, not because of its user
		if a := p.Must(t, 200, "GET", path, "", eddie...); !strings.Contains(string(a.Body), planted) {
			t.Fatalf("%s: %s", path, a)
		}
	}
	for _, path := range []string{
		outside,
		"/" + outside,
		outside + "/",
		"//api//v1//namespaces//other//secrets//theirs",
		"/api/v1/namespaces/default/../other/secrets/theirs",
		"/api/v1/namespaces/default/%2e%2e/other/secrets/theirs",
		"/api/v1/namespaces/default%2f..%2fother/secrets/theirs",
		"/api/v1/namespaces/default/secrets/..%2f..%2fother%2fsecrets%2ftheirs",
		"/api/v1/./namespaces/other/./secrets/theirs",
		"/api/v1/namespaces/other;default/secrets/theirs",
		"/api/v1/namespaces/default;/../other/secrets/theirs",
		"/api/v1/namespaces/other%00default/secrets/theirs",
		"/api/v1/namespaces/OTHER/secrets/theirs",
		"/API/v1/namespaces/other/secrets/theirs",
		"/api/v1/namespaces/other/Secrets/theirs",
		"/api/v1/namespaces/default/secrets/theirs/../../../other/secrets/theirs",
		"/api/v1/namespaces/default/namespaces/other/secrets/theirs",
		"/api/v1/secrets/theirs",
		"/api/v1/secrets?fieldSelector=metadata.namespace%3Dother",
		"/api/v1/secrets?namespace=default",
		"/api/v1/namespaces/default/secrets?namespace=other",
		"/api/v1/namespaces/default/secrets?fieldSelector=metadata.namespace%3Dother",
		"/api/v1/watch/namespaces/other/secrets?timeoutSeconds=1",
		"/api/v1/watch/namespaces/other/secrets/theirs?timeoutSeconds=1",
		"/api/v1/watch/secrets?timeoutSeconds=1",
		"/api/v1/proxy/namespaces/other/secrets/theirs",
		"/apis//v1/namespaces/other/secrets/theirs",
		"/apis/v1/namespaces/other/secrets/theirs",
		"/apis/core/v1/namespaces/other/secrets/theirs",
		at + outside,
		at + at + outside,
		at + "/.." + outside,
		at + inside + "/../../../other/secrets/theirs",
		"/at/../api/v1/namespaces/other/secrets/theirs",
		"/at/" + outside,
		"/at/now" + outside,
		"/at/%2e%2e/api/v1/namespaces/other/secrets/theirs",
		"/healthz/../api/v1/namespaces/other/secrets/theirs",
		"/version/../api/v1/namespaces/other/secrets/theirs",
		"/log/../api/v1/namespaces/other/secrets/theirs",
	} {
		a, head := serveRaw(p, "GET", path, eddie...), serveRaw(p, "HEAD", path, eddie...)
		if strings.Contains(string(a.Body), planted) && !strings.HasPrefix(path, "/api/v1/namespaces/default/secrets?namespace=") || head.Code == 200 && a.Code != 200 {
			t.Errorf("%s: %s; HEAD %d", path, a, head.Code)
		}
	}
	for _, header := range []string{"X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method", "X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Prefix"} {
		value := "DELETE"
		if strings.HasSuffix(header, "URL") || strings.HasSuffix(header, "Prefix") {
			value = outside
		}
		p.Do("GET", inside, "", append(eddie, header, value)...)
		p.Do("POST", "/api/v1/namespaces/default/secrets", "{}", append(eddie, header, value)...)
		p.Must(t, 200, "GET", inside, "")
	}
}

// serveRaw sends a path as it is written, as net/http would parse it. A path that is no URL is answered 400 there.
func serveRaw(p *planetest.Replica, method, path string, header ...string) planetest.Answer {
	parsed, err := url.ParseRequestURI(path)
	if err != nil {
		return planetest.Answer{Code: http.StatusBadRequest}
	}
	q := planetest.Request(method, "/", "", header...)
	q.URL, q.RequestURI = parsed, path
	w := httptest.NewRecorder()
	p.ServeHTTP(w, q)
	return planetest.Answer{Code: w.Code, Header: w.Header(), Body: w.Body.Bytes()}
}

// A grant for the name of one object shows and changes no other one, whatever selects it.
func TestAGrantOfANameIsForThatObject(t *testing.T) { synctest.Test(t, grantOfAName) }

func grantOfAName(t *testing.T) {
	p, _ := startGuarded(t)
	helper := []string{"Authorization", "Bearer helper-token"}
	const secrets = "/api/v1/namespaces/default/secrets"
	p.Must(t, 200, "GET", secrets+"/mine", "", helper...)
	p.Must(t, 200, "GET", secrets+"?fieldSelector=metadata.name%3Dmine", "", helper...)
	continued := p.Must(t, 200, "GET", secrets+"?limit=1", "").Field("metadata", "continue")
	for i, query := range []string{
		"", "?fieldSelector=", "?fieldSelector=metadata.name%3Dtheirs", "?fieldSelector=metadata.name!%3Dmine", "?fieldSelector=metadata.name!%3Dx",
		"?fieldSelector=metadata.name%3Dmine,metadata.name%3Dtheirs", "?fieldSelector=metadata.name%3Dtheirs,metadata.name%3Dmine",
		"?fieldSelector=metadata.name%3Dmine&fieldSelector=metadata.name%3Dtheirs", "?fieldSelector=metadata.name%3Dtheirs&fieldSelector=metadata.name%3Dmine",
		"?fieldSelector=metadata.name%3Dmine&limit=1&continue=" + url.QueryEscape(fmt.Sprint(continued)),
		"?name=mine", "?labelSelector=metadata.name%3Dmine", "?fieldSelector=metadata.name%3D%3Dtheirs", "?fieldSelector=metadata.name%3D",
		"?fieldSelector=metadata.name%3Dmine%2Ctheirs", "?fieldSelector=metadata.name%3D..%2Ftheirs",
	} {
		if a := p.Do("GET", secrets+query, "", helper...); strings.Contains(string(a.Body), planted) {
			t.Errorf("GET %s: %s", query, a)
		}
		if w, refused := p.TryWatch(t, secrets+"?watch=1&timeoutSeconds=1&"+strings.TrimPrefix(query, "?"), helper...); w != nil {
			p.Must(t, 200, "PATCH", secrets+"/theirs", `{"metadata":{"labels":{"seen":"`+fmt.Sprint(i)+`"}}}`, "Content-Type", "application/merge-patch+json")
			<-w.Ended
			for range len(w.Events) {
				if e := <-w.Events; strings.Contains(fmt.Sprint(e.Object), planted) {
					t.Errorf("watch %s: %v", query, e)
				}
			}
		} else if strings.Contains(string(refused.Body), planted) {
			t.Errorf("watch %s: %s", query, refused)
		}
		p.Do("DELETE", secrets+query, "", helper...)
		p.Must(t, 200, "GET", secrets+"/theirs", "")
		if a := p.Do("GET", secrets+"/mine", ""); a.Code == 404 { // it was the only one that was selected
			p.Must(t, 201, "POST", secrets, `{"metadata":{"name":"mine"},"data":{"k":"bWluZQ=="}}`)
		}
	}
	// A body, options of a delete, and a generated name do not change which object a request is about.
	before := p.Must(t, 200, "GET", secrets+"/theirs", "").Field("metadata", "resourceVersion")
	for _, tc := range []struct{ method, path, kind, body string }{
		{"PUT", "/mine", "application/json", `{"metadata":{"name":"theirs"},"data":{"k":"eA=="}}`},
		{"PATCH", "/mine", "application/merge-patch+json", `{"metadata":{"name":"theirs"},"data":{"k":"eA=="}}`},
		{"PATCH", "/mine", planetest.Applied, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"theirs"},"data":{"k":"eA=="}}`},
		{"PATCH", "/theirs?fieldManager=x", planetest.Applied, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"mine"},"data":{"k":"eA=="}}`},
		{"DELETE", "/theirs", "application/json", `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{}}`},
		{"POST", "", "application/json", `{"metadata":{"name":"new"}}`},
		{"POST", "", "application/json", `{"metadata":{"generateName":"mine"}}`},
	} {
		if a := p.Do(tc.method, secrets+tc.path, tc.body, append(helper, "Content-Type", tc.kind)...); a.Code < 400 {
			t.Errorf("%s %s %s: %s", tc.method, tc.path, tc.body, a)
		}
	}
	if after := p.Must(t, 200, "GET", secrets+"/theirs", "").Field("metadata", "resourceVersion"); after != before {
		t.Error("the other object was changed")
	}
}

// The bodies that a page of another site can send without being asked first are refused.
func TestFormsOfWebPagesWriteNothing(t *testing.T) {
	p, before := startGuarded(t)
	for _, kind := range []string{
		"text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
		"text/plain; application/json", "text/html", "application/octet-stream",
	} {
		for _, method := range []string{"POST", "PUT", "PATCH"} {
			path := "/api/v1/namespaces/default/configmaps"
			if method != "POST" {
				path += "/a"
			}
			if a := p.Do(method, path, `{"metadata":{"name":"a"}}`, "Content-Type", kind); a.Code != 415 {
				t.Errorf("%s as %s: %s", method, kind, a)
			}
		}
	}
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("revision %d, then %d", before, after)
	}
}
