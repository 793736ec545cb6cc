package balance_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"stele.dev/stele/examples/ha/balance"
)

// backend is a server that says when it is ready. /slow begins an answer, which ends when the test says so.
type backend struct {
	*httptest.Server
	unready atomic.Bool
	release chan struct{}
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/readyz" && b.unready.Load():
		w.WriteHeader(http.StatusInternalServerError)
	case r.URL.Path == "/slow":
		io.WriteString(w, "begun ")
		w.(http.Flusher).Flush()
		<-b.release
	}
	io.WriteString(w, b.Listener.Addr().String())
}

type setting struct {
	*balance.Balancer
	t        *testing.T
	url      string
	backends map[string]*backend // by their addresses
	roots    *x509.CertPool
}

// start starts a balancer before servers.
func start(t *testing.T, servers int) *setting {
	t.Helper()
	s := &setting{t: t, backends: map[string]*backend{}, roots: x509.NewCertPool()}
	var addresses []string
	for range servers {
		b := &backend{release: make(chan struct{})}
		b.Server = httptest.NewUnstartedServer(b)
		b.Config.ErrorLog = nil
		b.StartTLS()
		t.Cleanup(b.Close)
		s.backends[b.Listener.Addr().String()] = b
		addresses = append(addresses, b.Listener.Addr().String())
		s.roots.AddCert(b.Certificate())
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "https://" + listener.Addr().String()
	s.Balancer = balance.New(balance.Options{Servers: addresses, TLS: &tls.Config{RootCAs: s.roots}, Every: 20 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.await(servers)
	return s
}

// await waits until so many servers are ready.
func (s *setting) await(want int) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		n := 0
		_, ready := s.Connections()
		for _, is := range ready {
			if is {
				n++
			}
		}
		if n == want {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%d servers are ready, not %d", n, want)
		}
	}
}

// ask asks on a new connection, and returns what answered.
func (s *setting) ask(path string) (*http.Response, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: s.roots}}, Timeout: time.Minute}
	return client.Get(s.url + path)
}

func (s *setting) server() string {
	s.t.Helper()
	answer, err := s.ask("/")
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

func TestConnectionsGoToServersThatAreReady(t *testing.T) {
	s := start(t, 3)
	// Connections that stay open are spread over all.
	var open []*http.Response
	for range 6 {
		answer, err := s.ask("/slow")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, answer)
	}
	conns, _ := s.Connections()
	for address, n := range conns {
		if n != 2 {
			t.Errorf("%s has %d connections of %v", address, n, conns)
		}
	}
	// One ceases to be ready, and keeps the connections that it has.
	first := s.server()
	s.backends[first].unready.Store(true)
	s.await(2)
	for range 6 {
		if got := s.server(); got == first {
			t.Errorf("a connection went to %s, which is not ready", got)
		}
	}
	for _, b := range s.backends {
		close(b.release)
	}
	for _, answer := range open {
		text, err := io.ReadAll(answer.Body)
		if err != nil || len(text) < len("begun 127.0.0.1:1") {
			t.Errorf("a connection that was open got %q, %v", text, err)
		}
		answer.Body.Close()
	}
	s.backends[first].unready.Store(false)
	s.await(3)
	// One dies: the others take the connections, also before a health check.
	s.backends[first].CloseClientConnections()
	s.backends[first].Listener.Close()
	for range 6 {
		if got := s.server(); got == first {
			t.Errorf("%s has answered, which is dead", got)
		}
	}
	s.await(2)
}

func TestWithoutServersConnectionsAreClosed(t *testing.T) {
	s := start(t, 1)
	for _, b := range s.backends {
		b.unready.Store(true)
	}
	s.await(0)
	if answer, err := s.ask("/"); err == nil {
		answer.Body.Close()
		t.Errorf("it got %s", answer.Status)
	}
}
