package core_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/version"
	"stele.dev/stele/core"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/projections/history"
)

// Trouble with the history is told at once to those who need it, with its reason, and to nobody
// else.
func TestAHistoryThatCannotGoOn(t *testing.T) {
	r := planetest.NewPlane(t)
	first := r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1)).Field("metadata", "resourceVersion").(string)
	r.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")
	past, err := history.Open(history.Options{Dir: t.TempDir(), Log: r.Log, Start: r.Log.Start()})
	if err != nil {
		t.Fatal(err)
	}
	defer past.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	if err := past.Run(ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	auth, err := planetest.Authenticator()
	if err != nil {
		t.Fatal(err)
	}
	stuck := &planetest.Replica{Pipeline: core.New(core.Options{Committer: r.Committer, Log: r.Log, History: past, Authenticator: auth, Version: version.Info{Major: "1", Minor: "37"}, Compile: planetest.CompileHere})}

	for _, path := range []string{"/at/" + first + planetest.WidgetsPath + "/a", "/at/" + first + planetest.WidgetsPath, "/apis/log.stele.dev/v1/changes"} {
		a := stuck.Must(t, http.StatusServiceUnavailable, "GET", path, "")
		if text := a.Field("message").(string); !strings.Contains(text, "the history is behind the log") || a.Header.Get("Retry-After") == "" {
			t.Errorf("GET %s: %s, Retry-After %q", path, text, a.Header.Get("Retry-After"))
		}
	}
	stuck.Must(t, 200, "GET", planetest.WidgetsPath+"/a", "")
	stuck.Must(t, 200, "GET", planetest.WidgetsPath, "")
	stuck.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=1&resourceVersion="+first, "") // which is in memory
	stuck.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":3}}`, "Content-Type", "application/merge-patch+json")
	stuck.Must(t, 200, "GET", "/readyz", "")
	metrics := string(stuck.Must(t, 200, "GET", "/metrics", "").Body)
	for _, want := range []string{"\nstele_history_revision 0\n", "\nstele_history_stuck 1\n"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
}
