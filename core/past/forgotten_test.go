package past_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/logtest"
	"stele.dev/stele/eventlog/memlog"
)

// A read of a revision whose events no tier has any more is a 410 that names the earliest that is kept; later
// revisions are read from the archive as before.
func TestAReadOfWhatTheArchiveHasForgotten(t *testing.T) {
	var store memlog.Store
	r, _ := planetest.OpenReplicaWith(t.Context(), store.Open(nil), planetest.Options{Config: plane.Config{Logger: slog.Default()}})
	r.Bootstrap(t, planetest.Bundle)
	old := write(r, t, planetest.WidgetsPath, "old")
	for i := range 5 {
		write(r, t, planetest.WidgetsPath, fmt.Sprint("between", i))
	}
	kept := write(r, t, planetest.WidgetsPath, "kept")
	write(r, t, planetest.WidgetsPath, "newest")
	want := r.Must(t, 200, "GET", "/at/"+kept+planetest.WidgetsPath+"/kept", "")

	archive := &logtest.Archive{}
	r.Trim(t, archive)
	if a := r.Must(t, 200, "GET", "/at/"+kept+planetest.WidgetsPath+"/kept", ""); string(a.Body) != string(want.Body) {
		t.Errorf("from the archive: %s, want %s", a, want)
	}
	var upto uint64
	fmt.Sscan(kept, &upto)
	archive.Forget(upto - 1)
	for _, path := range []string{"/old", "/old", ""} { // the first one finds out
		a := r.Must(t, 410, "GET", "/at/"+old+planetest.WidgetsPath+path, "")
		if !strings.Contains(string(a.Body), kept) {
			t.Errorf("the answer does not name revision %s: %s", kept, a)
		}
	}
	r.Must(t, 410, "GET", "/at/2001-01-01T00:00:00Z"+planetest.WidgetsPath, "")
}
