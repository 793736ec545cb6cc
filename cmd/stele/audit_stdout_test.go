package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Programs that read the audit log from standard output get JSON lines and nothing else.
func TestStandardOutputHasAuditLinesOnly(t *testing.T) {
	p, err := serveProcess("stele", t.TempDir(), os.Environ(), "--audit-log-path", "-")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.hear(&p.stderr, regexp.MustCompile(`(?m)^Try .*$`)); err != nil {
		t.Fatal(err)
	}
	if err := p.hear(&p.stdout, regexp.MustCompile(`"kind":"Event"`)); err != nil {
		t.Fatal(err)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(p.stdout.String()) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Kind != "Event" || e.AuditID == "" {
			t.Errorf("%q: %v", line, err)
		}
	}
}
