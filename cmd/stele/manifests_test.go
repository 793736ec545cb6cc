package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// The gate renders the manifests from the chart, which knows nothing of the flags of this version.
func TestTheManifestsHaveFlagsThatServersHave(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "charts", "manifests", "stele.yaml"))
	require.NoError(t, err)
	servers := 0
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var set appsv1.StatefulSet
		if err := yaml.Unmarshal([]byte(document), &set); err != nil || set.Kind != "StatefulSet" {
			continue
		}
		servers++
		args := set.Spec.Template.Spec.Containers[0].Args
		require.Equal(t, "serve", args[0])
		serve := serveCommand()
		require.NoError(t, serve.ParseFlags(args[1:]))
		assert.Empty(t, serve.Flags().Args())
		delay, err := time.ParseDuration(serve.Flags().Lookup("shutdown-delay").Value.String())
		require.NoError(t, err)
		grace := time.Duration(*set.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
		assert.Less(t, delay+20*time.Second, grace, "requests in flight have 20 seconds after the delay")
	}
	assert.Equal(t, 1, servers)
}
