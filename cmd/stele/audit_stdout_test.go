package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// The program that reads the audit log from standard output ends, and the server does not.
func TestTheReaderOfStandardOutputEnds(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, provideKey(dir, nil))
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	var stderr syncBuffer
	server := exec.Command("stele", "serve", "--listen", "127.0.0.1:0", "--audit-log-path", "-")
	server.Dir, server.Stdout, server.Stderr = dir, writer, &stderr
	require.NoError(t, server.Start())
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	t.Cleanup(func() { _ = server.Process.Kill() })
	require.NoError(t, writer.Close())
	_, err = bufio.NewReader(reader).ReadString('\n')
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(stderr.String(), "Try ") }, time.Minute, 10*time.Millisecond)
	require.NoError(t, reader.Close())

	config := clientConfig(t, dir)
	n := 0
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		n++
		_, err := dynamicClient(t, config).Create(context.Background(), database("db-"+strings.Repeat("x", n), 1), metav1.CreateOptions{})
		assert.NoError(c, err)
		assert.Contains(c, stderr.String(), "a sink takes no audit lines")
	}, time.Minute, 100*time.Millisecond)
	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	require.NoError(t, <-ended, stderr.String())
}
