package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A first start may be killed at any moment. Here the moments are those at which etcd's files
// appear; whatever is there then, the next start begins again or goes on, and serves.
func TestAFirstStartMayBeKilled(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("stele")
	if err != nil {
		t.Fatal(err)
	}
	member := filepath.Join("stele-data", "etcd", "member")
	for _, aim := range []string{
		filepath.Join("stele-data", "pki", "ca.key"),
		member,
		filepath.Join(member, "snap", "db"),
		filepath.Join(member, "wal.tmp"),
		filepath.Join(member, "wal"),
		filepath.Join(member, "wal"), // where a file without an entry is most likely
		filepath.Join("stele-data", "log.id"),
	} {
		dir := t.TempDir()
		p, err := serveProcess(program, dir, os.Environ())
		if err != nil {
			t.Fatal(err)
		}
		// Some of them are there for a moment only. A busy machine may miss it: then the server is killed somewhat later.
		exists := func(name string) bool {
			_, err := os.Lstat(filepath.Join(dir, name))
			return err == nil
		}
		for last := filepath.Join("stele-data", "log.id"); !exists(aim) && !exists(last); {
			select {
			case <-p.exited:
				t.Fatalf("stele serve ended: %v\n%s", p.err, p.stderr.String())
			case <-time.After(20 * time.Microsecond):
			}
		}
		if err := p.end(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		again := startServer(t, dir)
		if _, err := dynamicClient(t, clientConfig(t, dir)).Create(t.Context(), database("orders", 1), metav1.CreateOptions{}); err != nil {
			t.Errorf("killed at %s: %v", aim, err)
		}
		if err := again.end(syscall.SIGTERM); err != nil {
			t.Errorf("killed at %s: %v", aim, err)
		}
	}
}
