package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNothingIsLostWhileCheckpointsAreMade kills the server at random moments while it makes checkpoints, and damages
// the newest one from time to time. Every start must have what was acknowledged, and in the end objects are what the
// log makes of them.
func TestNothingIsLostWhileCheckpointsAreMade(t *testing.T) {
	const rounds, writers = 6, 4
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(3, 4))
	folder := filepath.Join(dir, "stele-data", "checkpoints")
	args := []string{"--checkpoint-events", "20", "--log-level", "info"}
	acknowledged := map[string]string{} // name -> resourceVersion
	restored := 0
	for round := range rounds {
		server := startServer(t, dir, args...)
		if strings.Contains(server.stderr.String(), "the start goes on from a checkpoint") {
			restored++
		}
		dbs := dynamicClient(t, clientConfig(t, dir))
		list, err := dbs.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for i := range list.Items {
			found[list.Items[i].GetName()] = list.Items[i].GetResourceVersion()
		}
		for name, version := range acknowledged {
			if found[name] != version {
				t.Fatalf("round %d: %s, acknowledged at revision %s, is at %q", round, name, version, found[name])
			}
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for w := range writers {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					got, err := dbs.Create(ctx, database(fmt.Sprintf("db-%d-%d-%d", round, w, i), 1), metav1.CreateOptions{})
					if err != nil {
						return // the server is gone
					}
					mu.Lock()
					acknowledged[got.GetName()] = got.GetResourceVersion()
					mu.Unlock()
				}
			})
		}
		// A checkpoint is due every second.
		time.Sleep(time.Duration(950+rng.IntN(150)) * time.Millisecond)
		_ = server.end(syscall.SIGKILL)
		cancel()
		wg.Wait()
		if files, err := filepath.Glob(filepath.Join(folder, "*.ckpt")); err == nil && round%3 == 2 && len(files) > 0 {
			if err := os.Truncate(files[len(files)-1], int64(rng.IntN(2000))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if restored == 0 {
		t.Error("no start went on from a checkpoint")
	}
	startServer(t, dir, args...)
	var stdout, stderr bytes.Buffer
	if code := execute(t.Context(), []string{"projection", "verify", "--kubeconfig", filepath.Join(dir, "stele-data", "admin.kubeconfig")}, &stdout, &stderr); code != 0 || !strings.HasPrefix(stdout.String(), "objects: as in the log at revision ") {
		t.Errorf("exit code %d: %s%s", code, &stdout, &stderr)
	}
}
