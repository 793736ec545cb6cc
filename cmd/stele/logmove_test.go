package main

import (
	"encoding/json"
	"fmt"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"stele.dev/stele/eventlog/etcdlog/etcdtest"
)

// movable is a server whose log moves.
type movable struct {
	t    *testing.T
	dir  string // has stele-data
	etcd string // the endpoints of a cluster
}

// serve runs a server on the folder, with an embedded etcd unless flags name another one.
func (m *movable) serve(flags ...string) (stop func()) {
	m.t.Helper()
	program, err := exec.LookPath("stele")
	require.NoError(m.t, err)
	p, err := serveProcess(program, m.dir, append(os.Environ(), "GOGC=100"), append([]string{"--log-window", "1ms", "--segment-revisions", "16", "--bucket-every", "50ms"}, flags...)...)
	require.NoError(m.t, err)
	m.t.Cleanup(func() { _ = p.end(syscall.SIGKILL) })
	require.NoError(m.t, p.await())
	return func() { m.t.Helper(); require.NoError(m.t, p.end(syscall.SIGTERM)) }
}

func (m *movable) configMaps() dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(clientConfig(m.t, m.dir)).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
}

// write creates objects, and returns the revisions before and after.
func (m *movable) write(prefix string, n int) (before, after string) {
	m.t.Helper()
	for i := range n {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprintf("%s-%d", prefix, i)}}}
		created, err := m.configMaps().Create(m.t.Context(), o, metav1.CreateOptions{})
		require.NoError(m.t, err)
		if after = created.GetResourceVersion(); before == "" {
			before = after
		}
	}
	return before, after
}

// trimmed waits until the oldest batches have left etcd.
func (m *movable) trimmed() {
	m.t.Helper()
	client := kubernetes.NewForConfigOrDie(clientConfig(m.t, m.dir))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		text, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(m.t.Context())
		if err == nil && strings.Contains(string(text), "\nstele_log_trimmed_revision ") && !strings.Contains(string(text), "\nstele_log_trimmed_revision 0\n") {
			return
		}
		require.True(m.t, time.Now().Before(deadline), "nothing has left etcd: %v", err)
	}
}

// watch checks that a watch from a revision on has the objects of these prefixes, n of each.
func (m *movable) watch(from string, n int, prefixes ...string) {
	m.t.Helper()
	w, err := m.configMaps().Watch(m.t.Context(), metav1.ListOptions{ResourceVersion: from})
	require.NoError(m.t, err)
	defer w.Stop()
	for p, prefix := range prefixes {
		for i := range n {
			if p == 0 && i == 0 {
				continue // the revision is that of the first
			}
			select {
			case e := <-w.ResultChan():
				o, ok := e.Object.(*unstructured.Unstructured)
				require.True(m.t, ok, "%v %v", e.Type, e.Object)
				require.Equal(m.t, fmt.Sprintf("%s-%d", prefix, i), o.GetName())
			case <-time.After(time.Minute):
				m.t.Fatalf("no event of %s-%d", prefix, i)
			}
		}
	}
}

// move moves the log, and returns what the program says of it.
func (m *movable) move(to, prefix string) (moved struct {
	Log      string
	Revision uint64
}) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), "stele", "log", "move", "--to", to, "--data-dir", "stele-data", "--etcd-endpoints", m.etcd, "--etcd-prefix", prefix, "-o", "json")
	cmd.Dir = m.dir
	text, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil {
		require.ErrorAs(m.t, err, &exit)
		m.t.Fatalf("%v: %s", err, exit.Stderr)
	}
	require.NoError(m.t, json.Unmarshal(text, &moved))
	return moved
}

// refused returns what the program says when it fails.
func (m *movable) refused(args ...string) string {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), "stele", args...)
	cmd.Dir = m.dir
	text, err := cmd.CombinedOutput()
	require.Error(m.t, err, "%s", text)
	return string(text)
}

func TestALogMovesBetweenAnEmbeddedEtcdAndACluster(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	m := &movable{t: t, dir: t.TempDir(), etcd: strings.Join(cluster.Endpoints(), ",")}
	stop := m.serve()
	first, _ := m.write("embedded", 40)
	m.trimmed()
	assert.Contains(t, m.refused("log", "move", "--to", "etcd", "--data-dir", "stele-data", "--etcd-endpoints", m.etcd), "is in use")
	stop()

	there := m.move("etcd", "/one")
	assert.Equal(t, there.Log, m.move("etcd", "/one").Log, "again")
	assert.Contains(t, m.refused("serve", "--listen", "127.0.0.1:0"), "has moved to the etcd at")
	external := []string{"--etcd-endpoints", m.etcd, "--etcd-prefix", "/one"}
	stop = m.serve(append(external, "--bucket", filepath.Join(m.dir, "bucket"))...)
	m.watch(first, 40, "embedded")
	m.write("external", 40)
	m.trimmed()
	m.watch(first, 40, "embedded", "external")

	// A backup of the server on the cluster becomes a log of its own, in the same cluster.
	run(t, m.dir, 0, "backup", "create", "backups", "--data-dir", "stele-data", "--keys")
	stop()
	copied := &movable{t: t, dir: t.TempDir(), etcd: m.etcd}
	run(t, copied.dir, 0, "backup", "restore", filepath.Join(m.dir, "backups"), "--data-dir", "stele-data")
	assert.Contains(t, copied.refused("log", "move", "--to", "etcd", "--data-dir", "stele-data", "--etcd-endpoints", m.etcd, "--etcd-prefix", "/one"), "in use by this very log")
	assert.Equal(t, there.Log, copied.move("etcd", "/restored").Log)
	stop = copied.serve("--etcd-endpoints", m.etcd, "--etcd-prefix", "/restored")
	o, err := copied.configMaps().Get(t.Context(), "external-39", metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotEmpty(t, o.GetUID())
	stop()

	back := m.move("data-dir", "/one")
	assert.Equal(t, there.Log, back.Log)
	assert.Greater(t, back.Revision, there.Revision)
	assert.Contains(t, m.refused(append([]string{"serve", "--listen", "127.0.0.1:0", "--bucket", "bucket"}, external...)...), "has moved to the data directory")
	stop = m.serve()
	m.watch(first, 40, "embedded", "external")
	_, last := m.write("back", 3)
	stop()
	assert.Greater(t, m.move("etcd", "/one").Revision, back.Revision) // where the log was before
	stop = m.serve(append(external, "--bucket", filepath.Join(m.dir, "bucket"))...)
	o, err = m.configMaps().Get(t.Context(), "back-2", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, last, o.GetResourceVersion())
	m.watch(first, 40, "embedded", "external")
	stop()
}

func TestAReplicaThatHasNothingStartsFromTheBucket(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	endpoints := strings.Join(cluster.Endpoints(), ",")
	a, b := &movable{t: t, dir: t.TempDir()}, &movable{t: t, dir: t.TempDir()}
	place := "file://" + filepath.Join(a.dir, "bucket")
	flags := []string{"--etcd-endpoints", endpoints, "--bucket", place, "--checkpoint-events", "10"}
	stop := a.serve(flags...)
	first, _ := a.write("old", 40)
	a.trimmed()

	copyKeys(t, filepath.Join(a.dir, "stele-data", "pki"), filepath.Join(b.dir, "stele-data", "pki"))
	assert.Contains(t, b.refused("serve", "--listen", "127.0.0.1:0", "--etcd-endpoints", endpoints), "give --bucket "+place)
	assert.Contains(t, b.refused("serve", "--listen", "127.0.0.1:0", "--etcd-endpoints", endpoints, "--bucket", "another"), "is another one")
	assert.NoDirExists(t, filepath.Join(b.dir, "another"))
	stopB := b.serve(flags...)
	b.watch(first, 40, "old")
	stop()
	b.write("new", 40)
	b.trimmed()
	stopB()
	stop = a.serve(flags...)
	a.watch(first, 40, "old", "new")
	stop()
	// Without its data, the log is still there.
	require.NoError(t, os.RemoveAll(filepath.Join(a.dir, "stele-data", "segments")))
	require.NoError(t, os.RemoveAll(filepath.Join(a.dir, "stele-data", "history")))
	require.NoError(t, os.RemoveAll(filepath.Join(a.dir, "stele-data", "checkpoints")))
	assert.Contains(t, a.refused("backup", "create", "backups", "--data-dir", "stele-data"), "is in an etcd cluster")
	stop = a.serve(flags...)
	a.watch(first, 40, "old", "new")
	stop()
}
