package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"stele.dev/stele/core/serve/server"
)

func TestCORS(t *testing.T) {
	origins, err := server.ParseOrigins([]string{`^https://console\.example\.com$`, `//localhost(:|$)`})
	if err != nil {
		t.Fatal(err)
	}
	h := server.WithCORS(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }), origins)
	for _, tc := range []struct {
		method, origin string
		code           int
		allowed        bool
	}{
		{"GET", "https://console.example.com", 418, true},
		{"OPTIONS", "https://console.example.com", 204, true},
		{"OPTIONS", "http://localhost:8080", 204, true},
		{"OPTIONS", "", 418, false},
		{"OPTIONS", "https://console.example.com.evil.org", 418, false},
		{"GET", "https://xconsole.example.com", 418, false},
		{"GET", "null", 418, false},
	} {
		q := httptest.NewRequest(tc.method, "/api", nil)
		if tc.origin != "" {
			q.Header.Set("Origin", tc.origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		want := ""
		if tc.allowed {
			want = tc.origin
		}
		if got := w.Header().Get("Access-Control-Allow-Origin"); w.Code != tc.code || got != want {
			t.Errorf("%s from %q: %d, allowed for %q", tc.method, tc.origin, w.Code, got)
		}
		if tc.allowed && (w.Header().Get("Access-Control-Allow-Credentials") != "true" || !strings.Contains(w.Header().Get("Access-Control-Allow-Methods"), "PATCH")) {
			t.Errorf("%v", w.Header())
		}
	}
}

// An origin that is not pinned would match what it does not mean.
func TestOriginsArePinned(t *testing.T) {
	for _, x := range []string{"", "example.com", "^example.com", "example.com$", "(:|$", ".*"} {
		if _, err := server.ParseOrigins([]string{`//ok\.example(:|$)`, x}); err == nil {
			t.Errorf("%q is taken", x)
		}
	}
}
