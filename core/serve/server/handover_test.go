package server_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"stele.dev/stele/core/serve/server"
)

// Two listeners are served as one, and closed as one.
func TestListenersAreServedTogether(t *testing.T) {
	var listeners []net.Listener
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
	}
	h := server.NewHandover(listeners...)
	served := h.Listener()
	if served.Addr().String() != listeners[0].Addr().String() {
		t.Errorf("the address is %s, want that of the first listener", served.Addr())
	}
	for _, l := range listeners {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		accepted, err := served.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		if accepted.RemoteAddr().String() != conn.LocalAddr().String() {
			t.Errorf("the connection of %s is accepted, want %s", accepted.RemoteAddr(), conn.LocalAddr())
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	for _, l := range listeners {
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a listener is open: %v", err)
		}
	}
}

// While one server ends, the port is always answered: by that one, and from when it does not accept any more by the next.
func TestAPortIsHandedOver(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := server.NewHandover(listener)
	serve := func(text string) *http.Server {
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })}
		l := h.Listener()
		go s.Serve(l)
		return s
	}
	ask := func() string {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Get("http://" + listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := serve("first")
	if got := ask(); got != "first" {
		t.Errorf("the answer is of the %s", got)
	}
	asked := make(chan string)
	if err := first.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	go func() { asked <- ask() }() // it waits for the next server
	second := serve("second")
	if got := <-asked; got != "second" {
		t.Errorf("the answer is of the %s", got)
	}
	if err := errors.Join(second.Shutdown(t.Context()), h.Close()); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		conn.Close()
		t.Error("the port is open")
	}
	if _, err := h.Listener().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a listener that was closed returns %v", err)
	}
	if err := h.Close(); err != nil {
		t.Errorf("closing it again: %v", err)
	}
}

// Clients of HTTP/2 connect again after the share of requests, and lose none.
func TestGoaway(t *testing.T) {
	for _, chance := range []float64{0, 0.02} {
		own := authority(t)
		certificate, err := own.ServerCertificate(t.TempDir(), []string{"127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		counted := &countingListener{Listener: listener, accepted: make(chan struct{}, 2000)}
		s := server.New(server.WithGoaway(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }), chance), certificate.Get, nil, nil, slog.New(slog.DiscardHandler))
		go s.ServeTLS(counted, "", "")
		defer s.Close()
		transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: own.Pool()}}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport, Timeout: time.Minute}
		const requests = 1000
		for range requests {
			answer, err := client.Get("https://" + listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if err != nil || string(text) != "HTTP/2.0" {
				t.Fatalf("%q, %v", text, err)
			}
		}
		// 20 are expected; that it is 0 or over 60 has a probability below 10⁻⁸.
		if n := len(counted.accepted); chance == 0 && n != 1 || chance > 0 && (n < 2 || n > 60) {
			t.Errorf("with a chance of %v, %d requests took %d connections", chance, requests, n)
		}
	}
	for chance, ok := range map[float64]bool{0: true, 0.001: true, 0.02: true, 0.021: false, -0.001: false} {
		if err := server.CheckGoawayChance(chance); (err == nil) != ok {
			t.Errorf("%v: %v", chance, err)
		}
	}
}

type countingListener struct {
	net.Listener
	accepted chan struct{}
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- struct{}{}
	}
	return conn, err
}
