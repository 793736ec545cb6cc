package core_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core"
	"stele.dev/stele/core/run/plane/planetest"
)

// Probes ask several times a second. The log says when other checks fail, and repeats it once a minute.
func TestProbesDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := planetest.NewPlane(t)
		auth, err := planetest.Authenticator()
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		failing := map[string]bool{"first": true}
		check := func(name string) core.Check {
			return core.Check{Name: name, Check: func() error {
				if failing[name] {
					return errors.New(time.Now().String())
				}
				return nil
			}}
		}
		pipeline := core.New(core.Options{
			Committer: p.Committer, Log: p.Log, History: p.History, Authenticator: auth, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Checks: []core.Check{check("first"), check("second")},
		})
		for _, step := range []struct {
			what  string
			fails []string
			lines int
		}{
			{"a check fails", []string{"first"}, 1},
			{"it goes on", []string{"first"}, 0},
			{"another one fails, too", []string{"first", "second"}, 1},
			{"all is well", nil, 0},
			{"it fails again", []string{"first"}, 1},
		} {
			failing = map[string]bool{}
			for _, name := range step.fails {
				failing[name] = true
			}
			log.Reset()
			for range 50 {
				pipeline.ServeHTTP(httptest.NewRecorder(), planetest.Request("GET", "/readyz", "", "Authorization", ""))
				time.Sleep(100 * time.Millisecond)
			}
			if n := strings.Count(log.String(), "check failed"); n != step.lines {
				t.Errorf("%s: %d lines, want %d\n%s", step.what, n, step.lines, log.String())
			}
		}
		log.Reset()
		for range 130 {
			time.Sleep(time.Second)
			pipeline.ServeHTTP(httptest.NewRecorder(), planetest.Request("GET", "/readyz", "", "Authorization", ""))
		}
		if n := strings.Count(log.String(), "check failed"); n != 2 {
			t.Errorf("in two minutes: %d lines, want 2", n)
		}
	})
}
