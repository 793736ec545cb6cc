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

// TestFollowersReconnectToAllReplicas follows the decisions and the log of two replicas. Each of them is killed and comes back: a warning says
// so once, and each decision and each write is shown once, also those that were made while nobody could be told.
func TestFollowersReconnectToAllReplicas(t *testing.T) {
	r := startReplicatedOf(t, "stele", []string{"--lease-every", "1s"}, 2, 1)
	to := func(replica int, id string) *rest.Config {
		to := rest.CopyConfig(r.config)
		to.Host = "https://" + r.replicas[replica].address
		to.Wrap(func(rt http.RoundTripper) http.RoundTripper { return auditIDs{rt, func() string { return id }} })
		return to
	}
	var asked []string // audit IDs of what was refused
	refuse := func(replica int, id string) {
		t.Helper()
		_, err := dynamicClient(t, to(replica, id)).Create(t.Context(), database("bad", -1), metav1.CreateOptions{})
		require.Equal(t, http.StatusUnprocessableEntity, statusOf(err), err)
		asked = append(asked, id)
	}
	write := func(replica int, name string) {
		t.Helper()
		_, err := dynamicClient(t, to(replica, "write-"+name)).Create(t.Context(), database(name, 1), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	kubeconfig := []string{"--kubeconfig", filepath.Join("stele-data", "admin.kubeconfig")}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // both leases are written
		cmd := exec.CommandContext(t.Context(), "stele", append([]string{"status"}, kubeconfig...)...)
		cmd.Dir = r.replicas[1].dir
		text, err := cmd.CombinedOutput()
		assert.NoError(c, err, string(text))
		assert.Contains(c, string(text), r.replicas[0].address)
	}, time.Minute, 200*time.Millisecond)

	balanced := filepath.Join(t.TempDir(), "kubeconfig") // the same, by the balancer
	file, err := clientcmd.LoadFromFile(filepath.Join(r.replicas[1].data(), "admin.kubeconfig"))
	require.NoError(t, err)
	for _, cluster := range file.Clusters {
		cluster.Server = "https://" + r.balancer.Address()
	}
	require.NoError(t, clientcmd.WriteToFile(*file, balanced))

	var audit, warnings, log, logWarnings, moving, movingWarnings syncBuffer
	follow := func(stdout, stderr *syncBuffer, args ...string) {
		cmd := exec.CommandContext(t.Context(), "stele", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = r.replicas[1].dir, stdout, stderr
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	shows := func(b *syncBuffer, text string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(b.String(), text) }, time.Minute, 50*time.Millisecond, "%s is not shown:\n%s%s%s%s%s", text, &audit, &warnings, &log, &moving, &movingWarnings)
	}
	refuse(0, "before-the-first")
	write(1, "before")
	follow(&audit, &warnings, append([]string{"audit", "--follow", "--stage", "schema", "-o", "name"}, kubeconfig...)...)
	follow(&log, &logWarnings, append([]string{"log", "--follow", "--kind", "databases", "-o", "name"}, kubeconfig...)...)
	follow(&moving, &movingWarnings, "audit", "--follow", "--stage", "schema", "-o", "name", "--kubeconfig", balanced)
	shows(&audit, "before-the-first")
	shows(&moving, "before-the-first")
	shows(&log, "/")
	refuse(0, "at-the-first")
	refuse(1, "at-the-second")
	shows(&audit, "at-the-first")
	shows(&audit, "at-the-second")

	explained := exec.CommandContext(t.Context(), "stele", append([]string{"policy", "explain", "--audit-id", "at-the-first"}, kubeconfig...)...)
	explained.Dir = r.replicas[1].dir
	text, err := explained.CombinedOutput()
	require.NoError(t, err, "the decision of another replica is not explained: %s", text)
	require.Contains(t, string(text), "422 Invalid")
	tested := exec.CommandContext(t.Context(), "stele", append([]string{"policy", "test", "--from-audit", "at-the-first"}, kubeconfig...)...)
	tested.Dir = r.replicas[1].dir
	text, err = tested.CombinedOutput()
	require.NoError(t, err, "there is no test of the decision of another replica: %s", text)
	require.Regexp(t, `code:\s+422`, string(text))
	require.Contains(t, string(text), `name: "bad"`, "the test has the body that the other replica recorded")

	r.kill(0)
	shows(&warnings, r.replicas[0].address+") does not answer")
	refuse(1, "the-first-is-killed")
	r.start(0)
	refuse(0, "the-first-is-back")
	shows(&audit, "the-first-is-killed")
	shows(&audit, "the-first-is-back")
	shows(&warnings, r.replicas[0].address+") answers")

	refuse(1, "seen-by-nobody") // perhaps, because the server is killed at once
	r.kill(1)
	shows(&warnings, "the server "+r.replicas[1].address+" does not answer")
	shows(&logWarnings, "the server "+r.replicas[1].address+" does not answer")
	write(0, "unseen")
	refuse(0, "the-second-is-killed")
	shows(&audit, "the-second-is-killed")
	r.start(1)
	refuse(1, "the-second-is-back")
	write(1, "seen")
	shows(&audit, "the-second-is-back")
	shows(&warnings, "the server "+r.replicas[1].address+" answers")
	shows(&logWarnings, "the server "+r.replicas[1].address+" answers")
	require.Eventually(t, func() bool { return strings.Count(log.String(), "\n") >= 3 }, time.Minute, 50*time.Millisecond, &log)

	require.Equal(t, 3, strings.Count(log.String(), "\n"), "each write of a database is shown once:\n%s", &log)
	shows(&moving, "the-first-is-back")
	shows(&moving, "the-second-is-back")
	for _, id := range asked {
		for from, b := range map[string]*syncBuffer{"a server": &audit, "the balancer": &moving} {
			if n := strings.Count(b.String(), "/"+id+"\n"); n != 1 && !(n == 0 && id == "seen-by-nobody") {
				t.Errorf("%s is shown %d times by way of %s", id, n, from)
			}
		}
	}
	for _, line := range []string{r.replicas[0].address + ") does not answer", r.replicas[0].address + ") answers", r.replicas[1].address + " does not answer", r.replicas[1].address + " answers"} {
		require.Equal(t, 1, strings.Count(warnings.String(), line), "%s:\n%s", line, &warnings)
	}
}
