package core_test

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
	r, _ := tryStartWith(t.Context(), store.Open(nil), planetest.Options{Config: plane.Config{Logger: slog.Default()}})
	r.bootstrap(t, bundle)
	old := r.write(t, widgetsPath, "old")
	for i := range 5 {
		r.write(t, widgetsPath, fmt.Sprint("between", i))
	}
	kept := r.write(t, widgetsPath, "kept")
	r.write(t, widgetsPath, "newest")
	want := r.must(t, 200, "GET", "/at/"+kept+widgetsPath+"/kept", "")

	archive := &logtest.Archive{}
	r.trim(t, archive)
	if a := r.must(t, 200, "GET", "/at/"+kept+widgetsPath+"/kept", ""); string(a.body) != string(want.body) {
		t.Errorf("from the archive: %s, want %s", a, want)
	}
	var upto uint64
	fmt.Sscan(kept, &upto)
	archive.Forget(upto - 1)
	for _, path := range []string{"/old", "/old", ""} { // the first one finds out
		a := r.must(t, 410, "GET", "/at/"+old+widgetsPath+path, "")
		if !strings.Contains(string(a.body), kept) {
			t.Errorf("the answer does not name revision %s: %s", kept, a)
		}
	}
	r.must(t, 410, "GET", "/at/2001-01-01T00:00:00Z"+widgetsPath, "")
}
