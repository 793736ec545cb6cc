package main

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestReplicasAreShownAndShareKeys asks real processes on a member of etcd who they are, and starts one with other keys.
func TestReplicasAreShownAndShareKeys(t *testing.T) {
	r := startReplicated(t, 2, 1)
	eventually := func(args []string, wants ...string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			cmd := exec.CommandContext(t.Context(), "stele", args...)
			cmd.Dir = r.replicas[1].dir
			text, err := cmd.CombinedOutput()
			require.NoError(c, err, string(text))
			for _, want := range wants {
				require.Contains(c, string(text), want)
			}
		}, time.Minute, 200*time.Millisecond)
	}
	kubeconfig := filepath.Join("stele-data", "admin.kubeconfig")
	eventually([]string{"status", "--kubeconfig", kubeconfig}, "Replica", r.replicas[0].address, r.replicas[1].address, ", leads", ", this one")

	// A replica with an authority of its own is refused by one line, and writes nothing.
	stranger := t.TempDir()
	p, err := serveProcess("stele", stranger, nil, "--etcd-endpoints", strings.Join(r.replicas[0].route.Endpoints(), ","))
	require.NoError(t, err)
	require.Error(t, p.await())
	line := strings.TrimSpace(p.stderr.String())
	assert.Contains(t, line, "is not the one of this log: copy ca.crt, ca.key and sa.key to that folder")
	assert.Contains(t, line, r.replicas[0].address)
	assert.NotContains(t, line, "\n")

	// With the folder of another replica it starts.
	p, err = serveProcess("stele", stranger, nil, "--etcd-endpoints", strings.Join(r.replicas[0].route.Endpoints(), ","), "--pki-dir", r.replicas[0].data("pki"))
	require.NoError(t, err)
	require.NoError(t, p.await())
	eventually([]string{"status", "--kubeconfig", kubeconfig}, strings.TrimPrefix(clientConfig(t, stranger).Host, "https://"))
	require.NoError(t, p.end(15))
}

// TestAuditAsksAllReplicas refuses a request at each of two replicas, and asks one of them for both refusals. When the other one has
// been killed, a warning names it.
func TestAuditAsksAllReplicas(t *testing.T) {
	r := startReplicated(t, 2, 1)
	for i, s := range r.replicas {
		config := rest.CopyConfig(r.config)
		config.Host = "https://" + s.address
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
			return auditIDs{rt, func() string { return fmt.Sprint("refused-", i) }}
		})
		_, err := dynamicClient(t, config).Create(t.Context(), database("bad", -1), metav1.CreateOptions{})
		require.Equal(t, http.StatusUnprocessableEntity, statusOf(err), err)
	}
	ask := func(args ...string) (stdout, stderr string) {
		cmd := exec.CommandContext(t.Context(), "stele", append(args, "--kubeconfig", filepath.Join("stele-data", "admin.kubeconfig"))...)
		var out, problems strings.Builder
		cmd.Dir, cmd.Stdout, cmd.Stderr = r.replicas[1].dir, &out, &problems
		require.NoError(t, cmd.Run(), problems.String())
		return out.String(), problems.String()
	}
	list := []string{"audit", "--stage", "schema", "-o", "name"}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the leases of both are written soon
		stdout, stderr := ask(list...)
		assert.Contains(c, stdout, "refused-0")
		assert.Contains(c, stdout, "refused-1")
		assert.NotContains(c, stderr, "ask them")
		assert.NotContains(c, stderr, "missing")
	}, time.Minute, 200*time.Millisecond)
	one, _ := ask("audit", "refused-0")
	assert.Contains(t, one, "databases.example.com/schema")
	top, _ := ask("audit", "top", "--stage", "schema", "--by", "stage", "-o", "json")
	assert.Contains(t, top, `"total": 2`)

	r.kill(0)
	stdout, stderr := ask(list...)
	assert.Contains(t, stdout, "refused-1")
	assert.NotContains(t, stdout, "refused-0")
	assert.Contains(t, stderr, "("+r.replicas[0].address+") are missing: ")
}
