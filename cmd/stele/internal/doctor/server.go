package doctor

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/core/run/plane/datadir"
)

// server looks at the server of the flags.
func (o *options) server(ctx context.Context) (*Report, error) {
	config, _, err := o.Config()
	if err != nil {
		return nil, err
	}
	r := &Report{Subject: strings.TrimSuffix(config.Host, "/")}
	s, err := client.ReadStatus(ctx, &o.Flags, config)
	if err != nil {
		r.add(Fail, "server", "stele doctor --data-dir ./stele-data", "%s", client.ErrorText(err))
		return r.finish(), ctx.Err()
	}
	r.add(OK, "server", "", "%s, at revision %d", s.Version, s.Revision)
	r.readiness(ctx, config, s)
	for _, c := range s.Certificates {
		do := "stele kubeconfig --help"
		switch c.Name {
		case "server", "authority":
			do = "stele serve # a start renews it"
		}
		r.certificate(c.Name, c.Ends, do)
	}
	metrics, err := client.ReadMetrics(ctx, config)
	if err != nil {
		r.add(Warn, "metrics", "stele who-can get /metrics", "disk, etcd, segments and checkpoints were not looked at: %v", err)
		return r.finish(), ctx.Err()
	}
	r.measure(metrics, s.Revision)
	return r.finish(), ctx.Err()
}

// remedies are commands for checks of /readyz.
var remedies = map[string]string{
	"clock":       "timedatectl status # and if the clock is right: stele serve --accept-clock",
	"log":         "stele doctor --data-dir ./stele-data",
	"room":        "df -h",
	"policy":      "stele policy log",
	"bootstrap":   "stele status",
	"authorizers": "stele status",
	"audit":       "df -h",
	"decisions":   "df -h",
}

// readiness reports the checks of /readyz. Only those that fail have lines of their own.
func (r *Report) readiness(ctx context.Context, config *rest.Config, s *client.Status) {
	failed := 0
	for _, check := range s.Checks {
		if check.OK {
			continue
		}
		failed++
		code, text, err := client.ReadAny(ctx, config, "/readyz/"+check.Name)
		reason := strings.TrimSpace(string(text))
		if _, after, found := strings.Cut(reason, " failed: "); found {
			reason, _, _ = strings.Cut(after, "\n")
		}
		switch {
		case err != nil:
			reason = err.Error()
		case code == http.StatusForbidden:
			reason = fmt.Sprintf("you may not read the reason at /readyz/%s", check.Name)
		case code == http.StatusOK:
			reason = "it has just recovered"
		}
		level := Fail
		if check.Warns {
			level = Warn
		}
		r.add(level, "readyz", remedies[check.Name], "%s: %s", check.Name, reason)
	}
	if why := s.Unknown["checks"]; why != "" {
		r.add(Warn, "readyz", "", "not looked at: %s", why)
	} else if failed == 0 {
		r.add(OK, "readyz", "", "all %d checks pass", len(s.Checks))
	}
}

// measure reports what the metrics of a server say. Those that are missing are of a part that the server does not have.
func (r *Report) measure(metrics map[string]float64, revision uint64) {
	value := func(name string) uint64 { return uint64(metrics[name]) }
	if free, known := metrics[datadir.FreeBytesMetric]; known {
		r.disk(uint64(free), value("stele_log_min_free_disk_bytes"), "df -h")
	}
	if data, known := metrics[datadir.BytesMetric]; known {
		r.add(OK, "sizes", "", "all data %s, etcd's database %s, segments %s, checkpoint %s",
			size(uint64(data)), size(value("stele_log_allocated_bytes")), size(value("stele_log_segment_bytes")), size(value("stele_checkpoint_bytes")))
	}
	enlarge := "stele serve --etcd-quota 16Gi"
	if members := value("stele_etcd_members"); members > 0 {
		enlarge = "etcdctl defrag --cluster"
		r.members(members, value("stele_etcd_member_up"), value("stele_etcd_member_alarm"))
	}
	if limit := value("stele_log_limit_bytes"); limit > 0 {
		r.database(int64(value("stele_log_used_bytes")), false, int64(limit), enlarge)
	}
	if n := value("stele_log_refused_total"); n > 0 {
		r.add(Warn, "refused", "stele doctor", "%d writes were refused for lack of space since the server started", n)
	}
	if n := value("stele_log_damaged_segments"); n > 0 {
		r.add(Fail, "segments", "stele doctor --data-dir ./stele-data", "%d cannot be read: the past that they hold is missing until they are restored from a backup", n)
	} else if n, known := metrics["stele_log_segments"]; known {
		r.add(OK, "segments", "", "%d, up to revision %d", int(n), value("stele_log_sealed_revision"))
	}
	if n := value("stele_log_seal_errors_total"); n > 0 {
		r.add(Warn, "sealing", "df -h", "sealing or trimming has failed %d times; the server's own messages say why", n)
	}
	if metrics["stele_projection_differs"] > 0 {
		r.add(Fail, "projections", "stele projection verify", "one is not what the log makes of it: answers may be wrong")
	}
	if checkpoint, known := metrics["stele_checkpoint_revision"]; known {
		if n := value("stele_checkpoint_failures_total"); n > 0 {
			r.add(Warn, "checkpoint", "df -h", "%d could not be written; the server's own messages say why", n)
		} else if checkpoint == 0 {
			r.add(OK, "checkpoint", "", "there is none yet")
		} else {
			r.add(OK, "checkpoint", "", "of revision %d; a start reads %d revisions behind it", uint64(checkpoint), max(revision, uint64(checkpoint))-uint64(checkpoint))
		}
	}
}

// members reports how many members of an etcd cluster answer, and whether they know of an alarm.
func (r *Report) members(all, up, alarms uint64) {
	const look = "etcdctl endpoint status --cluster"
	switch {
	case up <= all/2:
		r.add(Fail, "etcd", look, "%d of %d members of etcd can be used: without most of them nothing can be written", up, all)
	case up < all:
		r.add(Warn, "etcd", look, "%d of %d members of etcd can be used; the server's own messages name the others", up, all)
	default:
		r.add(OK, "etcd", "", "all %d members of etcd can be used", all)
	}
	if alarms > 0 {
		r.add(Fail, "etcd", "etcdctl alarm list", "etcd has raised an alarm: it refuses all writes until it is disarmed")
	}
}
