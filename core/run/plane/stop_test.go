package plane_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/record/audit"
	"stele.dev/stele/core/resources/replicas"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// pipes is a listener in memory, so that a test can have its own time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// stopping is a plane that is stopped while clients use it.
type stopping struct {
	*pipes
	*planetest.Plane
	release chan struct{} // ends requests for /slow
	roots   *x509.CertPool
}

func startStopping(t *testing.T, delay time.Duration, schedule memlog.Schedule) *stopping {
	t.Helper()
	s := &stopping{pipes: &pipes{make(chan net.Conn), make(chan struct{})}, release: make(chan struct{}), roots: x509.NewCertPool()}
	slow := core.Route{Path: "/slow", Long: true, Serve: func(c *call.Call) error {
		<-s.release
		c.Sent = true
		_, err := io.WriteString(c.W, "finished")
		return err
	}}
	s.Plane = planetest.Start(t, planetest.Options{Backend: new(memlog.Store).Open(schedule), Bundle: string(bundle["bundle.cue"].Data), Config: plane.Config{Authentication: plane.Authentication{FailuresPerMinute: authn.DefaultFailuresPerMinute}, Replicas: plane.Replicas{Every: replicas.DefaultEvery}, Listener: s.pipes, ShutdownDelay: delay, Routes: []core.Route{slow}}})
	ca, err := os.ReadFile(filepath.Join(s.Dir, "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	s.roots.AppendCertsFromPEM(ca)
	return s
}

// client is a client with connections of its own.
func (s *stopping) client(t *testing.T) *http.Client {
	transport := &http.Transport{DialContext: s.dial, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: s.roots}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (s *stopping) open(t *testing.T, c *http.Client, path string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "GET", "https://localhost"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer admin-token")
	answer, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// get fails the test unless the answer has the code, and returns it with its body.
func (s *stopping) get(t *testing.T, c *http.Client, path string, code int) (*http.Response, string) {
	t.Helper()
	answer := s.open(t, c, path)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != code {
		t.Errorf("%s: %d %s, want %d", path, answer.StatusCode, body, code)
	}
	return answer, string(body)
}

// A stop is announced, then served for the delay. Then watches end with a bookmark, requests in flight end as they would
// have, and whoever comes later is told to try again.
func TestAStopLosesNoRequest(t *testing.T) {
	const namespaces = "/api/v1/namespaces"
	synctest.Test(t, func(t *testing.T) {
		s := startStopping(t, 10*time.Second, nil)
		old := s.client(t)
		revision := s.Committer.Tip().Revision()
		watch := s.open(t, old, namespaces+"?watch=1&allowWatchBookmarks=true&resourceVersion=0")
		defer watch.Body.Close()
		slow := make(chan string, 1)
		go func() {
			_, body := s.get(t, old, "/slow", 200)
			slow <- body
		}()
		synctest.Wait()
		began := time.Now()
		stopped := make(chan time.Duration, 1)
		go func() {
			s.Stop()
			stopped <- time.Since(began)
		}()
		synctest.Wait()
		for _, c := range []*http.Client{old, s.client(t)} {
			s.get(t, c, "/readyz", 500)
			s.get(t, c, "/livez", 200)
			s.get(t, c, namespaces, 200)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()

		lines := bufio.NewScanner(watch.Body)
		last := ""
		for lines.Scan() {
			last = lines.Text()
		}
		var bookmark struct {
			Type   string
			Object struct {
				Metadata struct{ ResourceVersion json.Number }
			}
		}
		if err := json.Unmarshal([]byte(last), &bookmark); err != nil || bookmark.Type != "BOOKMARK" {
			t.Errorf("the watch ended with %s, %v", last, err)
		}
		if at, err := bookmark.Object.Metadata.ResourceVersion.Int64(); err != nil || at < int64(revision) {
			t.Errorf("its bookmark is at %d, which is before %d", at, revision)
		}
		for _, c := range []*http.Client{old, s.client(t)} { // the old connections have got a GOAWAY
			answer, body := s.get(t, c, namespaces, 429)
			if answer.Header.Get("Retry-After") != "1" || !strings.Contains(body, `"reason":"TooManyRequests"`) {
				t.Errorf("it says %s, to be tried again after %q", body, answer.Header.Get("Retry-After"))
			}
			s.get(t, c, "/readyz", 500)
			s.get(t, c, "/livez", 200)
		}
		time.Sleep(3 * time.Second)
		if names := leaseNames(t, s.Plane); !slices.Contains(names, s.Replicas.ID()) || s.Replicas.Leading() {
			t.Errorf("while it still answers, the leases are %q, without that of %s, or it leads", names, s.Replicas.ID())
		}
		close(s.release)
		if got := <-slow; got != "finished" {
			t.Errorf("the request in flight got %q", got)
		}
		if took := <-stopped; took < 13*time.Second || took > 16*time.Second {
			t.Errorf("the stop took %v", took)
		}
		if _, err := s.dial(t.Context(), "", ""); err == nil {
			t.Error("the port is open")
		}
		if s.Err != nil {
			t.Error(s.Err)
		}
	})
}

// A request that does not end is cut off.
func TestAStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startStopping(t, 0, nil)
		cut := make(chan error, 1)
		go func() {
			request, err := http.NewRequestWithContext(t.Context(), "GET", "https://localhost/slow", nil)
			if err != nil {
				panic(err)
			}
			request.Header.Set("Authorization", "Bearer admin-token")
			answer, err := s.client(t).Do(request)
			if err == nil {
				answer.Body.Close()
			}
			cut <- err
		}()
		synctest.Wait()
		began := time.Now()
		defer close(s.release)
		s.Stop()
		if took := time.Since(began); took < 20*time.Second || took > 25*time.Second {
			t.Errorf("it took %v", took)
		}
		if err := <-cut; err == nil {
			t.Error("the request was answered")
		}
	})
}

// Writes that are on their way to the log when the server stops are decided and answered, also if the log takes seconds and
// loses an answer.
func TestAStopDecidesWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		var appends atomic.Int64
		s := startStopping(t, 0, func(op memlog.Op) (f memlog.Fault) {
			if !slow.Load() {
				return f
			}
			f.Request = time.Second
			if op == memlog.Append {
				f.LoseAnswer = appends.Add(1) == 1
			}
			return f
		})
		slow.Store(true)
		const writes = 5
		codes := make(chan int, writes)
		for i := range writes {
			go func() {
				body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m%d"}}`, i)
				request, err := http.NewRequestWithContext(t.Context(), "POST", "https://localhost/api/v1/namespaces/default/configmaps", strings.NewReader(body))
				if err != nil {
					panic(err)
				}
				request.Header.Set("Authorization", "Bearer admin-token")
				request.Header.Set("Content-Type", "application/json")
				answer, err := s.client(t).Do(request)
				if err != nil {
					t.Error(err)
					codes <- 0
					return
				}
				answer.Body.Close()
				codes <- answer.StatusCode
			}()
		}
		time.Sleep(time.Millisecond)
		before := s.Committer.Tip().Revision()
		s.Stop()
		for range writes {
			if code := <-codes; code != http.StatusCreated {
				t.Errorf("a write was answered with %d", code)
			}
		}
		if got := s.Committer.Tip().Revision() - before; got < writes { // the plane may have written, too
			t.Errorf("the log has %d events of %d writes", got, writes)
		}
		if s.Err != nil {
			t.Error(s.Err)
		}
		time.Sleep(10 * time.Second) // for what is on its way to the log
	})
}

// hanging is a sink of audit lines that answers nothing.
type hanging struct{ name string }

func (h hanging) Name() string { return h.name }

func (h hanging) Send(ctx context.Context, _ []audit.Record) error {
	<-ctx.Done()
	return ctx.Err()
}

// Sinks of audit lines that hang hold up the end no longer than one of them does.
func TestSinksThatHangDoNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sinks := []plane.AuditSink{{Sink: hanging{"a"}}, {Sink: hanging{"b"}}, {Sink: hanging{"c"}, Local: true}}
		p := planetest.Start(t, planetest.Options{Backend: new(memlog.Store).Open(nil), Bundle: string(bundle["bundle.cue"].Data), Config: plane.Config{
			Audit: plane.Audit{Sinks: sinks}, Replicas: plane.Replicas{Every: replicas.DefaultEvery}, Listener: &pipes{make(chan net.Conn), make(chan struct{})}}})
		time.Sleep(5 * time.Second)
		began := time.Now()
		p.Stop()
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("the stop took %s", took)
		}
	})
}
