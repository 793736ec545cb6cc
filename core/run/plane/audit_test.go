package plane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/record/audit"
	"stele.dev/stele/core/record/audit/webhook"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// lines is a sink that keeps lines.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Name() string { return "test" }

func (l *lines) Send(_ context.Context, records []audit.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		l.all.Write(r.Line)
	}
	return nil
}

// Writes, and requests that leave no event, are in the audit file and at a sink.
func TestTheAuditLogHasWritesAndDecisions(t *testing.T) {
	dir, sink := t.TempDir(), &lines{}
	file := filepath.Join(dir, "audit", "audit.log")
	p := planetest.Start(t, planetest.Options{Dir: dir, Bundle: string(bundle["bundle.cue"].Data), Config: plane.Config{AuditFile: file, Audit: plane.Audit{Sinks: []plane.AuditSink{{Sink: sink, Local: true}}}}})
	client, err := kubernetes.NewForConfig(p.Client("admin", "system:masters"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "audited"}}, metav1.CreateOptions{})
		if (i == 0) != (err == nil) || i == 1 && !apierrors.IsAlreadyExists(err) {
			t.Fatal(i, err)
		}
	}
	p.Stop()
	metrics := httptest.NewRecorder()
	p.ServeHTTP(metrics, planetest.Request("GET", "/metrics", ""))
	counted := metrics.Body.String()
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"file": string(written), "sink": sink.all.String()} {
		created, refused := 0, 0
		for line := range strings.Lines(text) {
			if !strings.Contains(line, `"requestURI":"/api/v1/namespaces"`) || !strings.Contains(line, `"username":"admin"`) {
				continue
			}
			if strings.Contains(line, `"name":"audited"`) && strings.Contains(line, `"code":201`) {
				created++
			}
			if strings.Contains(line, `"reason":"AlreadyExists"`) && strings.Contains(line, `"stele.dev/outcome":`) {
				refused++
			}
		}
		if want := fmt.Sprintf("\napiserver_audit_event_total %d\n", strings.Count(text, "\n")); !strings.Contains(counted, want) {
			t.Errorf("the %s has another number of lines than is counted: want%s", where, want)
		}
		if created != 1 || refused != 1 {
			t.Errorf("the %s has the write %d times, and its repetition %d times:\n%s", where, created, refused, text)
		}
	}
}

// hook is a webhook that notes which replica sent which write, by the path that the replica posts to.
type hook struct {
	mu   sync.Mutex
	from []string         // the senders of writes, in their order, without repetitions
	seen map[string][]int // by revision: how often each replica has sent it
}

func (h *hook) sent(replica int, events []auditv1.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range events {
		revision := events[i].Annotations["stele.dev/revision"]
		if revision == "" {
			continue // a decision, which each replica sends
		}
		if h.seen[revision] == nil {
			h.seen[revision] = make([]int, 2)
		}
		h.seen[revision][replica]++
		if name := fmt.Sprint(replica); len(h.from) == 0 || h.from[len(h.from)-1] != name {
			h.from = append(h.from, name)
		}
	}
}

// has reports whether a write has arrived.
func (h *hook) has(revision string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[revision] != nil
}

// Of two replicas one feeds a webhook with writes. When it stops, the other one goes on, and no write is missing.
func TestOneReplicaFeedsAWebhook(t *testing.T) {
	h := &hook{seen: map[string][]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var list auditv1.EventList
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
			t.Error(err)
		}
		h.sent(int(r.URL.Path[1]-'0'), list.Items)
	}))
	defer server.Close()
	store, keys, pki := new(memlog.Store), newKeys(t), filepath.Join(t.TempDir(), "pki")
	open := func(i int) *planetest.Plane {
		sink, err := webhook.New(&rest.Config{Host: fmt.Sprint(server.URL, "/", i)})
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p, err := planetest.Open(t.Context(), planetest.Options{
			Config: plane.Config{
				Listener: listener, PKIDir: pki, Replicas: plane.Replicas{Every: time.Second}, Decisions: plane.Decisions{Bytes: 1 << 20},
				Audit: plane.Audit{Sinks: []plane.AuditSink{{Sink: sink, Batching: audit.Batching{Wait: 50 * time.Millisecond, Backoff: 50 * time.Millisecond}}}},
			},
			Backend: store.Open(nil), KeyFile: keys,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Stop)
		return p
	}
	a := open(0)
	a.Bootstrap(t, string(bundle["bundle.cue"].Data))
	eventually(t, "the first replica leads", a.Replicas.Leading)
	b := open(1)
	write := func(p *planetest.Plane, name string) string {
		t.Helper()
		made, err := client(t, p).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made.ResourceVersion
	}
	var told []string
	for i := range 30 {
		told = append(told, write([]*planetest.Plane{a, b}[i%2], fmt.Sprint("before-", i)))
	}
	eventually(t, "the webhook has the writes of both replicas", func() bool { return h.has(told[len(told)-1]) })
	h.mu.Lock()
	if len(h.from) != 1 || h.from[0] != "0" {
		t.Errorf("writes are sent by %v, while the first replica leads", h.from)
	}
	h.mu.Unlock()
	stopped := make(chan struct{})
	go func() { // the writes go on while the leader stops
		defer close(stopped)
		a.Stop()
	}()
	for i := range 30 {
		told = append(told, write(b, fmt.Sprint("after-", i)))
	}
	<-stopped
	eventually(t, "the second replica leads", b.Replicas.Leading)
	told = append(told, write(b, "last"))
	eventually(t, "the webhook has the last write", func() bool { return h.has(told[len(told)-1]) })
	for _, revision := range told {
		if !h.has(revision) {
			t.Errorf("the webhook has not got revision %s", revision)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if got := strings.Join(h.from, " "); got != "0 1" {
		t.Errorf("the senders are %s, want one after the other", got)
	}
}
