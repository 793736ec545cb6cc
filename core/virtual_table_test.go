package core_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/run/plane/planetest"
)

// rowRequest is a method at a path of a row's resource, and the verb that it means.
type rowRequest struct{ verb, method, path string }

// requestsOf returns requests of all verbs at the paths of a row's resource.
func requestsOf(r *catalog.Resource) []rowRequest {
	root := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		root = "/api/" + r.Version
	}
	if r.Namespaced {
		root += "/namespaces/default"
	}
	if resource, subresource, found := strings.Cut(r.Name, "/"); found {
		one := root + "/" + resource + "/x/" + subresource
		return []rowRequest{{"create", http.MethodPost, one}, {"get", http.MethodGet, one}, {"update", http.MethodPut, one}, {"delete", http.MethodDelete, one}}
	}
	all, one := root+"/"+r.Name, root+"/"+r.Name+"/x"
	requests := []rowRequest{{"list", http.MethodGet, all}, {"create", http.MethodPost, all}, {"deletecollection", http.MethodDelete, all}}
	if slices.Contains(r.Verbs, "get") { // else nothing is served below the resource
		requests = append(requests, rowRequest{"get", http.MethodGet, one}, rowRequest{"update", http.MethodPut, one}, rowRequest{"patch", http.MethodPatch, one}, rowRequest{"delete", http.MethodDelete, one})
	}
	return requests
}

// A row of the table takes its verbs and no others, and is below /at what it says. That discovery and OpenAPI have it
// is TestOpenAPIHasWhatDiscoveryHas.
func TestEveryRowOfTheTableIsServedAsItSays(t *testing.T) {
	s := planetest.NewSite(t, 0)
	rows := s.Pipeline.Rows()
	if len(rows) < 15 {
		t.Fatalf("only %d rows", len(rows))
	}
	discovered := s.Discovered(t)
	at := "/at/" + s.Do(http.MethodGet, planetest.WidgetsPath, "").Field("metadata", "resourceVersion").(string)
	for _, row := range rows {
		t.Run(row.Name, func(t *testing.T) {
			root := "/apis/" + row.Group + "/" + row.Version
			if row.Group == "" {
				root = "/api/" + row.Version
			}
			found := false
			for _, r := range discovered[root] {
				found = found || r.Name == row.Name && r.Kind == row.Kind && slices.Equal(r.Verbs, row.Verbs)
			}
			if !found {
				t.Errorf("discovery does not list it at %s", root)
			}
			if code := s.Do(http.MethodGet, root+"/"+row.Name+"/x/y/z", "").Code; code != http.StatusNotFound {
				t.Errorf("a path below it: %d", code)
			}
			verbs := slices.Concat(row.Verbs, row.Unlisted)
			refusesWrites := row.Described != nil // with a reason, and not with 405
			for _, q := range requestsOf(row) {
				now, then := s.Do(q.method, q.path, "{}"), s.Do(q.method, at+q.path, "{}")
				taken := slices.Contains(verbs, q.verb) || refusesWrites
				if is := now.Code != http.StatusMethodNotAllowed; is != taken {
					t.Errorf("%s %s: %v, but its verbs are %v", q.method, q.path, now, verbs)
				}
				if !taken {
					continue
				}
				read := row.Write == nil || q.verb == "get" || q.verb == "list"
				refused := row.Past == catalog.Refuses || !read
				if is := then.Code == http.StatusMethodNotAllowed && strings.Contains(string(then.Body), "this is the past"); is != refused {
					t.Errorf("%s %s%s: %v", q.method, at, q.path, then)
				}
				if row.Past == catalog.AsToday && then.Code != now.Code {
					t.Errorf("%s %s%s: %v, today: %v", q.method, at, q.path, then, now)
				}
			}
		})
	}
}
