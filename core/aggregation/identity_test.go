package aggregation_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// No request reaches a server without exactly the user that was decided, on a path that was authorized, whatever the client says in
// headers and in the path.
func FuzzNoRequestReachesAServerAsSomebodyElse(f *testing.F) {
	for _, header := range []string{
		"X-Remote-User", "X_Remote_User", "x-remote-user", "X-REMOTE_USER", "X-Remote-Group", "X-Remote-Uid", "X-Remote-Extra-Scopes", "X_Remote-Extra_Scopes", "Impersonate-User", "Impersonate-Group",
		"Impersonate_User", "Authorization", "Cookie", "X-Forwarded-User", "X-Original-Url", "X-Rewrite-Url", "X-Http-Method-Override", "Idempotency-Key", "Proxy-Authorization", "Expect", "Te", "Trailer",
	} {
		f.Add(header, "admin", "/rain", "")
	}
	for _, value := range []string{"X-Remote-User", "close, x-remote-group", "X-Remote-User, X-Remote-Group, Upgrade", "keep-alive,X_Remote_User"} {
		f.Add("Connection", value, "/rain", "watch=false")
	}
	for _, path := range []string{"/../../../kube-system/forecasts/x", "/%2e%2e/x", "/a%2fb", "/a/b/c/d", "//x", "/x/", "/x%00", "/a;b", "/a?b", "/a%252fb", "/x/radio", "/\\x", "/ü"} {
		f.Add("Accept", "application/json", path, "a=b;c")
	}
	w := newWeather(f)
	s := newSite(f, w.aggregate(`, answerTimeout: "1s"`))
	s.awaitServed()
	f.Fuzz(func(t *testing.T, header, value, path, query string) {
		if strings.Contains(path, "hang") || strings.Contains(query, "watch") {
			return // these take long, and say nothing about identity
		}
		to, err := url.ParseRequestURI("http://inside" + forecasts + path)
		if err != nil {
			return
		}
		to.RawQuery = query
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		q.URL = to
		q.Header = http.Header{"Authorization": {"Bearer editor-token"}}
		q.Header[header] = append(q.Header[header], value)
		q.Header[http.CanonicalHeaderKey(header)] = append(q.Header[http.CanonicalHeaderKey(header)], value)
		before := len(w.reached())
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, q)
		for _, h := range w.reached()[before:] {
			check(t, h)
		}
	})
}

// check fails if a request is not that of eddie for the group of the server.
func check(t *testing.T, h *http.Request) {
	t.Helper()
	for name, values := range h.Header {
		switch lower := strings.ReplaceAll(strings.ToLower(name), "_", "-"); {
		case lower == "x-remote-user":
			if name != "X-Remote-User" || !slices.Equal(values, []string{"eddie"}) {
				t.Errorf("the server got the user %q: %q", name, values)
			}
		case lower == "x-remote-group":
			if name != "X-Remote-Group" || !slices.Equal(values, []string{"editors", "system:authenticated"}) {
				t.Errorf("the server got the groups %q: %q", name, values)
			}
		case lower == "x-remote-uid":
			if name != "X-Remote-Uid" || !slices.Equal(values, []string{"2"}) {
				t.Errorf("the server got the UID %q: %q", name, values)
			}
		case strings.HasPrefix(lower, "x-remote-"), strings.HasPrefix(lower, "impersonate"), lower == "authorization", lower == "cookie", strings.Contains(lower, "method-override"), lower == "idempotency-key":
			t.Errorf("the server got %q: %q", name, values)
		}
	}
	if len(h.Header["X-Remote-User"]) != 1 || len(h.Header["X-Remote-Group"]) != 2 {
		t.Errorf("the server got %v", h.Header)
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(h.URL.Path, "/"), "/") {
		if part == "" || part == "." || part == ".." {
			t.Errorf("the server got the path %q", h.URL.Path)
		}
	}
	if !strings.HasPrefix(h.URL.Path, forecasts) || h.Method != http.MethodGet {
		t.Errorf("the server got %s %q", h.Method, h.URL.Path)
	}
}
