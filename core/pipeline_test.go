package core_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"stele.dev/stele/core"
	"stele.dev/stele/core/run/plane/planetest"
)

// A panic is an answer to the client, and a stack in the log; the next request is served.
func TestAPanicIsAnAnswer(t *testing.T) {
	p := planetest.NewPlane(t)
	auth, err := planetest.Authenticator()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	pipeline := core.New(core.Options{
		Committer: p.Committer, Log: p.Log, History: p.History, Authenticator: auth, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Checks: []core.Check{{Name: "broken", Check: func() error { panic("secret detail") }}},
	})
	w := httptest.NewRecorder()
	pipeline.ServeHTTP(w, planetest.Request("GET", "/readyz", ""))
	a := planetest.Answer{Code: w.Code, Header: w.Header(), Body: w.Body.Bytes()}
	if a.Code != 500 || a.Field("reason") != "InternalError" || strings.Contains(string(a.Body), "secret") {
		t.Errorf("%s", a)
	}
	if said := log.String(); !strings.Contains(said, "secret detail") || !strings.Contains(said, "pipeline_test.go") {
		t.Errorf("logged %q", said)
	}
	w = httptest.NewRecorder()
	if pipeline.ServeHTTP(w, planetest.Request("GET", "/livez", "")); w.Code != 200 {
		t.Errorf("afterwards: %d", w.Code)
	}
}

// That a server is not ready is for everybody, and why for operators: an error of a plugin's may say anything.
func TestWhyAServerIsNotReady(t *testing.T) {
	p := planetest.NewPlane(t)
	auth, err := planetest.Authenticator()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	pipeline := core.New(core.Options{
		Committer: p.Committer, Log: p.Log, History: p.History, Authenticator: auth, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Checks: []core.Check{{Name: "authorizers", Check: func() error { return errors.New("the detail") }}},
	})
	for _, tc := range []struct {
		as, path string
		code     int
		want     string
		detail   bool
	}{
		{"", "/readyz", 500, "[-]authorizers failed: reason withheld\n", false},
		{"Bearer editor-token", "/readyz?verbose", 500, "[-]authorizers failed: reason withheld\n", false},
		{"", "/readyz/authorizers", 401, "Unauthorized", false},
		{"Bearer editor-token", "/readyz/authorizers", 403, "forbidden", false},
		{"Bearer admin-token", "/readyz/authorizers", 500, "[-]authorizers failed: the detail\n", true},
	} {
		w := httptest.NewRecorder()
		pipeline.ServeHTTP(w, planetest.Request("GET", tc.path, "", "Authorization", tc.as))
		if body := w.Body.String(); w.Code != tc.code || !strings.Contains(body, tc.want) || strings.Contains(body, "the detail") != tc.detail {
			t.Errorf("%s as %q: %d %s", tc.path, tc.as, w.Code, body)
		}
	}
	if said := log.String(); !strings.Contains(said, "authorizers: the detail") {
		t.Errorf("logged %q", said)
	}
}
