package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// run runs the program in a folder and returns what it printed. If it is not killed, it must succeed.
func run(t *testing.T, dir string, kill time.Duration, args ...string) (output string, killed bool) {
	t.Helper()
	ctx := t.Context()
	if kill > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, kill)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, "stele", args...) // it kills by SIGKILL
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		return string(text), true
	}
	if kill > 0 && errors.Is(err, context.DeadlineExceeded) {
		return string(text), false // it succeeded just before it would have been killed
	}
	require.NoError(t, err, "stele %s: %s", strings.Join(args, " "), text)
	return string(text), false
}

// Backups and restores are killed at random instants. No backup is listed that is not whole, no server starts on a
// folder that is not restored completely, and repeating the command completes it.
func TestKilledBackupsAndRestores(t *testing.T) {
	const kills = 8
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	server := startServer(t, dir)
	client := dynamic.NewForConfigOrDie(clientConfig(t, dir)).Resource(databases).Namespace("default")
	names := 0
	write := func() {
		for range 5 {
			_, err := client.Create(t.Context(), database(fmt.Sprintf("db-%d", names), 1), metav1.CreateOptions{})
			require.NoError(t, err)
			names++
		}
	}
	create := []string{"backup", "create", "place", "--data-dir", "stele-data", "--keys", "--kubeconfig", filepath.Join("stele-data", "admin.kubeconfig")}
	write()
	begun := time.Now()
	run(t, dir, 0, create...)
	took := time.Since(begun)
	died := 0
	for range kills {
		write()
		if _, killed := run(t, dir, 1+time.Duration(random.Int64N(int64(took))), create...); killed {
			died++
		}
		for _, name := range strings.Fields(first(run(t, dir, 0, "backup", "list", "place", "-o", "name"))) {
			require.Contains(t, first(run(t, dir, 0, "backup", "verify", "place", "--backup", name)), "is whole")
		}
	}
	assert.Positive(t, died, "none was killed")
	run(t, dir, 0, create...)
	require.NoError(t, server.end(syscall.SIGTERM))

	restore := []string{"backup", "restore", "place", "--data-dir", "restored"}
	begun = time.Now()
	run(t, dir, 0, "backup", "restore", "place", "--data-dir", "whole")
	took = time.Since(begun)
	died = 0
	complete := false
	for range kills {
		if complete {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "restored")))
		}
		_, killed := run(t, dir, 1+time.Duration(random.Int64N(int64(took))), restore...)
		_, err := os.Stat(filepath.Join(dir, "restored", "log.id"))
		_, unfinished := os.Stat(filepath.Join(dir, "restored", "restoring.json"))
		complete = err == nil && unfinished != nil
		if killed {
			died++
		}
		if unfinished == nil {
			cmd := exec.Command("stele", "serve", "--data-dir", "restored", "--listen", "127.0.0.1:0")
			cmd.Dir = dir
			text, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(text), "a backup has not been restored completely")
		}
	}
	assert.Positive(t, died, "none was killed")
	if !complete {
		run(t, dir, 0, restore...)
	}
	startServer(t, dir, "--data-dir", "restored")
	require.NoError(t, os.Rename(filepath.Join(dir, "stele-data"), filepath.Join(dir, "old")))
	require.NoError(t, os.Symlink("restored", filepath.Join(dir, "stele-data")))
	list, err := dynamic.NewForConfigOrDie(clientConfig(t, dir)).Resource(databases).Namespace("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, list.Items, names)
}

func first(output string, _ bool) string { return output }
