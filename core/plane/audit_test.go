package plane_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"stele.dev/stele/core/audit"
	"stele.dev/stele/core/plane"
	"stele.dev/stele/core/plane/planetest"
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
		if created != 1 || refused != 1 {
			t.Errorf("the %s has the write %d times, and its repetition %d times:\n%s", where, created, refused, text)
		}
	}
}
