package console_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/console"
)

// site is a console, and a server that answers it and records what it is asked.
type site struct {
	*testing.T
	host    string // of the console
	link    string
	cookie  string
	key     string
	server  *httptest.Server
	answer  http.HandlerFunc
	asked   []*http.Request
	page    *httptest.Server
	handler *console.Handler
}

// start starts a console that nobody has opened.
func start(t *testing.T, change func(*rest.Config)) *site {
	t.Helper()
	s := &site{T: t}
	s.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked = append(s.asked, r)
		if s.answer != nil {
			s.answer(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"path":%q}`, r.URL.RequestURI())
	}))
	t.Cleanup(s.server.Close)
	config := &rest.Config{Host: s.server.URL, BearerToken: "the-credential", UserAgent: "stele/test", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	if change != nil {
		change(config)
	}
	s.page = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }))
	s.host = s.page.Listener.Addr().String()
	var err error
	if s.handler, err = console.New(config, console.About{Namespace: "default"}, s.host); err != nil {
		t.Fatal(err)
	}
	s.page.Start()
	t.Cleanup(s.page.Close)
	s.link = s.handler.Link()
	return s
}

// open exchanges the link for a session.
func (s *site) open() *site {
	s.Helper()
	a := s.do("GET", strings.TrimPrefix(s.link, "http://"+s.host), nil)
	if a.StatusCode != http.StatusSeeOther || len(a.Cookies()) != 1 {
		s.Fatalf("the link: %s", a.Status)
	}
	_, fragment, _ := strings.Cut(a.Header.Get("Location"), "#")
	start, err := url.ParseQuery(fragment)
	if err != nil {
		s.Fatal(err)
	}
	s.cookie, s.key = a.Cookies()[0].Name+"="+a.Cookies()[0].Value, start.Get("key")
	return s
}

// do sends a request to the console with the session, if there is one. The headers come last, so that a test can change all; Host is one
// of them, and an empty value removes a header.
func (s *site) do(method, path string, body io.Reader, headers ...string) *http.Response {
	s.Helper()
	q, err := http.NewRequestWithContext(s.Context(), method, "http://"+s.host+path, body)
	if err != nil {
		s.Fatal(err)
	}
	if s.cookie != "" {
		q.Header.Set("Cookie", s.cookie)
		q.Header.Set("Stele-Console-Key", s.key)
	}
	for i := 0; i < len(headers); i += 2 {
		switch {
		case headers[i] == "Host":
			q.Host = headers[i+1]
		case headers[i+1] == "":
			q.Header.Del(headers[i])
		default:
			q.Header.Set(headers[i], headers[i+1])
		}
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	a, err := client.Do(q)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { a.Body.Close() })
	return a
}

// text returns the body of an answer.
func (s *site) text(a *http.Response) string {
	s.Helper()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}

const namespaces = "/server/api/v1/namespaces"

func TestTheLinkIsExchangedOnceForACookie(t *testing.T) {
	s := start(t, nil)
	path := strings.TrimPrefix(s.link, "http://"+s.host)
	if a := s.do("GET", "/?token=wrong", nil); a.StatusCode != http.StatusForbidden {
		t.Errorf("a wrong token: %s", a.Status)
	}
	a := s.do("GET", path, nil)
	if a.StatusCode != http.StatusSeeOther || !strings.HasPrefix(a.Header.Get("Location"), "/#key=") {
		t.Fatalf("%s to %q", a.Status, a.Header.Get("Location"))
	}
	cookie := a.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" {
		t.Errorf("the cookie is %s", cookie)
	}
	if strings.Contains(s.link, cookie.Value) || strings.Contains(a.Header.Get("Location"), cookie.Value) {
		t.Error("the cookie is in an address")
	}
	again := s.do("GET", path, nil)
	if text := s.text(again); again.StatusCode != http.StatusForbidden || len(again.Cookies()) != 0 || !strings.Contains(text, "was used before") {
		t.Errorf("the second time: %s %s", again.Status, text)
	}
	same := s.do("GET", path, nil, "Cookie", cookie.Name+"="+cookie.Value)
	if same.StatusCode != http.StatusSeeOther || same.Header.Get("Location") != "/" {
		t.Errorf("the second time, in the same browser: %s to %q", same.Status, same.Header.Get("Location"))
	}
	if len(s.asked) != 0 {
		t.Error("the server was asked")
	}
}

func TestWithoutTheSessionNobodyGetsAnything(t *testing.T) {
	s := start(t, nil).open()
	for name, headers := range map[string][]string{
		"no cookie":                        {"Cookie", "", "Stele-Console-Key", ""},
		"another cookie":                   {"Cookie", strings.Split(s.cookie, "=")[0] + "=x"},
		"the key without the cookie":       {"Cookie", ""},
		"DNS rebinding":                    {"Host", "evil.example.com"},
		"DNS rebinding with the port":      {"Host", "evil.example.com:" + s.host[strings.LastIndex(s.host, ":")+1:]},
		"another name of this address":     {"Host", "localhost:" + s.host[strings.LastIndex(s.host, ":")+1:]},
		"the address without its port":     {"Host", "127.0.0.1"},
		"another origin":                   {"Origin", "http://evil.example.com"},
		"another port of this address":     {"Origin", "http://127.0.0.1:1"},
		"an origin that is not told":       {"Origin", "null"},
		"a script of another site":         {"Sec-Fetch-Site", "cross-site"},
		"a page on another port":           {"Sec-Fetch-Site", "same-site"},
		"a link of another site":           {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"},
		"a cookie of another console":      {"Cookie", "stele-console-1=" + strings.SplitN(s.cookie, "=", 2)[1]},
		"a token that is part of the real": {"Cookie", s.cookie[:len(s.cookie)-1]},
	} {
		for _, path := range []string{"/", "/main.js", "/console", namespaces, "/server/version"} {
			a := s.do("GET", path, nil, headers...)
			if text := s.text(a); a.StatusCode != http.StatusForbidden && a.StatusCode != http.StatusMisdirectedRequest || strings.Contains(text, "<") || strings.Contains(text, "path\"") {
				t.Errorf("%s, %s: %s %s", name, path, a.Status, text)
			}
		}
	}
	// The cookie goes to all ports of the address, so it is not enough for what the page reads.
	for _, path := range []string{"/console", namespaces} {
		if a := s.do("GET", path, nil, "Stele-Console-Key", ""); a.StatusCode != http.StatusForbidden {
			t.Errorf("the cookie alone, %s: %s", path, a.Status)
		}
	}
	if len(s.asked) != 0 {
		t.Errorf("the server was asked %d times", len(s.asked))
	}
	if a := s.do("GET", namespaces, nil, "Origin", "http://"+s.host, "Sec-Fetch-Site", "same-origin"); a.StatusCode != http.StatusOK {
		t.Errorf("the page itself: %s", a.Status)
	}
}

func TestThePageLoadsItsOwnFilesOnly(t *testing.T) {
	s := start(t, nil).open()
	for path, mediaType := range map[string]string{
		"/": "text/html; charset=utf-8", "/main.js": "text/javascript; charset=utf-8", "/style.css": "text/css; charset=utf-8",
		"/icon.svg": "image/svg+xml", "/vendor/preact.js": "text/javascript; charset=utf-8", "/vendor/LICENSE": "text/plain; charset=utf-8",
	} {
		a := s.do("GET", path, nil)
		if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != mediaType {
			t.Errorf("%s: %s %s", path, a.Status, a.Header.Get("Content-Type"))
		}
		policy := a.Header.Get("Content-Security-Policy")
		for _, rule := range []string{"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "form-action 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, rule) {
				t.Errorf("%s: the Content-Security-Policy lacks %s: %s", path, rule, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
			t.Errorf("%s: %s", path, policy)
		}
		for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY"} {
			if got := a.Header.Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", path, header, got, want)
			}
		}
	}
	for _, path := range []string{"/none.js", "/vendor", "/vendor/", "/..", "/../console.go", "/%2e%2e/console.go"} {
		if a := s.do("GET", path, nil); a.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, a.Status)
		}
	}
	if a := s.do("POST", "/", nil); a.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /: %s", a.Status)
	}
}

// The page is small enough to be read on a slow link, as through a tunnel.
func TestThePageIsSmall(t *testing.T) {
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(os.DirFS("page"), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile("page/" + path)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("innerHTML =")) || bytes.Contains(text, []byte("insertAdjacentHTML")) {
			t.Errorf("%s makes HTML of text", path)
		}
		_, err = w.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if compressed.Len() > 300<<10 || compressed.Len() < 10<<10 {
		t.Errorf("the page has %d bytes compressed", compressed.Len())
	}
}

func TestReadsGoToTheServerWithTheCredentialsOfTheUser(t *testing.T) {
	s := start(t, nil).open()
	for path, want := range map[string]string{
		namespaces + "?limit=1&continue=a%2Fb":                               "/api/v1/namespaces?limit=1&continue=a%2Fb",
		"/server/at/12/apis/example.com/v1/x":                                "/at/12/apis/example.com/v1/x",
		"/server/at/2026-11-20T14:00:00Z/version":                            "/at/2026-11-20T14:00:00Z/version",
		"/server/readyz?verbose":                                             "/readyz?verbose",
		"/server/apis":                                                       "/apis",
		"/server/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node": "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
	} {
		s.asked = nil
		a := s.do("GET", path, nil, "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1", "Authorization", "Bearer of-the-page", "Impersonate-User", "root", "X-Remote-User", "root", "Origin", "http://"+s.host)
		if text := s.text(a); a.StatusCode != http.StatusOK || len(s.asked) != 1 || s.asked[0].URL.RequestURI() != want {
			t.Errorf("%s: %s %s, %v", path, a.Status, text, s.asked)
			continue
		}
		h := s.asked[0].Header
		if h.Get("Authorization") != "Bearer the-credential" || h.Get("User-Agent") != "stele/test" || h.Get("Accept") != "application/json;as=Table;g=meta.k8s.io;v=v1" {
			t.Errorf("%s: the server got %v", path, h)
		}
		for _, name := range []string{"Cookie", "Impersonate-User", "X-Remote-User", "Origin", "Stele-Console-Key", "X-Forwarded-For"} {
			if h.Get(name) != "" {
				t.Errorf("%s: the server got %s: %s", path, name, h.Get(name))
			}
		}
	}
}

func TestTheUserWhomTheCommandImpersonates(t *testing.T) {
	s := start(t, func(c *rest.Config) {
		c.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"team-data"}}
	}).open()
	s.do("GET", namespaces, nil, "Impersonate-User", "root")
	if h := s.asked[0].Header; h.Get("Impersonate-User") != "alice" || h.Get("Impersonate-Group") != "team-data" {
		t.Errorf("the server got %v", h)
	}
	if text := s.text(s.do("GET", "/console", nil)); !strings.Contains(text, `"as":"alice"`) {
		t.Error(text)
	}
}

func TestNothingThatWritesReachesTheServer(t *testing.T) {
	s := start(t, nil).open()
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "CONNECT", "post"} {
		for _, path := range []string{namespaces, "/server/apis/policy.stele.dev/v1/policies", "/server/apis/example.com/v1/namespaces/default/databases/x", "/server/apis/authentication.k8s.io/v1/tokenreviews",
			"/server/api/v1/namespaces/default/serviceaccounts/default/token", "/server/at/5/apis/log.stele.dev/v1/blames"} {
			if a := s.do(method, path, strings.NewReader("{}")); a.StatusCode != http.StatusMethodNotAllowed || method != "HEAD" && !strings.Contains(s.text(a), "only reads") {
				t.Errorf("%s %s: %s", method, path, a.Status)
			}
		}
	}
	for _, path := range []string{"/server/metrics", "/server/debug/pprof/", "/server/", "/server/flagz", "/server/at/5", "/server/apisx"} {
		if a := s.do("GET", path, nil); a.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, a.Status)
		}
	}
	for _, path := range []string{"/server/api/../metrics", "/server/api/%2e%2e/metrics", "/server/at/5/../../metrics"} {
		if a := s.do("GET", path, nil); a.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", path, a.Status)
		}
	}
	if len(s.asked) != 0 {
		t.Errorf("the server was asked: %v", s.asked)
	}
}

func TestQuestionsThatStoreNothingArePosted(t *testing.T) {
	s := start(t, nil).open()
	for _, path := range []string{"/apis/log.stele.dev/v1/blames", "/apis/policy.stele.dev/v1/explanations", "/apis/policy.stele.dev/v1/resourceaccessreviews", "/apis/policy.stele.dev/v1/accessdifferences",
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/authentication.k8s.io/v1/selfsubjectreviews"} {
		s.asked = nil
		body := ""
		s.answer = func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body) // a difference is seen below
			body = string(text)
			w.WriteHeader(http.StatusCreated)
		}
		if a := s.do("POST", "/server"+path, strings.NewReader(`{"spec":{}}`), "Content-Type", "application/json"); a.StatusCode != http.StatusCreated || body != `{"spec":{}}` || s.asked[0].Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s, the server got %q", path, a.Status, body)
		}
	}
}

func TestAnswersAreDataAndNoPage(t *testing.T) {
	s := start(t, nil).open()
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html")
		h.Set("Set-Cookie", "stele-console=stolen")
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Content-Security-Policy", "default-src *")
		h.Set("Stele-Revision", "12")
		fmt.Fprint(w, "<script>alert(1)</script>")
	}
	a := s.do("GET", namespaces, nil)
	if policy := a.Header.Values("Content-Security-Policy"); len(policy) != 1 || !strings.Contains(policy[0], "sandbox") || !strings.Contains(policy[0], "default-src 'none'") {
		t.Errorf("%q", policy)
	}
	if a.Header.Get("Set-Cookie") != "" || a.Header.Get("Access-Control-Allow-Origin") != "" || a.Header.Get("X-Content-Type-Options") != "nosniff" || a.Header.Get("Stele-Revision") != "12" {
		t.Errorf("%v", a.Header)
	}
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://evil.example.com/", http.StatusFound)
	}
	if a := s.do("GET", namespaces, nil); a.StatusCode != http.StatusBadGateway || a.Header.Get("Location") != "" {
		t.Errorf("a redirect: %s", a.Status)
	}
}

func TestEventsOfAWatchComeAtOnce(t *testing.T) {
	s := start(t, nil).open()
	next := make(chan bool)
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		for range 2 {
			fmt.Fprintln(w, `{"type":"ADDED"}`)
			w.(http.Flusher).Flush()
			select {
			case <-next: // the page has read the event
			case <-r.Context().Done():
				return
			}
		}
	}
	a := s.do("GET", namespaces+"?watch=1", nil)
	buffer := make([]byte, 100)
	for range 2 {
		if n, err := a.Body.Read(buffer); err != nil || string(buffer[:n]) != "{\"type\":\"ADDED\"}\n" {
			t.Fatalf("%q %v", buffer[:n], err)
		}
		next <- true
	}
}

func TestErrorsOfTheServer(t *testing.T) {
	s := start(t, nil).open()
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Warning", `299 - "as if"`)
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"kind":"Status","code":401,"message":"Unauthorized"}`)
	}
	if a := s.do("GET", namespaces, nil); a.StatusCode != http.StatusUnauthorized || a.Header.Get("Warning") == "" || !strings.Contains(s.text(a), `"code":401`) {
		t.Errorf("expired credentials: %s", a.Status)
	}
	s.server.CloseClientConnections()
	s.server.Close()
	a := s.do("GET", namespaces, nil)
	if text := s.text(a); a.StatusCode != http.StatusBadGateway || !strings.Contains(text, `"kind":"Status"`) || !strings.Contains(text, s.server.URL) || !strings.Contains(text, "cannot be asked") {
		t.Errorf("a server that is away: %s %s", a.Status, text)
	}
}

func TestAContextAtAMomentStartsThere(t *testing.T) {
	s := start(t, func(c *rest.Config) { c.Host += "/at/17" })
	a := s.do("GET", strings.TrimPrefix(s.link, "http://"+s.host), nil)
	if !strings.HasPrefix(a.Header.Get("Location"), "/#at=17&key=") {
		t.Error(a.Header.Get("Location"))
	}
	s = start(t, func(c *rest.Config) { c.Host += "/at/17" }).open()
	s.do("GET", namespaces, nil)
	if got := s.asked[0].URL.Path; got != "/api/v1/namespaces" {
		t.Error(got)
	}
}

func TestUpgradesAreNotPassedOn(t *testing.T) {
	s := start(t, nil).open()
	a := s.do("GET", namespaces, nil, "Connection", "Upgrade", "Upgrade", "websocket")
	if a.StatusCode != http.StatusOK || s.asked[0].Header.Get("Upgrade") != "" {
		t.Errorf("%s, the server got %v", a.Status, s.asked[0].Header)
	}
}
