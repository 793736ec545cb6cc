package core_test

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"stele.dev/stele/core"
)

// A panic is an answer to the client, and a stack in the log; the next request is served.
func TestAPanicIsAnAnswer(t *testing.T) {
	p := newPlane(t)
	auth, err := authenticator()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	pipeline := core.New(core.Options{
		Committer: p.committer, Log: p.log, History: p.history, Authenticator: auth, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Checks: []core.Check{{Name: "broken", Check: func() error { panic("secret detail") }}},
	})
	w := httptest.NewRecorder()
	pipeline.ServeHTTP(w, request("GET", "/readyz", ""))
	a := answer{w.Code, w.Header(), w.Body.Bytes()}
	if a.code != 500 || a.field("reason") != "InternalError" || strings.Contains(string(a.body), "secret") {
		t.Errorf("%s", a)
	}
	if said := log.String(); !strings.Contains(said, "secret detail") || !strings.Contains(said, "pipeline_test.go") {
		t.Errorf("logged %q", said)
	}
	w = httptest.NewRecorder()
	if pipeline.ServeHTTP(w, request("GET", "/livez", "")); w.Code != 200 {
		t.Errorf("afterwards: %d", w.Code)
	}
}
