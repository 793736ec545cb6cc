package retention_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/keep/retention"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
)

// server is a control plane whose past is erased.
type server struct{ *planetest.Plane }

func (s *server) do(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	q := httptest.NewRequest(method, path, strings.NewReader(body))
	q = q.WithContext(authn.WithUser(t.Context(), &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}))
	q.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, q)
	return w.Code, w.Body.String()
}

func (s *server) must(t *testing.T, code int, method, path, body string) string {
	t.Helper()
	got, text := s.do(t, method, path, body)
	if got != code {
		t.Fatalf("%s %s: %d %s, want %d", method, path, got, text, code)
	}
	return text
}

// put writes an object and returns its resourceVersion.
func (s *server) put(t *testing.T, method, path, body string) string {
	t.Helper()
	code := map[string]int{"POST": http.StatusCreated, "PUT": http.StatusOK}[method]
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(s.must(t, code, method, path, body)), &o); err != nil {
		t.Fatal(err)
	}
	return o.ResourceVersion
}

const (
	leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	maps   = "/api/v1/namespaces/default/configmaps"
)

func lease(name string, n int, resourceVersion string) string {
	return fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q,"resourceVersion":%q},"spec":{"holderIdentity":"h%d"}}`, name, resourceVersion, n)
}

// A kind whose past is kept for hours answers 410 for what is older, also after a restart; another kind still shows
// all of it.
func TestThePastOfOneKindExpires(t *testing.T) {
	planetest.Compile(t, bundle)
	synctest.Test(t, func(t *testing.T) {
		p, err := planetest.Open(t.Context(), planetest.Options{Config: plane.Config{
			WatchBytes: 1, // memory has nothing of the past
			Segments:   plane.Segments{Revisions: 16}, Checkpoints: checkpoints.Options{Events: 16},
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stop()
		s := &server{p}
		p.Bootstrap(t, bundle)
		s.put(t, "POST", maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"1"}}`)
		old := s.put(t, "POST", leases, lease("old", 0, "")) // stays, and stays as it is
		first := s.put(t, "POST", leases, lease("a", 0, ""))
		s.put(t, "PUT", maps+"/m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"2"}}`)
		newest := first
		for i := range 100 {
			time.Sleep(5 * time.Minute)
			newest = s.put(t, "PUT", leases+"/a", lease("a", i+1, newest))
		}
		time.Sleep(20 * time.Minute)

		exact := func(path, revision string) string {
			return path + "?resourceVersionMatch=Exact&resourceVersion=" + revision
		}
		for _, path := range []string{exact(leases, first), "/at/" + first + leases + "/a", "/at/" + first + leases, leases + "?watch=1&timeoutSeconds=1&resourceVersion=" + first} {
			code, text := s.do(t, "GET", path, "")
			if !strings.Contains(text, `"code":410`) || !strings.Contains(text, "oldest") && !strings.Contains(text, "too old resource version: "+first+" (") {
				t.Errorf("%s: %d %s", path, code, text)
			}
		}
		for _, path := range []string{exact(maps, first), "/at/" + first + maps + "/m"} {
			if text := s.must(t, http.StatusOK, "GET", path, ""); !strings.Contains(text, `"a":"1"`) {
				t.Errorf("%s: %s", path, text)
			}
		}
		for _, path := range []string{"/changes/" + old, "/changes?fieldSelector=since%3D1"} { // the records of leases are kept for 6 h
			if text := s.must(t, http.StatusOK, "GET", "/apis/log.stele.dev/v1"+path, ""); !strings.Contains(text, `"name":"old"`) {
				t.Errorf("%s: %s", path, text)
			}
		}
		if text := s.must(t, http.StatusOK, "GET", "/at/"+newest+leases+"/old", ""); !strings.Contains(text, "h0") {
			t.Error(text)
		}
		if text := s.must(t, http.StatusOK, "GET", exact(leases, newest), ""); !strings.Contains(text, "h100") {
			t.Error(text)
		}
		var report retention.Report
		if err := json.Unmarshal([]byte(s.must(t, http.StatusOK, "GET", retention.Path, "")), &report); err != nil {
			t.Fatal(err)
		}
		for _, k := range report.Kinds {
			if k.Resource == "leases" && (k.Versions > 60 || k.Oldest < 50 || k.History != "2h0m0s") {
				t.Errorf("%+v", k)
			}
		}
	})
}

// A retention of definitions does not make the past of other kinds expire, as long as it is known which definitions were in force.
func TestThePastOutlivesWrittenDefinitions(t *testing.T) {
	const (
		bundle = `package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test", history: retention: {default: {history: "2h", records: "6h"}, kinds: configmaps: history: "all"}}
bundle: dynamic: customresourcedefinitions: "Allow"
`
		definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	)
	gauges := func(resourceVersion, property string) string {
		return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gauges.example.org","resourceVersion":%q},
			"spec":{"group":"example.org","scope":"Namespaced","names":{"plural":"gauges","kind":"Gauge"},"versions":[{"name":"v1","served":true,"storage":true,
			"schema":{"openAPIV3Schema":{"type":"object","properties":{%q:{"type":"string"}}}}}]}}`, resourceVersion, property)
	}
	planetest.Compile(t, bundle)
	synctest.Test(t, func(t *testing.T) {
		p, err := planetest.Open(t.Context(), planetest.Options{Config: plane.Config{
			WatchBytes: 1, // memory has nothing of the past
			Segments:   plane.Segments{Revisions: 16}, Checkpoints: checkpoints.Options{Events: 16},
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stop()
		s := &server{p}
		p.Bootstrap(t, bundle)
		defined := s.put(t, "POST", definitions, gauges("", "a"))
		s.put(t, "POST", maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"1"}}`)
		defined = s.put(t, "PUT", definitions+"/gauges.example.org", gauges(defined, "b"))
		then := s.put(t, "POST", maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"later"},"data":{"a":"1"}}`)
		for i := range 100 {
			time.Sleep(5 * time.Minute)
			s.put(t, "PUT", maps+"/later", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"later"},"data":{"a":"%d"}}`, i))
		}
		s.put(t, "PUT", definitions+"/gauges.example.org", gauges(defined, "c"))
		s.put(t, "PUT", maps+"/m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"2"}}`)
		if code, text := s.do(t, "GET", "/at/"+then+definitions+"/gauges.example.org", ""); code != http.StatusGone {
			t.Errorf("the definition of then: %d %s", code, text)
		}
		for _, path := range []string{"/m", "/later", ""} {
			if text := s.must(t, http.StatusOK, "GET", "/at/"+then+maps+path, ""); !strings.Contains(text, `"a":"1"`) {
				t.Errorf("%s: %s", path, text)
			}
		}
	})
}

// What set a field is not known any more once the records of that time are erased. It is not said to be the oldest
// change that is kept.
func TestBlameDoesNotGuess(t *testing.T) {
	planetest.Compile(t, bundle)
	synctest.Test(t, func(t *testing.T) {
		p, err := planetest.Open(t.Context(), planetest.Options{Config: plane.Config{
			Segments: plane.Segments{Revisions: 16}, Checkpoints: checkpoints.Options{Events: 16}, Retention: plane.Retention{Longest: time.Hour},
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stop()
		s := &server{p}
		p.Bootstrap(t, bundle)
		newest := s.put(t, "POST", maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"old":"x"}}`)
		for i := range 100 {
			time.Sleep(5 * time.Minute)
			newest = s.put(t, "PUT", maps+"/m", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","resourceVersion":%q},"data":{"old":"x","new":"%d"}}`, newest, i))
		}
		time.Sleep(20 * time.Minute)
		text := s.must(t, http.StatusCreated, "POST", "/apis/log.stele.dev/v1/blames", `{"apiVersion":"log.stele.dev/v1","kind":"Blame","spec":{"version":"v1","resource":"configmaps","namespace":"default","name":"m"}}`)
		var blame struct {
			Status struct {
				Fields []struct {
					Path, Type string
					Revision   uint64
				}
			}
		}
		if err := json.Unmarshal([]byte(text), &blame); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, f := range blame.Status.Fields {
			found[f.Path] = fmt.Sprint(f.Type, f.Revision)
		}
		if found["data.new"] != "Updated"+newest || found["data.old"] != "Earlier0" {
			t.Errorf("%v, the newest revision is %s", found, newest)
		}
	})
}
