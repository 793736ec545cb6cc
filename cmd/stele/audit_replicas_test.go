package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog"
)

// auditHook is a webhook that counts the lines of writes by their revision, and may refuse them.
type auditHook struct {
	mu      sync.Mutex
	refuses bool
	refused int
	got     map[string]int
}

func (h *auditHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var list auditv1.EventList
	err := json.NewDecoder(r.Body).Decode(&list)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuses || err != nil {
		h.refused++
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	for i := range list.Items {
		if revision := list.Items[i].Annotations["stele.dev/revision"]; revision != "" {
			h.got[revision]++
		}
	}
}

func (h *auditHook) set(refuses bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuses = refuses
}

// missing returns the revisions that have not arrived.
func (h *auditHook) missing(told []string) (missing []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, revision := range told {
		if h.got[revision] == 0 {
			missing = append(missing, revision)
		}
	}
	return missing
}

// sinksAreAnchored reports whether the log says how far the sinks of the audit log are.
func (r *replicated) sinksAreAnchored() bool {
	r.t.Helper()
	backend, err := etcdlog.Dial(r.t.Context(), etcdlog.DialOptions{Endpoints: r.etcd.Endpoints()})
	require.NoError(r.t, err)
	defer backend.Close()
	log, err := eventlog.Open(r.t.Context(), backend, eventlog.Options{})
	require.NoError(r.t, err)
	batches, err := log.Back(r.t.Context(), math.MaxUint64, 1000)
	require.NoError(r.t, err)
	for _, b := range batches {
		for _, e := range b.Events {
			if len(e.Meta.GetDecisionsAnchored().GetSinks()) > 0 {
				return true
			}
		}
	}
	return false
}

// TestAWebhookGetsEachWriteAlthoughItsReplicaIsKilled writes to two replicas that share a webhook, which takes nothing at first. A replica that
// did not run before starts, the one that feeds the webhook is killed in the middle of writes, and the webhook comes back: it gets each
// write that was acknowledged.
func TestAWebhookGetsEachWriteAlthoughItsReplicaIsKilled(t *testing.T) {
	hook := &auditHook{refuses: true, got: map[string]int{}}
	server := httptest.NewServer(hook)
	defer server.Close()
	config := clientcmdapi.NewConfig()
	config.Clusters["a"], config.Contexts["a"], config.CurrentContext = &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.Context{Cluster: "a"}, "a"
	file := filepath.Join(t.TempDir(), "webhook")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	r := startReplicatedOf(t, "stele", []string{
		"--lease-every", "1s", "--audit-webhook-config-file", file, "--audit-webhook-initial-backoff", "100ms", "--audit-webhook-batch-max-wait", "100ms",
	}, 2, 1)
	leads := func(i int) bool { return r.metric(i, "stele_leader") == 1 }
	leader := 0
	require.Eventually(t, func() bool {
		if leads(1) {
			leader = 1
		}
		return leader == 1 || leads(0)
	}, time.Minute, 50*time.Millisecond)
	other := 1 - leader
	require.Eventually(t, r.sinksAreAnchored, time.Minute, 100*time.Millisecond)

	var mu sync.Mutex
	var told []string
	write := func(replica int, name string) error {
		to := rest.CopyConfig(r.config)
		to.Host = "https://" + r.replicas[replica].address
		made, err := dynamicClient(t, to).Create(t.Context(), database(name, 1), metav1.CreateOptions{})
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, made.GetResourceVersion())
		}
		return err
	}
	r.kill(other)
	require.NoError(t, os.RemoveAll(r.replicas[other].data("audit"))) // it is new, and knows nothing of the webhook
	for i := range 10 {
		require.NoError(t, write(leader, fmt.Sprint("alone-", i)))
	}
	r.start(other)

	begun, writing := make(chan struct{}), make(chan struct{})
	go func() { // clients write to both while the leader is killed
		defer close(writing)
		for i := range 60 {
			if i == 20 {
				close(begun)
			}
			if err := write(i%2, fmt.Sprint("both-", i)); err != nil && i%2 == other {
				t.Errorf("a write to the replica that runs: %v", err)
			}
		}
	}()
	<-begun
	r.kill(leader)
	hook.set(false)
	<-writing
	require.Eventually(t, func() bool { return leads(other) }, time.Minute, 50*time.Millisecond)
	require.NoError(t, write(other, "last"))
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Empty(c, hook.missing(told)) }, time.Minute, 100*time.Millisecond)
	require.Greater(t, len(told), 40)
	hook.mu.Lock()
	defer hook.mu.Unlock()
	require.NotZero(t, hook.refused, "the webhook was never asked while it refused")
}

// TestAuditFollowsAllReplicas follows the decisions of two replicas. When one of them is killed, a warning names it, and those of the other one
// are shown all the same.
func TestAuditFollowsAllReplicas(t *testing.T) {
	r := startReplicated(t, 2, 1)
	refuse := func(replica int, id string) {
		t.Helper()
		to := rest.CopyConfig(r.config)
		to.Host = "https://" + r.replicas[replica].address
		to.Wrap(func(rt http.RoundTripper) http.RoundTripper { return auditIDs{rt, func() string { return id }} })
		_, err := dynamicClient(t, to).Create(t.Context(), database("bad", -1), metav1.CreateOptions{})
		require.Equal(t, http.StatusUnprocessableEntity, statusOf(err), err)
	}
	kubeconfig := []string{"--kubeconfig", filepath.Join("stele-data", "admin.kubeconfig")}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // both leases are written
		cmd := exec.CommandContext(t.Context(), "stele", append([]string{"status"}, kubeconfig...)...)
		cmd.Dir = r.replicas[1].dir
		text, err := cmd.CombinedOutput()
		assert.NoError(c, err, string(text))
		assert.Contains(c, string(text), r.replicas[0].address)
	}, time.Minute, 200*time.Millisecond)

	var stdout, stderr syncBuffer
	cmd := exec.CommandContext(t.Context(), "stele", append([]string{"audit", "--follow", "--stage", "schema", "-o", "name"}, kubeconfig...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.replicas[1].dir, &stdout, &stderr
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	shows := func(b *syncBuffer, text string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(b.String(), text) }, time.Minute, 50*time.Millisecond, "%s is not shown:\n%s%s", text, &stdout, &stderr)
	}
	n := 0
	both := func() { // it follows when what is refused from now on is shown
		for replica := range 2 {
			require.Eventually(t, func() bool {
				n++
				refuse(replica, fmt.Sprintf("early-%d-%d", replica, n))
				return strings.Contains(stdout.String(), fmt.Sprintf("early-%d-", replica))
			}, time.Minute, 200*time.Millisecond)
		}
	}
	both()
	refuse(0, "at-the-first")
	refuse(1, "at-the-second")
	shows(&stdout, "at-the-first")
	shows(&stdout, "at-the-second")
	require.Equal(t, 1, strings.Count(stdout.String(), "at-the-first"))
	require.Equal(t, 1, strings.Count(stdout.String(), "at-the-second"))
	r.kill(0)
	shows(&stderr, r.replicas[0].address)
	refuse(1, "after-the-kill")
	shows(&stdout, "after-the-kill")
}
