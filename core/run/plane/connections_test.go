package plane_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/limits/connections"
)

// closedWindow is a client of HTTP/2 that reads the connection, but lets no stream send a body.
type closedWindow struct {
	*http2.Framer
	writing sync.Mutex // a Framer has one buffer for the frames that it writes
	conn    net.Conn
	ends    chan http2.RSTStreamFrame
}

func (s *stopping) closedWindow(t *testing.T) *closedWindow {
	t.Helper()
	raw, err := s.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, &tls.Config{RootCAs: s.roots, ServerName: "localhost", NextProtos: []string{"h2"}})
	t.Cleanup(func() { raw.Close() })
	c := &closedWindow{Framer: http2.NewFramer(conn, conn), conn: conn, ends: make(chan http2.RSTStreamFrame, 10)}
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	acks := make(chan [8]byte, 100)
	go func() {
		defer close(c.ends)
		for {
			f, err := c.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.PingFrame:
				if !f.IsAck() {
					acks <- f.Data
				}
			case *http2.RSTStreamFrame:
				c.ends <- *f
			}
		}
	}()
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err = errors.Join(err, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})); err != nil {
		t.Fatal(err)
	}
	go func() { // it is alive
		for {
			select {
			case data := <-acks:
				c.writing.Lock()
				err := c.WritePing(true, data)
				c.writing.Unlock()
				if err != nil {
					return
				}
			case <-t.Context().Done():
				return
			}
		}
	}()
	return c
}

// get sends a request on a stream.
func (c *closedWindow) get(t *testing.T, stream uint32, path string) {
	t.Helper()
	var header bytes.Buffer
	e := hpack.NewEncoder(&header)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"}, {":path", path}, {"authorization", "Bearer admin-token"}} {
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
}

// A client of HTTP/2 that answers pings but opens no window is not read for ever: lists and watches end.
func TestAStreamWhoseWindowStaysClosedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startStopping(t, 0, nil)
		c := s.closedWindow(t)
		start := time.Now()
		c.get(t, 1, "/api/v1/namespaces")
		if end := <-c.ends; end.StreamID != 1 {
			t.Errorf("ended: %v", end)
		}
		if took := time.Since(start); took > 91*time.Second {
			t.Errorf("the list ended after %s", took)
		}
		c.get(t, 3, "/api/v1/namespaces?watch=1&resourceVersion=0")
		start = time.Now()
		if end := <-c.ends; end.StreamID != 3 {
			t.Errorf("ended: %v", end)
		}
		if took := time.Since(start); took > call.Stalled+time.Second {
			t.Errorf("the watch ended after %s", took)
		}
		s.Stop()
	})
}

// A quiet watch of a client that reads is not ended: not after the time that other answers may take, nor that of a write.
func TestAQuietWatchGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startStopping(t, 0, nil)
		for _, path := range []string{"/api/v1/namespaces?watch=1", "/api/v1/namespaces?watch=1&timeoutSeconds=3600"} {
			watch := s.open(t, s.client(t), path)
			defer watch.Body.Close()
			lines := bufio.NewScanner(watch.Body)
			if !lines.Scan() { // one that exists
				t.Fatal(lines.Err())
			}
			time.Sleep(10 * time.Minute)
			s.create(t, fmt.Sprintf("new%d", len(path)))
			for lines.Scan() && !strings.Contains(lines.Text(), fmt.Sprintf("new%d", len(path))) {
			}
			if lines.Err() != nil {
				t.Errorf("%s ended: %v", path, lines.Err())
			}
		}
		s.Stop()
	})
}

// create creates a namespace.
func (s *stopping) create(t *testing.T, name string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.Client("admin", "system:masters"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A body that stops coming gets a Status with code 408, on HTTP/1 and HTTP/2.
func TestASlowBodyGetsAStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startStopping(t, 0, nil)
		for _, http2 := range []bool{false, true} {
			transport := &http.Transport{DialContext: s.dial, ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{RootCAs: s.roots}}
			defer transport.CloseIdleConnections()
			body, end := io.Pipe()
			go func() {
				_, _ = io.WriteString(end, `{"metadata":`)
				time.Sleep(20 * time.Second)
				end.CloseWithError(io.ErrUnexpectedEOF)
			}()
			request, err := http.NewRequestWithContext(t.Context(), "POST", "https://localhost/api/v1/namespaces", body)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer admin-token")
			request.Header.Set("Content-Type", "application/json")
			answer, err := transport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			var status metav1.Status
			if err := json.NewDecoder(answer.Body).Decode(&status); err != nil || status.Code != http.StatusRequestTimeout || !strings.Contains(status.Message, "too slowly") {
				t.Errorf("%s: %+v (%v)", answer.Proto, status, err)
			}
			answer.Body.Close()
		}
		time.Sleep(time.Minute)
		s.Stop()
	})
}

// Wrong tokens are answered 401, and soon 429 with a time to wait; valid ones go on.
func TestGuessedTokensAreToldToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startStopping(t, 0, nil)
		c := s.client(t)
		s.get(t, c, "/api/v1/namespaces", 200)
		codes := map[int]int{}
		var last *http.Response
		for i := range 200 {
			request, err := http.NewRequestWithContext(t.Context(), "GET", "https://localhost/api/v1/namespaces", nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", fmt.Sprintf("Bearer guess%d", i))
			if last, err = c.Do(request); err != nil {
				t.Fatal(err)
			}
			last.Body.Close()
			codes[last.StatusCode]++
		}
		if codes[401] != 120 || codes[429] != 80 || last.Header.Get("Retry-After") != "1" && last.Header.Get("Retry-After") != "2" {
			t.Errorf("answered with %v, at last with %v", codes, last.Header)
		}
		s.get(t, c, "/api/v1/namespaces", 200)
		s.Stop()
	})
}

// loopback starts a plane on a port of this machine.
func loopback(t *testing.T, l connections.Limits) (*planetest.Plane, *rest.Config) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := planetest.Start(t, planetest.Options{Bundle: string(bundle["bundle.cue"].Data), Config: plane.Config{Listener: listener, Connections: l}})
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return p, config
}

// Honest clients are not harmed by hostile ones, nor by the limits: 250 watches on one connection, and requests beside them.
func TestHonestClientsGoOnBesideHostileOnes(t *testing.T) {
	const watches, silent = 250, 64
	p, config := loopback(t, connections.Limits{Total: 300, Opening: 32, ControlBytes: 8 << 10})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all, hostile sync.WaitGroup
	seen := make(chan error, watches)
	for range watches {
		w, err := client.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for e := range w.ResultChan() {
				if o, ok := e.Object.(*corev1.Namespace); ok && o.Name == "last" {
					seen <- nil
					return
				}
			}
			seen <- errors.New("a watch ended")
		})
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for range 4 { // floods of pings, each until the server ends it
		conn := tls.Client(dial(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		hostile.Go(func() {
			defer conn.Close()
			if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			f := http2.NewFramer(conn, conn)
			err := f.WriteSettings()
			for n := 0; err == nil && n < 500_000; n++ {
				err = f.WritePing(false, [8]byte{})
			}
			if err == nil {
				t.Error("a flood of pings was let be")
			}
		})
	}
	// Connections without a request make room for others, so that silent ones would end the floods in another way.
	for range 10 {
		if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
			t.Fatalf("beside the floods: %v", err)
		}
	}
	hostile.Wait()
	for range silent { // silent connections, twice as many as may open
		defer dial().Close()
	}
	for i := range 50 {
		name := fmt.Sprintf("n%d", i)
		if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		fresh, err := kubernetes.NewForConfigAndClient(config, newClient(t, config))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fresh.CoreV1().Namespaces().Get(ctx, "missing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("request %d on a new connection: %v", i, err)
		}
	}
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "last"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range watches {
		if err := <-seen; err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	metrics, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Each flood has ended, by this limit or by that of net/http, which counts pings that it has not answered. Tests of package
	// connections say that the first one counts.
	for _, line := range []string{`stele_connections_refused_total{reason="limit"} 0`} {
		if !strings.Contains(string(metrics), line+"\n") {
			t.Errorf("the metrics lack %s:\n%s", line, regexp.MustCompile("(?m)^stele_(connections|server).*").FindAllString(string(metrics), -1))
		}
	}
}

// newClient returns a client with connections of its own.
func newClient(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	own, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: own, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
