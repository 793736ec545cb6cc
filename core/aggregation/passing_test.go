package aggregation_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"stele.dev/stele/core/run/plane/planetest"
)

func TestRequestsArePassedOn(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	s := newSite(t, w.aggregate(""))
	s.awaitServed()
	eddie := s.as("editor-token")

	got := s.send(eddie, "GET", forecasts+"/rain?pretty=true", "")
	if got.StatusCode != 200 || !strings.Contains(got.body, `"name":"rain"`) || got.Header.Get("Audit-Id") == "" {
		t.Fatalf("a get got %d %s", got.StatusCode, got.body)
	}
	h := w.last(t)
	if h.Header.Get("X-Remote-User") != "eddie" || strings.Join(h.Header["X-Remote-Group"], " ") != "editors system:authenticated" || h.URL.RawQuery != "pretty=true" || h.Header.Get("Authorization") != "" {
		t.Errorf("the server got %v %v", h.URL, h.Header)
	}
	if cn := h.TLS.PeerCertificates[0].Subject.CommonName; cn != "front-proxy-client" {
		t.Errorf("the client certificate is that of %q", cn)
	}
	if got := s.send(eddie, "POST", forecasts, `{"spec":{}}`, "Content-Type", "application/json"); got.StatusCode != 201 {
		t.Errorf("a create got %d %s", got.StatusCode, got.body)
	}
	if text, _ := io.ReadAll(w.last(t).Body); string(text) != `{"spec":{}}` {
		t.Errorf("the server got the body %q", text)
	}
	if got := s.send(eddie, "GET", forecasts+"/odd", ""); got.StatusCode != http.StatusTeapot || got.Header.Get("Audit-Id") == "forged" || got.Header.Get("Set-Cookie") != "" || got.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("an answer has %d %v", got.StatusCode, got.Header)
	}
	before := len(w.reached())
	if got := s.send(s.as("nobody-token"), "GET", forecasts+"/rain", ""); got.StatusCode != 403 {
		t.Errorf("a user without rights got %d", got.StatusCode)
	}
	if got := s.send(s.as("no-token"), "GET", forecasts+"/rain", ""); got.StatusCode != 401 {
		t.Errorf("an unknown token got %d", got.StatusCode)
	}
	if got := s.send(eddie, "POST", forecasts, strings.Repeat("x", 3<<20+1), "Content-Type", "application/json"); got.StatusCode != 413 {
		t.Errorf("a body that is too large got %d", got.StatusCode)
	}
	if len(w.reached()) != before {
		t.Errorf("%d requests that were refused have reached the server", len(w.reached())-before)
	}
}

// The user that an administrator impersonates is the one that the server is told.
func TestImpersonationIsDecidedHere(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	s := newSite(t, w.aggregate(""))
	s.awaitServed()
	got := s.send(s.admin, "GET", forecasts+"/rain", "", "Impersonate-User", "zoe", "Impersonate-Group", "forecasters", "Impersonate-Extra-Scopes", "a", "Impersonate-Extra-Scopes", "b")
	if got.StatusCode != 200 {
		t.Fatalf("it got %d %s", got.StatusCode, got.body)
	}
	h := w.last(t).Header
	if h.Get("X-Remote-User") != "zoe" || !strings.HasPrefix(strings.Join(h["X-Remote-Group"], " "), "forecasters") || strings.Join(h["X-Remote-Extra-Scopes"], " ") != "a b" || h.Get("Impersonate-User") != "" {
		t.Errorf("the server got %v", h)
	}
	if got := s.send(s.as("editor-token"), "GET", forecasts+"/rain", "", "Impersonate-User", "admin"); got.StatusCode != 403 {
		t.Errorf("a user who may impersonate nobody got %d", got.StatusCode)
	}
}

func TestWatchesAreStreams(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	s := newSite(t, w.aggregate(", requests: 1"))
	s.awaitServed()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := func() (func() string, *http.Response) {
		client, err := rest.HTTPClientFor(s.as("editor-token"))
		if err != nil {
			t.Fatal(err)
		}
		q, _ := http.NewRequestWithContext(ctx, "GET", s.admin.Host+forecasts+"?watch=true", nil)
		answer, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		return lines(answer.Body), answer
	}
	next, answer := watch()
	for _, name := range []string{"n0", "n1"} {
		if line := next(); !strings.Contains(line, name) {
			t.Fatalf("the watch got %q", line)
		}
	}
	second, _ := watch() // an open watch takes no slot
	if line := second(); !strings.Contains(line, "n0") {
		t.Fatalf("the second watch got %q", line)
	}
	if got := s.send(s.as("editor-token"), "GET", forecasts+"/rain", ""); got.StatusCode != 200 {
		t.Errorf("a get beside open watches got %d %s", got.StatusCode, got.body)
	}
	// It ends when the user may not watch any more.
	s.Activate(t, strings.Replace(bundle(w.aggregate(", requests: 1")), `{user: "eddie"}, `, "", 1))
	if line := next(); !strings.HasPrefix(line, "ended: EOF") {
		t.Errorf("the watch of a user who lost the right got %q", line)
	}
	answer.Body.Close()
}

func TestConnectionsAreUpgraded(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	s := newSite(t, w.aggregate(""))
	s.awaitServed()
	config, err := rest.TLSConfigFor(s.as("editor-token"))
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"}
	open := func(headers string) (net.Conn, func() string) {
		conn, err := tls.Dial("tcp", s.Address(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(conn, "GET %s/rain/radio HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer editor-token\r\n%s\r\n", forecasts, headers)
		return conn, lines(conn)
	}
	conn, next := open("Connection: Upgrade\r\nUpgrade: echo\r\nX-Remote-User: admin\r\n")
	if line := next(); line != "HTTP/1.1 101 Switching Protocols" {
		t.Fatalf("the upgrade got %q", line)
	}
	for next() != "" { // the header
	}
	for _, word := range []string{"one", "two"} {
		fmt.Fprintln(conn, word)
		if line := next(); line != "heard "+word {
			t.Fatalf("the connection says %q", line)
		}
	}
	if user := w.last(t).Header["X-Remote-User"]; len(user) != 1 || user[0] != "eddie" {
		t.Errorf("the server got the user %q", user)
	}
	if _, next := open(""); !strings.HasPrefix(next(), "HTTP/1.1 400") {
		t.Error("a request without an upgrade was not passed on as it is")
	}
	s.Activate(t, planetest.Bundle) // nobody answers the group any more
	if line := next(); !strings.HasPrefix(line, "ended: ") {
		t.Errorf("the connection goes on: %q", line)
	}
}

// Nobody else's path, header or method reaches a server than what was decided.
func TestAmbiguousRequestsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	s := newSite(t, w.aggregate(""))
	s.awaitServed()
	before := len(w.reached())
	for _, path := range []string{
		forecasts + "/../../other/forecasts/rain", forecasts + "/%2e%2e/rain", forecasts + "//rain", forecasts + "/.", base + "/namespaces/default/forecasts/a%5c..%5cb", base + "/watch/namespaces/default/forecasts", forecasts + "/a/b%0ac",
	} {
		if got := s.send(s.admin, "GET", path, ""); got.StatusCode < 400 {
			t.Errorf("%s got %d %s", path, got.StatusCode, got.body)
		}
	}
	for _, method := range []string{"OPTIONS", "TRACE", "FROB"} {
		if got := s.send(s.admin, method, forecasts+"/rain", ""); got.StatusCode < 400 {
			t.Errorf("%s got %d", method, got.StatusCode)
		}
	}
	if n := len(w.reached()) - before; n > 0 {
		t.Errorf("%d requests have reached the server", n)
	}
}
