package core_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/core/catalog"
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
	s := newSite(t, 0)
	rows := s.Pipeline.Rows()
	if len(rows) < 15 {
		t.Fatalf("only %d rows", len(rows))
	}
	discovered := s.discovered(t)
	at := "/at/" + s.do(http.MethodGet, widgetsPath, "").field("metadata", "resourceVersion").(string)
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
			if code := s.do(http.MethodGet, root+"/"+row.Name+"/x/y/z", "").code; code != http.StatusNotFound {
				t.Errorf("a path below it: %d", code)
			}
			verbs := slices.Concat(row.Verbs, row.Unlisted)
			refusesWrites := row.Described != nil // with a reason, and not with 405
			for _, q := range requestsOf(row) {
				now, then := s.do(q.method, q.path, "{}"), s.do(q.method, at+q.path, "{}")
				taken := slices.Contains(verbs, q.verb) || refusesWrites
				if is := now.code != http.StatusMethodNotAllowed; is != taken {
					t.Errorf("%s %s: %v, but its verbs are %v", q.method, q.path, now, verbs)
				}
				if !taken {
					continue
				}
				read := row.Write == nil || q.verb == "get" || q.verb == "list"
				refused := row.Past == catalog.Refuses || !read
				if is := then.code == http.StatusMethodNotAllowed && strings.Contains(string(then.body), "this is the past"); is != refused {
					t.Errorf("%s %s%s: %v", q.method, at, q.path, then)
				}
				if row.Past == catalog.AsToday && then.code != now.code {
					t.Errorf("%s %s%s: %v, today: %v", q.method, at, q.path, then, now)
				}
			}
		})
	}
}
