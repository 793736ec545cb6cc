package core_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/reviewers/review"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy"
)

// logging is a pipeline and what it logs. GET /sleep/DURATION takes so long.
type logging struct {
	*core.Pipeline
	log   bytes.Buffer
	level *slog.LevelVar
}

func newLogging(t *testing.T) *logging { return newLoggingOf(t, planetest.NewPlane(t), nil) }

func newLoggingOf(t *testing.T, p *planetest.Replica, reviewers review.Find) *logging {
	t.Helper()
	auth, err := planetest.Authenticator()
	if err != nil {
		t.Fatal(err)
	}
	l := &logging{level: new(slog.LevelVar)}
	l.level.Set(slog.LevelWarn)
	l.Pipeline = core.New(core.Options{
		Committer: p.Committer, Log: p.Log, History: p.History, Authenticator: auth, LogLevel: l.level, Reviewers: reviewers,
		Logger: slog.New(slog.NewTextHandler(&l.log, &slog.HandlerOptions{Level: l.level})),
		Routes: []core.Route{{Path: "/sleep/", Serve: func(c *call.Call) error {
			d, err := time.ParseDuration(strings.TrimPrefix(c.HTTP.URL.Path, "/sleep/"))
			time.Sleep(d)
			c.Sent = true
			_, _ = io.WriteString(c.W, "ok")
			return err
		}}},
	})
	return l
}

func (l *logging) send(method, path, body string, header ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	l.ServeHTTP(w, planetest.Request(method, path, body, header...))
	return w
}

func TestSlowRequestsAreLoggedWithTheirStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogging(t)
		l.send("GET", "/sleep/900ms", "")
		if l.log.Len() > 0 {
			t.Errorf("a request that is not slow is logged: %s", l.log.String())
		}
		w := l.send("GET", "/sleep/2s", "")
		for _, part := range []string{`msg="a request was slow"`, "auditID=" + w.Header().Get("Audit-Id"), "path=/sleep/2s", "user=admin", "code=200", "took=2s", "stage=answer", "answer=2000000", "waitedForSeats=0s"} {
			if !strings.Contains(l.log.String(), part) {
				t.Errorf("the message lacks %s: %s", part, l.log.String())
			}
		}
	})
}

// patient is a webhook that answers after a while.
type patient time.Duration

func (p patient) Review(context.Context, *review.Review) (*review.Verdict, error) {
	time.Sleep(time.Duration(p))
	return &review.Verdict{Allowed: true}, nil
}

// As in kube-apiserver, the time of webhooks is no part of the service level.
func TestTheServiceLevelIsWithoutWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := planetest.NewPlane(t)
		p.Activate(t, planetest.Bundle+`
bundle: teams: t: admission: webhooks: validating: "check.example.com": {
	rules: all: {apiGroups: ["example.com"], resources: ["widgets"], operations: ["CREATE"]}
	sideEffects: "None", clientConfig: url: "https://check.example.com"
}
`)
		l := newLoggingOf(t, p, func(*policy.Policy, *policy.Reviewer) review.Reviewer { return patient(3 * time.Second) })
		if w := l.send("POST", planetest.WidgetsPath, planetest.Widget("w", 1)); w.Code != 201 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		metrics := l.send("GET", "/metrics", "").Body.String()
		const labels = `group="example.com",resource="widgets",scope="resource",subresource="",verb="POST",version="v1"}`
		expectValues(t, metrics, map[string]float64{
			`apiserver_request_duration_seconds_sum{component="apiserver",dry_run="",` + labels:                                                                    3,
			`apiserver_request_sli_duration_seconds_sum{component="apiserver",` + labels:                                                                           0,
			`apiserver_admission_controller_admission_duration_seconds_sum{name="ValidatingAdmissionWebhook",operation="CREATE",rejected="false",type="validate"}`: 3,
			`apiserver_admission_controller_admission_duration_seconds_sum{name="ValidatingAdmissionPolicy",operation="CREATE",rejected="false",type="validate"}`:  0,
		})
		if !strings.Contains(l.log.String(), "waitedForReviewers=3s") {
			t.Errorf("the message does not say how long the request waited for reviewers: %s", l.log.String())
		}
	})
}

func TestManySlowRequestsDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogging(t)
		var sent sync.WaitGroup
		for range 100 {
			sent.Go(func() { l.send("GET", "/sleep/1s", "") })
		}
		sent.Wait()
		if n := strings.Count(l.log.String(), "a request was slow"); n != 20 {
			t.Errorf("%d slow requests are logged, want 20", n)
		}
	})
}

func TestTheLevelOfMessagesCanBeChanged(t *testing.T) {
	l := newLogging(t)
	for _, q := range []struct {
		method, body, token string
		code                int
		level               slog.Level
	}{
		{"PUT", "debug", "nobody-token", 403, slog.LevelWarn},
		{"PUT", "loud", "admin-token", 400, slog.LevelWarn},
		{"GET", "", "admin-token", 404, slog.LevelWarn},
		{"PUT", "debug\n", "admin-token", 200, slog.LevelDebug},
		{"PUT", "warn", "admin-token", 200, slog.LevelWarn},
		{"PUT", "error+1000", "admin-token", 400, slog.LevelWarn},
		{"PUT", "ERROR", "admin-token", 200, slog.LevelError},
	} {
		w := l.send(q.method, "/debug/flags/v", q.body, "Authorization", "Bearer "+q.token)
		if w.Code != q.code || l.level.Level() != q.level {
			t.Errorf("%s %q: %d, and the level is %s; want %d and %s\n%s", q.method, q.body, w.Code, l.level.Level(), q.code, q.level, w.Body)
		}
	}
	if n := strings.Count(l.log.String(), "the level of messages was changed"); n != 3 {
		t.Errorf("%d changes are logged, want 3", n)
	}
}
