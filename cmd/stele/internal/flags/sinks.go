// This file has the flags that say where the audit log goes. Those that kube-apiserver has, too, have its names and
// meanings.

package flags

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/record/audit"
	"stele.dev/stele/core/record/audit/otlp"
	"stele.dev/stele/core/record/audit/webhook"
	"stele.dev/stele/core/run/plane"
)

// Defaults of the flags.
const (
	DefaultMaxSize    = 256 // MiB
	DefaultMaxBackups = 10
)

// Sinks are the flags of serve about the audit log.
type Sinks struct {
	path         string
	maxSize      int
	maxAge       int
	maxBackups   int
	compress     bool
	webhook      string
	batchSize    int
	batchWait    time.Duration
	backoff      time.Duration
	otlpEndpoint string
}

// Add adds the flags.
func (o *Sinks) Add(f *pflag.FlagSet) {
	f.StringVar(&o.path, "audit-log-path", "", "file of the audit log; - for standard output (default: audit/audit.log in --data-dir)")
	f.IntVar(&o.maxSize, "audit-log-maxsize", DefaultMaxSize, "size in MiB at which the file of the audit log is rotated; 0 for never")
	f.IntVar(&o.maxAge, "audit-log-maxage", 0, "for how many days rotated files of the audit log are kept; 0 for no limit")
	f.IntVar(&o.maxBackups, "audit-log-maxbackup", DefaultMaxBackups, "how many rotated files of the audit log are kept; 0 for all")
	f.BoolVar(&o.compress, "audit-log-compress", true, "compress rotated files of the audit log with gzip")
	f.StringVar(&o.webhook, "audit-webhook-config-file", "", "kubeconfig of a webhook that gets the audit log, too")
	f.IntVar(&o.batchSize, "audit-webhook-batch-max-size", 400, "how many audit events are sent to the webhook at once")
	usage.DurationVar(f, &o.batchWait, "audit-webhook-batch-max-wait", time.Second, "how long audit events wait for others before they are sent")
	usage.DurationVar(f, &o.backoff, "audit-webhook-initial-backoff", 10*time.Second, "how long to wait before audit events are sent again that the webhook has not taken; doubled each time, up to a minute")
	f.StringVar(&o.otlpEndpoint, "audit-otlp-endpoint", "", "URL of a collector of OpenTelemetry that gets the audit log, too, as log records over HTTP; headers and certificates are in OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY")
}

// Stdout reports whether standard output gets the audit log.
func (o *Sinks) Stdout() bool { return o.path == "-" }

// Apply sets what the flags say in the config of a plane. file is the default file of the audit log, and stdout gets the
// lines if that is asked for. The error names the flag.
func (o *Sinks) Apply(c *plane.Config, file string, stdout io.Writer) error {
	for _, f := range []struct {
		name  string
		value int
		least int
	}{
		{"audit-log-maxsize", o.maxSize, 0}, {"audit-log-maxage", o.maxAge, 0}, {"audit-log-maxbackup", o.maxBackups, 0}, {"audit-webhook-batch-max-size", o.batchSize, 1},
	} {
		if f.value < f.least {
			return fmt.Errorf("--%s %d: want a number that is at least %d", f.name, f.value, f.least)
		}
	}
	if o.batchWait <= 0 || o.backoff <= 0 {
		return errors.New("--audit-webhook-batch-max-wait and --audit-webhook-initial-backoff: want durations that are positive")
	}
	c.AuditFile = cmp.Or(o.path, file)
	c.Audit.Rotation.MaxBytes, c.Audit.Rotation.MaxAge = int64(o.maxSize)<<20, time.Duration(o.maxAge)*24*time.Hour
	c.Audit.Rotation.MaxBackups, c.Audit.Rotation.Compress = o.maxBackups, o.compress
	if o.Stdout() {
		c.AuditFile = ""
		c.Audit.Sinks = append(c.Audit.Sinks, plane.AuditSink{Sink: audit.NewLines("stdout", stdout), Local: true, Batching: audit.Batching{Wait: 100 * time.Millisecond}})
	}
	if o.webhook != "" {
		sink, err := webhook.Open(o.webhook)
		if err != nil {
			return fmt.Errorf("--audit-webhook-config-file: %w", err)
		}
		c.Audit.Sinks = append(c.Audit.Sinks, plane.AuditSink{Sink: sink, Batching: audit.Batching{Size: o.batchSize, Wait: o.batchWait, Backoff: o.backoff}})
	}
	if o.otlpEndpoint == "" {
		return nil
	}
	options := otlp.Options{Endpoint: o.otlpEndpoint}
	if err := options.FromEnvironment(os.Getenv); err != nil {
		return err
	}
	options.Instance, _ = os.Hostname()
	sink, err := otlp.New(options)
	if err != nil {
		return fmt.Errorf("--audit-otlp-endpoint: %w", err)
	}
	c.Audit.Sinks = append(c.Audit.Sinks, plane.AuditSink{Sink: sink})
	return nil
}
