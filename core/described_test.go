package core_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/run/plane/planetest"
)

// operations are what a verb of a resource is in OpenAPI: path, method, and the action that clients know it by.
func operations(root string, r *metav1.APIResource, verb string) (path, method, action string) {
	name, sub, _ := strings.Cut(r.Name, "/")
	path = root
	if r.Namespaced {
		path += "/namespaces/{namespace}"
	}
	path += "/" + name
	if sub != "" {
		path += "/{name}/" + sub
	} else if slices.Contains([]string{"get", "update", "patch", "delete"}, verb) {
		path += "/{name}"
	}
	switch verb {
	case "watch":
		return path, "get", "list" // with a parameter
	case "list", "get":
		return path, "get", verb
	case "create":
		return path, "post", "post"
	case "update":
		return path, "put", "put"
	case "deletecollection":
		return path, "delete", verb
	}
	return path, verb, verb
}

// describedKinds are the schemas of kinds of stele's own groups.
func describedKinds(document planetest.Answer) map[string]map[string]any {
	all, _ := document.Field("definitions").(map[string]any)
	if all == nil {
		all, _ = document.Field("components", "schemas").(map[string]any)
	}
	kinds := map[string]map[string]any{}
	for name, s := range all {
		if schema := s.(map[string]any); strings.HasPrefix(name, "dev.stele.") && !strings.HasSuffix(name, "List") {
			kinds[name] = schema
		}
	}
	return kinds
}

// All that discovery names is in both versions of OpenAPI with its verbs and kind, and nothing else but what clients
// that take everything are to leave alone.
func TestOpenAPIHasWhatDiscoveryHas(t *testing.T) {
	s := planetest.NewSite(t, 0)
	unlisted := []string{"get list /apis/log.stele.dev/v1/namespaces/{namespace}/changes", "get list /apis/log.stele.dev/v1/namespaces/{namespace}/decisions"}
	all := s.Discovered(t)
	if len(all) < 8 {
		t.Fatalf("only %d groups", len(all))
	}
	for root, resources := range all {
		documents := map[string]planetest.Answer{
			"v2": s.Must(t, 200, "GET", "/openapi/v2", ""),
			"v3": s.Must(t, 200, "GET", "/openapi/v3"+root, ""),
		}
		for version, document := range documents {
			known := map[string]bool{}
			for i := range resources {
				r := &resources[i]
				if r.Group == "" {
					r.Group, r.Version, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(root, "/apis/"), "/api/"), "/")
					if r.Version == "" {
						r.Group, r.Version = "", r.Group
					}
				}
				for _, verb := range r.Verbs {
					path, method, action := operations(root, r, verb)
					known[method+" "+action+" "+path] = true
					operation, _ := document.Field("paths", path, method).(map[string]any)
					kind, _ := operation["x-kubernetes-group-version-kind"].(map[string]any)
					if verb == "watch" != strings.Contains(fmt.Sprint(operation["parameters"]), "name:watch ") && (verb == "watch" || verb == "list" && !slices.Contains(r.Verbs, "watch")) {
						t.Errorf("%s: whether %s can be watched is not in %s", version, r.Name, path)
					}
					if operation["x-kubernetes-action"] != action || kind["kind"] != r.Kind || kind["group"] != r.Group || kind["version"] != r.Version {
						t.Errorf("%s: %s %s: want %s %s, an action %q on %s, and it has %v on %v", version, verb, r.Name, method, path, action, r.Kind, operation["x-kubernetes-action"], kind)
					}
				}
			}
			for name, s := range describedKinds(document) {
				if properties, _ := s["properties"].(map[string]any); s["x-kubernetes-preserve-unknown-fields"] != nil || len(properties) < 3 {
					t.Errorf("%s: %s has no fields of its own: %v", version, name, s)
				}
			}
			paths, _ := document.Field("paths").(map[string]any)
			for path, item := range paths {
				if !strings.HasPrefix(path, root+"/") {
					continue
				}
				for method, operation := range item.(map[string]any) {
					if o, ok := operation.(map[string]any); ok {
						served := fmt.Sprintf("%s %v %s", method, o["x-kubernetes-action"], path)
						everywhere := strings.Replace(served, root+"/", root+"/namespaces/{namespace}/", 1)
						if !known[served] && !known[everywhere] && !slices.Contains(unlisted, served) && !slices.Contains(unlisted, everywhere) {
							t.Errorf("%s: %s is not in discovery", version, served)
						}
					}
				}
			}
		}
	}
}

// A path of what is answered and not stored means the same below /at as at the present.
func TestWrongPathsBelowAtAreTheSame(t *testing.T) {
	s := planetest.NewSite(t, 0)
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	wrong := map[string]string{ // method by path
		"/apis/policy.stele.dev/v1/explanations":                                 "GET",
		"/apis/policy.stele.dev/v1/explanations/a/status":                        "GET",
		"/apis/policy.stele.dev/v1/namespaces/default/explanations":              "POST",
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/a":               "GET",
		"/apis/authorization.k8s.io/v1/namespaces/default/subjectaccessreviews":  "POST",
		"/apis/authorization.k8s.io/v1/localsubjectaccessreviews":                "POST",
		"/apis/authentication.k8s.io/v1/tokenreviews/a/status":                   "GET",
		"/apis/policy.stele.dev/v1/resourceaccessreviews/a":                      "GET",
		"/apis/policy.stele.dev/v1/accessdifferences/a/b":                        "GET",
		"/apis/policy.stele.dev/v1/namespaces/default/policies":                  "GET",
		"/apis/log.stele.dev/v1/changes/1/status":                                "GET",
		"/apis/log.stele.dev/v1/namespaces/default/blames":                       "POST",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/default/clusterroles":     "GET",
		"/api/v1/namespaces/default/serviceaccounts/default/token/more":          "POST",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/a/nothing":      "GET",
		"/apis/authentication.k8s.io/v1/namespaces/default/selfsubjectreviews/a": "GET",
	}
	for path, method := range wrong {
		now := s.Do(method, path, "")
		then := s.Do(method, fmt.Sprintf("/at/%d%s", s.Committer.Tip().Revision(), path), "")
		if now.Code < 400 || now.Code != then.Code || now.Field("message") != then.Field("message") {
			t.Errorf("%s %s is\n%s\nand below /at\n%s", method, path, now, then)
		}
	}
}
