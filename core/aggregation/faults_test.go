package aggregation_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A server that does not answer as it must costs its callers a 503 that names it, and says when to try again.
func TestFaultsOfAServer(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	s := newSite(t, w.aggregate(`, answerTimeout: "2s"`))
	s.awaitServed()
	eddie := s.as("editor-token")
	for name, c := range map[string]struct {
		method, path string
		code         int
		says         string
	}{
		"an answer that does not begin": {"GET", "/hang", 503, "its answer did not begin in time"},
		"a write that is not answered":  {"DELETE", "/hang", 504, "whether the write was carried out is not known"},
		"a redirect":                    {"GET", "/redirect", 503, "it answered with a redirect (302), which is not followed"},
		"a server that does not trust":  {"GET", "/untrusted", 503, "it does not trust the client certificate of this server (401)"},
	} {
		got := s.send(eddie, c.method, forecasts+c.path, "")
		if got.StatusCode != c.code || !strings.Contains(got.status(), "the server weather, which answers the API group weather.example.com") || !strings.Contains(got.status(), c.says) {
			t.Errorf("%s: %d %s", name, got.StatusCode, got.body)
		}
		if retry := got.Header.Get("Retry-After") != ""; retry != (c.code == 503) || got.Header.Get("X-Stele-Stage") != "proxy" || got.Header.Get("Location") != "" {
			t.Errorf("%s: the answer has the header %v", name, got.Header)
		}
	}
	if got, err := s.try(eddie, "GET", forecasts+"/broken", ""); err == nil && !strings.HasPrefix(got.body, "broken: ") {
		t.Errorf("an answer that ended too soon was taken for complete: %q", got.body)
	}
	if n := len(w.reached()); n != 5 {
		t.Errorf("%d requests have reached the server, want 5: nothing is sent twice", n)
	}
}

// After several requests that were not answered the server is not asked any more, until a trial is answered.
func TestTheCircuitOfAServer(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	s := newSite(t, w.aggregate(`, answerTimeout: "2s"`))
	s.awaitServed()
	eddie := s.as("editor-token")
	for range 5 {
		s.send(eddie, "GET", forecasts+"/hang", "")
	}
	reached := len(w.reached())
	if got := s.send(eddie, "GET", forecasts+"/rain", ""); got.StatusCode != 503 || !strings.Contains(got.status(), "did not answer several requests in a row") {
		t.Errorf("it got %d %s", got.StatusCode, got.body)
	}
	if len(w.reached()) != reached {
		t.Error("the server was asked")
	}
	await(t, "the server is asked again", func() bool { return s.send(eddie, "GET", forecasts+"/rain", "").StatusCode == 200 })
}

// A server has only so many requests at a time, and others are not slowed down by those that wait for it.
func TestOthersDoNotWaitForAServer(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	s := newSite(t, w.aggregate(`, requests: 2, answerTimeout: "30s"`))
	s.awaitServed()
	eddie := s.as("editor-token")
	before := len(w.reached())
	for range 10 {
		go s.try(eddie, "GET", forecasts+"/hang?timeout=20s", "")
	}
	await(t, "two requests have reached it", func() bool { return len(w.reached()) == before+2 })
	began := time.Now()
	for _, path := range []string{"/api/v1/namespaces", "/apis", "/apis/weather.example.com", "/apis/weather.example.com/v1", "/openapi/v3", "/apis/apiregistration.k8s.io/v1/apiservices"} {
		if got := s.send(s.admin, "GET", path, ""); got.StatusCode != 200 {
			t.Errorf("%s got %d", path, got.StatusCode)
		}
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("others took %s", took)
	}
	if got := s.send(eddie, "GET", forecasts+"/rain", ""); got.StatusCode != 503 || !strings.Contains(got.status(), "it works on 2 requests, as many as it may have at a time") {
		t.Errorf("one request more got %d %s", got.StatusCode, got.body)
	}
	if n := len(w.reached()) - before; n != 2 {
		t.Errorf("%d requests have reached the server", n)
	}
}

// A server that cannot be trusted, or that is another one than the policy means, is asked nothing.
func TestServersThatAreNotAvailable(t *testing.T) {
	t.Parallel()
	expired, expiredCA := issue(t, time.Now().Add(-time.Hour))
	_, otherCA := issue(t, time.Now().Add(time.Hour))
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { garbage.Close() })
	go func() {
		for {
			conn, err := garbage.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, "\x00garbage\r\n\r\n")
			conn.Close()
		}
	}()
	of := func(w *weather, ca string) string {
		return fmt.Sprintf("weather: {group: %q, versions: [\"v1\"], url: %q, private: true, caBundle: %q, connectTimeout: \"2s\"}", group, w.URL, ca)
	}
	listing := func(list string) *weather {
		w := newWeather(t)
		w.List.Store(list)
		return w
	}
	for name, c := range map[string]struct {
		aggregate, says string
	}{
		"an expired certificate": {func() string { w := startWeather(t, expired, expiredCA); return of(w, w.ca) }(), "certificate has expired"},
		"another authority":      {of(newWeather(t), otherCA), "certificate signed by unknown authority"},
		"another name":           {newWeather(t).aggregate(`, serverName: "weather.example.com"`), "weather.example.com"},
		"garbage":                {fmt.Sprintf("weather: {group: %q, versions: [\"v1\"], url: \"https://%s\", private: true}", group, garbage.Addr()), "first record does not look like a TLS handshake"},
		"nobody":                 {fmt.Sprintf("weather: {group: %q, versions: [\"v1\"], url: \"https://127.0.0.1:1\", private: true}", group), "connection refused"},
		"another group":          {aggregateOf(listing(strings.Replace(resourceList, `"groupVersion":"weather.example.com/v1"`, `"groupVersion":"rbac.authorization.k8s.io/v1"`, 1))), `the server answers as "APIResourceList" of "rbac.authorization.k8s.io/v1"`},
		"no JSON":                {aggregateOf(listing("<html>")), "the answer is no APIResourceList"},
		"a wrong name":           {aggregateOf(listing(strings.Replace(resourceList, `"name":"forecasts",`, `"name":"../secrets",`, 1))), "it lists a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, c.aggregate)
			await(t, "the server was asked", func() bool { return strings.Contains(s.available("v1."+group), c.says) })
			if is := s.available("v1." + group); !strings.HasPrefix(is, "False FailedDiscoveryCheck failing or missing response from https://") {
				t.Errorf("the condition is %s", is)
			}
			got := s.send(s.as("editor-token"), "GET", forecasts+"/rain", "")
			if got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" || !strings.Contains(got.status(), c.says) {
				t.Errorf("a request got %d %s", got.StatusCode, got.body)
			}
			if got := s.send(s.admin, "GET", "/api/v1/namespaces", ""); got.StatusCode != 200 {
				t.Errorf("another group got %d", got.StatusCode)
			}
		})
	}
}

func aggregateOf(w *weather) string { return w.aggregate("") }

// The name in the policy may resolve to an address that the policy does not allow.
func TestAddressesAreCheckedWhenTheyAreConnectedTo(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	_, port, _ := net.SplitHostPort(w.Listener.Addr().String())
	name := "ip6-localhost" // the compiler knows only the name localhost
	if _, err := net.LookupHost(name); err != nil {
		t.Skip("this machine has no further name for itself: ", err)
	}
	s := newSite(t, fmt.Sprintf("weather: {group: %q, versions: [\"v1\"], url: \"https://%s:%s\", caBundle: %q}", group, name, port, w.ca))
	await(t, "the server was refused", func() bool {
		return strings.Contains(s.available("v1."+group), "is an address of this machine, which private: true would allow")
	})
}
