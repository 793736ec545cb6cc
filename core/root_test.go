package core_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// What / lists is there, and what is there it lists.
func TestTheRootListsAllPaths(t *testing.T) {
	s := planetest.NewSite(t, 0)
	var listed []string
	for _, path := range s.Must(t, 200, "GET", "/", "").Field("paths").([]any) {
		listed = append(listed, path.(string))
		if a := s.Do("GET", path.(string), ""); a.Code != 200 && !(strings.HasPrefix(path.(string), "/log/") && (a.Code == 400 || a.Code == 404)) { // some need parameters, or a name
			t.Errorf("GET %s: %s", path, a)
		}
	}
	for root := range s.Discovered(t) {
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
	p := planetest.NewPlane(t)
	for path, want := range map[string]int{"/api": 200, "/apis": 200, "/api/v1": 406, "/apis/example.com": 406, "/apis/example.com/v1": 406} {
		if a := p.Do("GET", path, "", "Accept", planetest.Aggregated); a.Code != want {
			t.Errorf("%s: %s, want %d", path, a, want)
		}
		a := p.Must(t, 200, "GET", path, "", "Accept", planetest.Aggregated+",application/json")
		if is := a.Field("kind") == "APIGroupDiscoveryList"; is != (want == 200) {
			t.Errorf("%s: %s", path, a)
		}
	}
}

// A client is told the address that it has reached the server at.
func TestTheServersAddress(t *testing.T) {
	s := planetest.NewSite(t, 0)
	body, err := s.Typed().Discovery().RESTClient().Get().AbsPath("/api").SetHeader("Accept", "application/json").DoRaw(s.Context())
	if err != nil || !strings.Contains(string(body), `"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"`+s.Address+`"}]`) {
		t.Errorf("%s: %v", body, err)
	}
}

// A delete of some kinds answers with the object as it was, at the revision of the delete.
func TestDeletesThatAnswerWithTheObject(t *testing.T) {
	p := planetest.NewPlane(t)
	const accounts = "/api/v1/namespaces/default/serviceaccounts"
	created := p.Must(t, 201, "POST", accounts, `{"metadata":{"name":"robot"}}`)
	dry := p.Must(t, 200, "DELETE", accounts+"/robot?dryRun=All", "")
	deleted := p.Must(t, 200, "DELETE", accounts+"/robot", "")
	for _, a := range []planetest.Answer{dry, deleted} {
		if a.Field("kind") != "ServiceAccount" || a.Field("metadata", "uid") != created.Field("metadata", "uid") {
			t.Errorf("%s", a)
		}
	}
	if at := deleted.Field("metadata", "resourceVersion"); at == created.Field("metadata", "resourceVersion") || at == nil {
		t.Errorf("the deleted object has the revision %v", at)
	}
	p.Must(t, 404, "GET", accounts+"/robot", "")
	p.Must(t, 201, "POST", accounts, `{"metadata":{"name":"robot"}}`)
	if a := p.Must(t, 200, "DELETE", accounts+"/robot", "", "Accept", "application/vnd.kubernetes.protobuf"); a.Header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" {
		t.Errorf("%v", a.Header)
	}
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
	if a := p.Must(t, http.StatusOK, "DELETE", "/api/v1/namespaces/default/configmaps/a", ""); a.Field("kind") != "Status" {
		t.Errorf("%s", a)
	}
}
