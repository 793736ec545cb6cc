package core_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// What / lists is there, and what is there it lists.
func TestTheRootListsAllPaths(t *testing.T) {
	s := newSite(t, 0)
	var listed []string
	for _, path := range s.must(t, 200, "GET", "/", "").field("paths").([]any) {
		listed = append(listed, path.(string))
		if a := s.do("GET", path.(string), ""); a.code != 200 && !(strings.HasPrefix(path.(string), "/log/") && (a.code == 400 || a.code == 404)) { // some need parameters, or a name
			t.Errorf("GET %s: %s", path, a)
		}
	}
	for root := range s.discovered(t) {
		if !slices.Contains(listed, root) {
			t.Errorf("%s is not listed", root)
		}
	}
	for _, path := range []string{"/apis/example.com", "/readyz/policy", "/livez/ping", "/metrics", "/openapi/v3"} {
		if !slices.Contains(listed, path) {
			t.Errorf("%s is not listed in %q", path, listed)
		}
	}
}

// Only /api and /apis have an aggregated form.
func TestOneGroupHasNoAggregatedForm(t *testing.T) {
	p := newPlane(t)
	for path, want := range map[string]int{"/api": 200, "/apis": 200, "/api/v1": 406, "/apis/example.com": 406, "/apis/example.com/v1": 406} {
		if a := p.do("GET", path, "", "Accept", aggregated); a.code != want {
			t.Errorf("%s: %s, want %d", path, a, want)
		}
		a := p.must(t, 200, "GET", path, "", "Accept", aggregated+",application/json")
		if is := a.field("kind") == "APIGroupDiscoveryList"; is != (want == 200) {
			t.Errorf("%s: %s", path, a)
		}
	}
}

// A client is told the address that it has reached the server at.
func TestTheServersAddress(t *testing.T) {
	s := newSite(t, 0)
	body, err := s.typed().Discovery().RESTClient().Get().AbsPath("/api").SetHeader("Accept", "application/json").DoRaw(s.context())
	if err != nil || !strings.Contains(string(body), `"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"`+s.address+`"}]`) {
		t.Errorf("%s: %v", body, err)
	}
}

// A delete of some kinds answers with the object as it was, at the revision of the delete.
func TestDeletesThatAnswerWithTheObject(t *testing.T) {
	p := newPlane(t)
	const accounts = "/api/v1/namespaces/default/serviceaccounts"
	created := p.must(t, 201, "POST", accounts, `{"metadata":{"name":"robot"}}`)
	dry := p.must(t, 200, "DELETE", accounts+"/robot?dryRun=All", "")
	deleted := p.must(t, 200, "DELETE", accounts+"/robot", "")
	for _, a := range []answer{dry, deleted} {
		if a.field("kind") != "ServiceAccount" || a.field("metadata", "uid") != created.field("metadata", "uid") {
			t.Errorf("%s", a)
		}
	}
	if at := deleted.field("metadata", "resourceVersion"); at == created.field("metadata", "resourceVersion") || at == nil {
		t.Errorf("the deleted object has the revision %v", at)
	}
	p.must(t, 404, "GET", accounts+"/robot", "")
	p.must(t, 201, "POST", accounts, `{"metadata":{"name":"robot"}}`)
	if a := p.must(t, 200, "DELETE", accounts+"/robot", "", "Accept", "application/vnd.kubernetes.protobuf"); a.header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" {
		t.Errorf("%v", a.header)
	}
	p.must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
	if a := p.must(t, http.StatusOK, "DELETE", "/api/v1/namespaces/default/configmaps/a", ""); a.field("kind") != "Status" {
		t.Errorf("%s", a)
	}
}
