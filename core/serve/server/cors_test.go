package server_test

import (
	"crypto/tls"
	"crypto/x509"
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

// A page of another origin cannot write, nor open a WebSocket, with the certificate that the browser of its reader sends by itself.
func TestPagesOfOtherOriginsDoNotUseCertificates(t *testing.T) {
	origins, err := server.ParseOrigins([]string{`^https://console\.example\.com$`})
	if err != nil {
		t.Fatal(err)
	}
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	with := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	socket := map[string]string{"Upgrade": "websocket", "Origin": "https://other.example.com"}
	for _, tc := range []struct {
		name, method string
		tls          *tls.ConnectionState
		header       map[string]string
		code         int
	}{
		{"a program", "POST", with, nil, 418},
		{"a page of this server", "POST", with, map[string]string{"Origin": "https://api.example.com", "Sec-Fetch-Site": "same-origin"}, 418},
		{"a program that names its server", "GET", with, map[string]string{"Upgrade": "websocket", "Origin": "https://api.example.com"}, 418},
		{"an allowed page", "POST", with, map[string]string{"Origin": "https://console.example.com", "Sec-Fetch-Site": "cross-site"}, 418},
		{"another page", "POST", with, map[string]string{"Origin": "https://other.example.com", "Sec-Fetch-Site": "cross-site"}, 403},
		{"another page of the site", "DELETE", with, map[string]string{"Origin": "https://other.example.com", "Sec-Fetch-Site": "same-site"}, 403},
		{"another page in an older browser", "POST", with, map[string]string{"Origin": "https://other.example.com"}, 403},
		{"a page without an origin", "POST", with, map[string]string{"Origin": "null"}, 403},
		{"a WebSocket of another page", "GET", with, socket, 403},
		{"a read by another page", "GET", with, map[string]string{"Origin": "https://other.example.com", "Sec-Fetch-Site": "cross-site"}, 418},
		{"another page without a certificate", "POST", &tls.ConnectionState{}, map[string]string{"Origin": "https://other.example.com"}, 418},
		{"a WebSocket of another page without a certificate", "GET", &tls.ConnectionState{}, socket, 418},
	} {
		q := httptest.NewRequest(tc.method, "https://api.example.com/api", nil)
		q.TLS = tc.tls
		for name, value := range tc.header {
			q.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		server.WithCORS(ok, origins).ServeHTTP(w, q)
		if w.Code != tc.code || tc.code == 403 && !strings.Contains(w.Body.String(), "--cors-allowed-origins") {
			t.Errorf("%s: %d %s", tc.name, w.Code, w.Body)
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
