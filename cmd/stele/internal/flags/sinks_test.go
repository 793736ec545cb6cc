package flags_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"stele.dev/stele/cmd/stele/internal/flags"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/projections/audit"
)

func apply(t *testing.T, args ...string) (c plane.Config, err error) {
	t.Helper()
	var flags flags.Sinks
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.Add(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c, flags.Apply(&c, "default.log", &strings.Builder{})
}

func TestFlagsSayWhereTheAuditLogGoes(t *testing.T) {
	c, err := apply(t)
	if err != nil || c.AuditFile != "default.log" || c.Audit.Rotation != (audit.Rotation{MaxBytes: 256 << 20, MaxBackups: 10, Compress: true}) || len(c.Audit.Sinks) > 0 {
		t.Errorf("%+v, %v", c.Audit, err)
	}
	c, err = apply(t, "--audit-log-path=/x/y.log", "--audit-log-maxsize=1", "--audit-log-maxage=2", "--audit-log-maxbackup=3", "--audit-log-compress=false")
	if err != nil || c.AuditFile != "/x/y.log" || c.Audit.Rotation != (audit.Rotation{MaxBytes: 1 << 20, MaxAge: 48 * time.Hour, MaxBackups: 3}) {
		t.Errorf("%+v, %v", c.Audit, err)
	}
	c, err = apply(t, "--audit-log-path=-", "--audit-otlp-endpoint=http://collector:4318")
	if err != nil || c.AuditFile != "" || len(c.Audit.Sinks) != 2 || c.Audit.Sinks[0].Name() != "stdout" || !c.Audit.Sinks[0].Local || c.Audit.Sinks[1].Name() != "otlp" || c.Audit.Sinks[1].Local {
		t.Errorf("%+v, %v", c.Audit, err)
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for flag, want := range map[string]string{
		"--audit-log-maxsize=-1": "--audit-log-maxsize -1: want", "--audit-webhook-batch-max-size=0": "--audit-webhook-batch-max-size 0: want",
		"--audit-webhook-initial-backoff=0s": "durations that are positive", "--audit-webhook-config-file=/missing": "--audit-webhook-config-file: ",
		"--audit-otlp-endpoint=collector:4318": "--audit-otlp-endpoint: ",
	} {
		if _, err := apply(t, flag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
