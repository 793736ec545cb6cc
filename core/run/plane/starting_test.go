package plane_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy/bundles"
)

// starting is a plane whose start waits in OpenLog until release is called.
type starting struct {
	dir, address string
	release      func(error)
	opened       chan opened
}

type opened struct {
	plane *plane.Plane
	err   error
}

func startSlowly(t *testing.T) *starting {
	t.Helper()
	source, err := bundles.ReadFS(bundle, ".")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &starting{dir: t.TempDir(), address: listener.Addr().String(), opened: make(chan opened, 1)}
	begun, released := make(chan struct{}), make(chan error, 1)
	s.release = func(err error) { released <- err }
	go func() {
		p, err := plane.New(t.Context(), plane.Config{Dir: s.dir, Listener: listener, Policy: source, OpenLog: func(ctx context.Context) (*eventlog.Log, error) {
			close(begun)
			if err := <-released; err != nil {
				return nil, err
			}
			return eventlog.Open(ctx, new(memlog.Store).Open(nil), eventlog.Options{})
		}})
		s.opened <- opened{p, err}
	}()
	<-begun
	return s
}

func (s *starting) get(t *testing.T, path string) (*http.Response, string) {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(s.dir, "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("https://" + s.address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(body)
}

func TestAStartAnswersAtOnce(t *testing.T) {
	s := startSlowly(t)
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/livez":             {200, "ok"},
		"/livez/ping":        {200, "ok"},
		"/healthz":           {200, "ok"},
		"/readyz":            {503, "[-]start failed: opening the log\n"},
		"/readyz/policy":     {503, "[-]start failed: opening the log\n"},
		"/api/v1/namespaces": {503, `"message":"the server is starting; try again","reason":"ServiceUnavailable","details":{"retryAfterSeconds":1},"code":503`},
		"/metrics":           {503, `"reason":"ServiceUnavailable"`},
		"/":                  {503, `"reason":"ServiceUnavailable"`},
	} {
		answer, body := s.get(t, path)
		if answer.StatusCode != want.code || !strings.Contains(body, want.text) {
			t.Errorf("%s: %d %s, want %d %s", path, answer.StatusCode, body, want.code, want.text)
		}
		if again := answer.Header.Get("Retry-After"); (again == "1") != (want.code == 503) {
			t.Errorf("%s: Retry-After is %q", path, again)
		}
	}
	s.release(errors.New("the disk is gone"))
	if o := <-s.opened; o.err == nil || !strings.Contains(o.err.Error(), "the disk is gone") {
		t.Fatal(o.err)
	}
	if connection, err := net.Dial("tcp", s.address); err == nil {
		connection.Close()
		t.Error("the port is open after the start has failed")
	}
}

// A real client that asks while the plane starts gets its answer when the plane is ready.
func TestClientsWaitForAStart(t *testing.T) {
	s := startSlowly(t)
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ready := client.Discovery().RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(t.Context())
	if err := ready.Error(); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("/readyz: %v", err)
	}
	listed := make(chan error, 1)
	go func() {
		for {
			_, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
			if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) { // which it is before the bootstrap
				listed <- err
				return
			}
		}
	}()
	s.release(nil)
	o := <-s.opened
	if o.err != nil {
		t.Fatal(o.err)
	}
	stop, err := o.plane.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := <-listed; err != nil {
		t.Error(err)
	}
	if answer, body := s.get(t, "/readyz"); answer.StatusCode != 200 {
		t.Errorf("/readyz: %d %s", answer.StatusCode, body)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
