package core_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
)

// A path that a part of the server adds is authorized like /metrics, and has no past.
func TestFurtherPaths(t *testing.T) {
	route := core.Route{Path: "/extra/", Serve: func(c *call.Call) error {
		c.Sent = true
		_, err := io.WriteString(c.W, "of "+c.HTTP.URL.Path)
		return err
	}}
	p := planetest.Start(t, planetest.Options{Bundle: planetest.Bundle, Config: plane.Config{Routes: []core.Route{route}}})
	ask := func(as *user.DefaultInfo, method, path string) (int, string) {
		q := httptest.NewRequest(method, path, nil)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, q.WithContext(authn.WithUser(t.Context(), as)))
		return w.Code, w.Body.String()
	}
	admin, nobody := &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}, &user.DefaultInfo{Name: "nobody"}
	if code, body := ask(admin, "GET", "/extra/a"); code != http.StatusOK || body != "of /extra/a" {
		t.Errorf("%d %s", code, body)
	}
	for _, tc := range []struct {
		as           *user.DefaultInfo
		method, path string
		code         int
	}{
		{nobody, "GET", "/extra/a", http.StatusForbidden},
		{admin, "POST", "/extra/a", http.StatusMethodNotAllowed},
		{admin, "GET", "/at/6/extra/a", http.StatusNotFound},
		{admin, "GET", "/extraneous", http.StatusNotFound},
	} {
		if code, body := ask(tc.as, tc.method, tc.path); code != tc.code {
			t.Errorf("%s %s by %s: %d %s, want %d", tc.method, tc.path, tc.as.Name, code, body, tc.code)
		}
	}
}
