package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
