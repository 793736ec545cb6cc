package core_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// metricsOf returns what /metrics answers.
func metricsOf(t *testing.T, p *planetest.Replica) string {
	t.Helper()
	return string(p.Must(t, 200, "GET", "/metrics", "").Body)
}

// value returns the value of a series, -1 if there is none.
func value(t *testing.T, metrics, series string) float64 {
	t.Helper()
	for line := range strings.Lines(metrics) {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	return -1
}

// expectValues expects values of series.
func expectValues(t *testing.T, metrics string, want map[string]float64) {
	t.Helper()
	for series, n := range want {
		if got := value(t, metrics, series); got != n {
			t.Errorf("%s is %v, want %v", series, got, n)
		}
	}
}

func TestDecisionsAreMeasuredAsUpstream(t *testing.T) {
	p := planetest.NewPlane(t)
	before := metricsOf(t, p)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 422, "POST", planetest.WidgetsPath, planetest.Widget("b", -1))
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", "")
	p.Must(t, 403, "GET", planetest.WidgetsPath, "", "Impersonate-User", "nobody")
	after := metricsOf(t, p)
	grown := func(series string, n float64) {
		t.Helper()
		if got := value(t, after, series) - max(value(t, before, series), 0); got != n {
			t.Errorf("%s grew by %v, want %v", series, got, n)
		}
	}
	const step, controller = "apiserver_admission_step_admission_duration_seconds_count", "apiserver_admission_controller_admission_duration_seconds_count"
	grown(step+`{operation="CREATE",rejected="false",type="admit"}`, 2)
	grown(step+`{operation="CREATE",rejected="false",type="validate"}`, 1) // the other one has ended in the stage schema
	grown(step+`{operation="DELETE",rejected="false",type="validate"}`, 1)
	grown(controller+`{name="ValidatingAdmissionPolicy",operation="CREATE",rejected="false",type="validate"}`, 1)
	grown(`authorization_attempts_total{result="no-opinion"}`, 1)
	grown(`authorization_duration_seconds_count{result="no-opinion"}`, 1)
}

func TestAuditLevelsAreCountedAsUpstream(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Activate(t, planetest.Audited(`
		none: {order: 1, level: "None", verbs: ["list"], apiGroups: ["example.com"], resources: ["widgets"]}
		rest: {order: 2, level: "RequestResponse", apiGroups: ["example.com"], resources: ["widgets"]}`))
	count := func(level string) float64 {
		return max(value(t, metricsOf(t, p), `apiserver_audit_level_total{level="`+level+`"}`), 0)
	}
	for _, tc := range []struct {
		method, path, body, token, level string
		code                             int
	}{
		{"POST", planetest.WidgetsPath, planetest.Widget("a", 1), "admin", "RequestResponse", 201},
		{"POST", planetest.WidgetsPath, planetest.Widget("b", -1), "admin", "RequestResponse", 422},
		{"GET", planetest.WidgetsPath, "", "admin", "None", 200},
		{"GET", planetest.WidgetsPath + "/a", "", "wrong", "None", 401},
	} {
		before := count(tc.level)
		p.Must(t, tc.code, tc.method, tc.path, tc.body, "Authorization", "Bearer "+tc.token+"-token")
		own := 0.0 // of the request for the metrics
		if tc.level == "None" {
			own = 1
		}
		if got := count(tc.level) - before - own; got != 1 {
			t.Errorf("%s %s as %s: the level %s is counted %v times", tc.method, tc.path, tc.token, tc.level, got)
		}
	}
}

func TestStoredObjectsAreCounted(t *testing.T) {
	p := planetest.NewPlane(t)
	for i := range 3 {
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprint("w", i), 1))
	}
	expectValues(t, metricsOf(t, p), map[string]float64{
		`apiserver_resource_objects{group="example.com",resource="widgets"}`: 3,
		`apiserver_storage_objects{resource="widgets.example.com"}`:          3,
	})
}

// Each watcher gets each event, and all are counted; also a bookmark.
func TestEventsOfWatchesAreCounted(t *testing.T) {
	p := planetest.NewPlane(t)
	from := fmt.Sprintf("%s&resourceVersion=%d", planetest.WatchWidgets, p.Committer.Tip().Revision())
	a, b := p.Watch(t, from), p.Watch(t, from)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	a.Next(t)
	b.Next(t)
	metrics := metricsOf(t, p)
	expectValues(t, metrics, map[string]float64{
		`apiserver_watch_events_total{group="example.com",resource="widgets",version="v1"}`:                  2,
		`apiserver_watch_events_sizes_bucket{group="example.com",resource="widgets",version="v1",le="1024"}`: 2,
		`apiserver_watch_events_sizes_bucket{group="example.com",resource="widgets",version="v1",le="+Inf"}`: 2,
	})
	if sum := value(t, metrics, `apiserver_watch_events_sizes_sum{group="example.com",resource="widgets",version="v1"}`); sum < 400 || sum > 1200 {
		t.Errorf("two events have %v bytes", sum)
	}
}

// The request of /metrics itself runs.
func TestRunningRequestsAreCounted(t *testing.T) {
	p := planetest.NewPlane(t)
	expectValues(t, metricsOf(t, p), map[string]float64{`apiserver_current_inflight_requests{request_kind="readOnly"}`: 1})
}

func TestBuildAndHealthAreKnownByUpstreamsNames(t *testing.T) {
	p := planetest.NewPlane(t)
	if !regexp.MustCompile(`(?m)^kubernetes_build_info\{.*git_version=".*"\} 1$`).MatchString(metricsOf(t, p)) {
		t.Error("kubernetes_build_info is missing")
	}
	before := string(p.Must(t, 200, "GET", "/metrics/slis", "").Body)
	p.Must(t, 200, "GET", "/livez", "")
	p.Must(t, 200, "GET", "/readyz", "")
	slis := string(p.Must(t, 200, "GET", "/metrics/slis", "").Body)
	expectValues(t, slis, map[string]float64{`kubernetes_healthcheck{name="ping",type="livez"}`: 1, `kubernetes_healthcheck{name="policy",type="readyz"}`: 1})
	const total = `kubernetes_healthchecks_total{name="policy",status="success",type="readyz"}`
	if got := value(t, slis, total) - max(value(t, before, total), 0); got < 1 {
		t.Errorf("%s grew by %v", total, got)
	}
}
