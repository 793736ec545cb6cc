package core_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/version"
	"stele.dev/stele/core"
	"stele.dev/stele/projections/history"
)

// Trouble with the history is told at once to those who need it, with its reason, and to nobody
// else.
func TestAHistoryThatCannotGoOn(t *testing.T) {
	r := newPlane(t)
	first := r.must(t, 201, "POST", widgetsPath, widget("a", 1)).field("metadata", "resourceVersion").(string)
	r.must(t, 200, "PATCH", widgetsPath+"/a", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")
	past, err := history.Open(history.Options{Dir: t.TempDir(), Log: r.log, Start: r.log.Start()})
	if err != nil {
		t.Fatal(err)
	}
	defer past.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	if err := past.Run(ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	auth, err := authenticator()
	if err != nil {
		t.Fatal(err)
	}
	stuck := &replica{Pipeline: core.New(core.Options{Committer: r.committer, Log: r.log, History: past, Authenticator: auth, Version: version.Info{Major: "1", Minor: "37"}, Compile: compileHere})}

	for _, path := range []string{"/at/" + first + widgetsPath + "/a", "/at/" + first + widgetsPath, "/apis/log.stele.dev/v1/changes"} {
		a := stuck.must(t, http.StatusServiceUnavailable, "GET", path, "")
		if text := a.field("message").(string); !strings.Contains(text, "the history is behind the log") || a.header.Get("Retry-After") == "" {
			t.Errorf("GET %s: %s, Retry-After %q", path, text, a.header.Get("Retry-After"))
		}
	}
	stuck.must(t, 200, "GET", widgetsPath+"/a", "")
	stuck.must(t, 200, "GET", widgetsPath, "")
	stuck.must(t, 200, "GET", widgetsPath+"?limit=1&resourceVersion="+first, "") // which is in memory
	stuck.must(t, 200, "PATCH", widgetsPath+"/a", `{"spec":{"size":3}}`, "Content-Type", "application/merge-patch+json")
	stuck.must(t, 200, "GET", "/readyz", "")
	metrics := string(stuck.must(t, 200, "GET", "/metrics", "").body)
	for _, want := range []string{"\nstele_history_revision 0\n", "\nstele_history_stuck 1\n"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
}
