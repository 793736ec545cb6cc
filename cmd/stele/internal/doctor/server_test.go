package doctor

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
)

func TestFindingsOfMetrics(t *testing.T) {
	for _, tc := range []struct {
		name    string
		metrics map[string]float64
		level   Level
		on      string
		text    string
	}{
		{"a full disk", map[string]float64{"stele_data_free_bytes": 1 << 20, "stele_log_min_free_disk_bytes": 256 << 20}, Fail, "disk", "1.0 MiB free"},
		{"sizes", map[string]float64{"stele_data_bytes": 3 << 20}, OK, "sizes", "all data 3.0 MiB"},
		{"a full database", map[string]float64{"stele_log_used_bytes": 900, "stele_log_limit_bytes": 800}, Fail, "etcd", "writes are refused"},
		{"refused writes", map[string]float64{"stele_log_refused_total": 3}, Warn, "refused", "3 writes were refused"},
		{"a damaged segment", map[string]float64{"stele_log_segments": 4, "stele_log_damaged_segments": 1}, Fail, "segments", "1 cannot be read"},
		{"segments", map[string]float64{"stele_log_segments": 4, "stele_log_sealed_revision": 77}, OK, "segments", "4, up to revision 77"},
		{"failed sealing", map[string]float64{"stele_log_seal_errors_total": 2}, Warn, "sealing", "failed 2 times"},
		{"failed checkpoints", map[string]float64{"stele_checkpoint_revision": 5, "stele_checkpoint_failures_total": 2}, Warn, "checkpoint", "2 could not be written"},
		{"a checkpoint", map[string]float64{"stele_checkpoint_revision": 60}, OK, "checkpoint", "of revision 60; a start reads 40 revisions behind it"},
		{"no checkpoint", map[string]float64{"stele_checkpoint_revision": 0}, OK, "checkpoint", "there is none yet"},
		{"members of etcd", map[string]float64{"stele_etcd_members": 3, "stele_etcd_member_up": 3}, OK, "etcd", "all 3 members of etcd can be used"},
		{"a lost member", map[string]float64{"stele_etcd_members": 3, "stele_etcd_member_up": 2}, Warn, "etcd", "2 of 3 members"},
		{"a lost quorum", map[string]float64{"stele_etcd_members": 3, "stele_etcd_member_up": 1}, Fail, "etcd", "nothing can be written"},
		{"an alarm of etcd", map[string]float64{"stele_etcd_members": 3, "stele_etcd_member_up": 3, "stele_etcd_member_alarm": 3}, Fail, "etcd", "has raised an alarm"},
		{"a projection that differs", map[string]float64{"stele_projection_differs": 1}, Fail, "projections", "is not what the log makes of it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := new(Report)
			r.measure(tc.metrics, 100)
			finds(t, r, tc.level, tc.on, tc.text)
		})
	}
}

func TestFailedChecksHaveTheirReason(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/readyz/clock":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("[-]clock failed: it is an hour behind\nreadyz check failed\n"))
		case "/readyz/audit":
			w.WriteHeader(http.StatusForbidden)
		case "/readyz/room":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("[-]room failed: the disk is full\nreadyz check failed\n"))
		}
	}))
	defer server.Close()
	s := &client.Status{Checks: []client.ReadyCheck{{Name: "ping", OK: true}, {Name: "clock"}, {Name: "audit"}, {Name: "log"}, {Name: "room", Warns: true}}}
	r := new(Report)
	r.readiness(t.Context(), &rest.Config{Host: server.URL}, s)
	finds(t, r, Fail, "readyz", "clock: it is an hour behind")
	finds(t, r, Fail, "readyz", "audit: you may not read the reason at /readyz/audit")
	finds(t, r, Fail, "readyz", "log: it has just recovered")
	finds(t, r, Warn, "readyz", "room: the disk is full")
	if text := r.text(true); !strings.Contains(text, "timedatectl status") {
		t.Errorf("no command:\n%s", text)
	}
	good := new(Report)
	good.readiness(t.Context(), &rest.Config{Host: server.URL}, &client.Status{Ready: true, Checks: []client.ReadyCheck{{Name: "ping", OK: true}}})
	finds(t, good, OK, "readyz", "all 1 checks pass")
}
