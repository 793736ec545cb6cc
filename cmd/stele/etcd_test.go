package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"stele.dev/stele/core/conformance/chaos"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog/etcdtest"
)

// refusedServe runs `stele serve`, which must refuse to start with one line that has the text.
func refusedServe(t *testing.T, want, dir string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "stele", append([]string{"serve", "--listen", "127.0.0.1:0", "--log-level", "error", "--data-dir", dir}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	text := stderr.String()
	if err == nil || ctx.Err() != nil || !strings.Contains(text, want) || strings.Count(text, "\n") != 1 {
		t.Errorf("stele serve %s: %v, %q, want one line with %q", strings.Join(args, " "), err, text, want)
	}
}

// newestOf returns the etcd's revision, which every write increases.
func newestOf(t *testing.T, c *etcdtest.Cluster) int64 {
	t.Helper()
	r, err := c.Client(0).Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

// An etcd that is not the one of a data directory, or that has lost writes, is refused in one line, and nothing is written.
func TestEtcdThatIsRefused(t *testing.T) {
	t.Parallel()
	r := startReplicated(t, 1, 1)
	endpoints := strings.Join(r.etcd.Endpoints(), ",")
	first := r.last()
	restore := r.etcd.Save()
	var newest uint64
	for range 5 {
		newest = r.last()
	}
	if newest <= first {
		t.Fatalf("revision %d after %d", newest, first)
	}
	dir := r.replicas[0].data()
	awaitSeen(t, dir, newest)
	r.kill(0)

	other := etcdtest.Start(t, 1)
	if _, err := other.Client(0).Put(t.Context(), "/registry/pods/default/web", "{}"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		want, dir string
		etcd      *etcdtest.Cluster
		args      []string
	}{
		{"there is no log in", dir, other, []string{"--etcd-endpoints", other.Endpoints()[0]}},
		{"there is no log in", dir, r.etcd, []string{"--etcd-endpoints", endpoints, "--etcd-prefix", "/elsewhere"}},
		{"give the endpoints of one cluster", dir, other, []string{"--etcd-endpoints", endpoints + "," + other.Endpoints()[0]}},
		{"/registry/pods/default/web", filepath.Join(t.TempDir(), "new"), other, []string{"--etcd-endpoints", other.Endpoints()[0], "--etcd-prefix", "/registry"}},
		{"belong together", dir, r.etcd, []string{"--etcd-endpoints", endpoints, "--etcd-user", "x"}},
	} {
		before := newestOf(t, tc.etcd)
		refusedServe(t, tc.want, tc.dir, tc.args...)
		if after := newestOf(t, tc.etcd); after != before {
			t.Errorf("%s: something was written", tc.want)
		}
	}

	restore()
	before := newestOf(t, r.etcd)
	refusedServe(t, "stele store new-epoch", dir, "--etcd-endpoints", endpoints)
	if after := newestOf(t, r.etcd); after != before {
		t.Error("a refused start has written something")
	}
	newEpoch := func(want string) {
		t.Helper()
		out, err := exec.Command("stele", "log", "new-epoch", "--data-dir", dir, "--etcd-endpoints", endpoints).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("new-epoch: %v, %s, want %q", err, out, want)
		}
	}
	newEpoch("Epoch 1 begins at revision")
	newEpoch("Nothing was changed")
	r.start(0)
	if after := r.last(); after < newest+1_000_000 {
		t.Errorf("revision %d was issued after %d", after, newest)
	}
	if o := r.balanced().Do(t.Context(), 0, chaos.Request{Verb: chaos.Create, Name: "x", Value: "x"}); o.Code != 201 {
		t.Errorf("a write after the new epoch: %v", o)
	}
	if err := r.replicas[0].process.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if text := r.replicas[0].process.stderr.String(); strings.Contains(text, "panic") {
		t.Error(text)
	}
}

// awaitSeen waits until a replica has noted in its folder that it has seen a revision, which it does some moments later.
func awaitSeen(t *testing.T, dir string, revision uint64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(dir, "log.newest"))
		raw, _ := hex.DecodeString(strings.TrimSpace(string(text))) // half a line is no head
		if seen, err := eventlog.DecodeHead(raw); err == nil && seen.Revision >= revision {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("revision %d is not noted after a minute: %v", revision, err)
		}
	}
}
