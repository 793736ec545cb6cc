package read_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"stele.dev/stele/core/object/gotypes"
	"stele.dev/stele/core/run/plane/planetest"
)

// dial opens a watch over WebSocket.
func dial(t *testing.T, s *httptest.Server, path string, subprotocols []string, header ...string) (*websocket.Conn, error) {
	t.Helper()
	config, err := websocket.NewConfig("ws"+strings.TrimPrefix(s.URL, "http")+path, "https://console.example.com")
	if err != nil {
		t.Fatal(err)
	}
	config.Protocol = subprotocols
	config.Header = http.Header{}
	for i := 0; i < len(header); i += 2 {
		config.Header.Set(header[i], header[i+1])
	}
	c, err := websocket.DialConfig(config)
	if err == nil {
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return c, err
}

// serving puts a replica behind a real server. Its watches are over when the test is.
func serving(t *testing.T, r *planetest.Replica) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return s
}

// watchers tells how many watches are open.
func watchers(r *planetest.Replica, t *testing.T) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(string(r.Must(t, 200, "GET", "/metrics", "").Body)) {
		if rest, ok := strings.CutPrefix(line, "apiserver_longrunning_requests{"); ok {
			_, value, _ := strings.Cut(rest, "} ")
			var count int
			if _, err := fmt.Sscan(value, &count); err != nil {
				t.Fatal(err)
			}
			n += count
		}
	}
	return n
}

// Each event is a message; a browser's token is a subprotocol, for it cannot send headers.
func TestWatchOverWebSocket(t *testing.T) {
	p := planetest.NewPlane(t)
	s := serving(t, p)
	from := p.Committer.Tip().Revision()
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	token := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte("reader-token"))
	c, err := dial(t, s, fmt.Sprintf("%s&resourceVersion=%d", planetest.WatchWidgets, from), []string{token, "base64.binary.k8s.io"})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Config().Protocol; len(got) != 1 || got[0] != "base64.binary.k8s.io" {
		t.Errorf("subprotocols %q", got)
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1))
	for _, want := range []string{"a", "b"} {
		var message string
		if err := websocket.Message.Receive(c, &message); err != nil {
			t.Fatal(err)
		}
		var e planetest.WatchEvent
		if err := json.Unmarshal([]byte(message), &e); err != nil || e.Type != "ADDED" || e.Object["metadata"].(map[string]any)["name"] != want {
			t.Errorf("%v: %s", err, message)
		}
	}
	p.Drain()
	var e planetest.WatchEvent
	if err := websocket.JSON.Receive(c, &e); err != nil || e.Type != "BOOKMARK" {
		t.Errorf("%v: %v", e, err)
	}
	if err := websocket.JSON.Receive(c, &e); err != io.EOF {
		t.Errorf("not closed: %v, %v", e, err)
	}
	planetest.WaitFor(t, func() bool { return watchers(p, t) == 0 })
}

func TestProtobufOverWebSocket(t *testing.T) {
	p := planetest.NewPlane(t)
	s := serving(t, p)
	c, err := dial(t, s, planetest.ConfigMapsPath+"?watch=1&resourceVersion=0", nil, "Authorization", "Bearer admin-token", "Accept", planetest.ProtobufType+";stream=watch")
	if err != nil {
		t.Fatal(err)
	}
	p.Must(t, 201, "POST", planetest.ConfigMapsPath, `{"metadata":{"name":"a"}}`)
	var message []byte
	if err := websocket.Message.Receive(c, &message); err != nil {
		t.Fatal(err)
	}
	e := &metav1.WatchEvent{}
	if err := e.Unmarshal(message); err != nil || e.Type != "ADDED" {
		t.Fatalf("%v: %q", err, message)
	}
	object, _, err := protobuf.NewSerializer(gotypes.Scheme, gotypes.Scheme).Decode(e.Object.Raw, &schema.GroupVersionKind{}, nil)
	if m, ok := object.(*corev1.ConfigMap); err != nil || !ok || m.Name != "a" {
		t.Errorf("%v, %v", object, err)
	}
}

// Who may not watch, or asks for what is not to be had, is told in plain HTTP; so is whose handshake is none.
func TestRefusedWebSockets(t *testing.T) {
	p := planetest.NewPlane(t)
	s := serving(t, p)
	encoded := func(token string) string {
		return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
	}
	handshake := map[string]string{
		"Connection": "keep-alive, Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
		"Origin": "https://console.example.com", "Authorization": "Bearer admin-token",
	}
	for _, tc := range []struct {
		name, path string
		header     map[string]string
		want       string
	}{
		{"a handshake", planetest.WatchWidgets, nil, "101 Switching Protocols"},
		{"no token", planetest.WatchWidgets, map[string]string{"Authorization": ""}, "401 Unauthorized"},
		{"a token in a subprotocol", planetest.WatchWidgets, map[string]string{"Authorization": "", "Sec-WebSocket-Protocol": encoded("reader-token") + ", x"}, "101 Switching Protocols"},
		{"no subprotocol but the token", planetest.WatchWidgets, map[string]string{"Authorization": "", "Sec-WebSocket-Protocol": encoded("reader-token")}, "401 Unauthorized"},
		{"an unknown token", planetest.WatchWidgets, map[string]string{"Authorization": "", "Sec-WebSocket-Protocol": encoded("nonsense") + ", x"}, "401 Unauthorized"},
		{"two tokens", planetest.WatchWidgets, map[string]string{"Authorization": "", "Sec-WebSocket-Protocol": encoded("reader-token") + ", x, " + encoded("admin-token")}, "401 Unauthorized"},
		{"who may not watch", planetest.WatchWidgets, map[string]string{"Authorization": "Bearer nobody-token"}, "403 Forbidden"},
		{"YAML", planetest.WatchWidgets, map[string]string{"Accept": "application/yaml"}, "406 Not Acceptable"},
		{"a bad selector", planetest.WatchWidgets + "&labelSelector=%3D", nil, "400 Bad Request"},
		{"no origin", planetest.WatchWidgets, map[string]string{"Origin": ""}, "403 Forbidden"},
		{"an old version", planetest.WatchWidgets, map[string]string{"Sec-WebSocket-Version": "8"}, "400 Bad Request"},
		{"no key", planetest.WatchWidgets, map[string]string{"Sec-WebSocket-Key": ""}, "400 Bad Request"},
		{"no watch", planetest.WidgetsPath, nil, "200 OK"},
	} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n", tc.path)
		for name, value := range handshake {
			if other, ok := tc.header[name]; ok {
				value = other
			}
			if value != "" {
				fmt.Fprintf(conn, "%s: %s\r\n", name, value)
			}
		}
		for name, value := range tc.header {
			if _, ok := handshake[name]; !ok {
				fmt.Fprintf(conn, "%s: %s\r\n", name, value)
			}
		}
		fmt.Fprint(conn, "\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		line, err := bufio.NewReader(conn).ReadString('\n')
		if got := strings.TrimSpace(strings.TrimPrefix(line, "HTTP/1.1 ")); err != nil || got != tc.want {
			t.Errorf("%s: %q, %v, want %q", tc.name, got, err, tc.want)
		}
		conn.Close()
	}
	planetest.WaitFor(t, func() bool { return watchers(p, t) == 0 })
}

// Whatever a client sends on its socket: nothing is kept of it, the server goes on, and the watch
// ends with the client.
func FuzzWebSocketFrames(f *testing.F) {
	for _, frames := range []string{
		"", "\x81\x85\x00\x00\x00\x00hello", // text
		"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00x", // of absurd length
		"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00x",
		"\x89\x80\x00\x00\x00\x00\x89\x80\x00\x00\x00\x00",             // pings
		"\x89\xfe\x10\x00\x00\x00\x00\x00" + strings.Repeat("p", 4096), // a ping that is too long
		"\x88\x82\x00\x00\x00\x00\x03\xe8", "\x88\x80\x00\x00\x00\x00", // goodbyes
		"\x01\x81\x00\x00\x00\x00a\x00\x81\x00\x00\x00\x00b", "\x80\x80\x00\x00\x00\x00", // fragments
		"\x81\x05hello", "\xff\xff\xff", "GET / HTTP/1.1\r\n\r\n", // nothing of the kind
	} {
		f.Add([]byte(frames))
	}
	p := planetest.NewPlane(f)
	s := httptest.NewServer(p)
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, frames []byte) {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://x\r\nAuthorization: Bearer admin-token\r\n\r\n", planetest.WatchWidgets)
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		answer := bufio.NewReader(conn)
		if line, err := answer.ReadString('\n'); err != nil || !strings.Contains(line, " 101 ") {
			t.Fatalf("%q, %v", line, err)
		}
		_, _ = conn.Write(frames)
		_ = conn.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, answer); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the server has not closed it")
		}
		planetest.WaitFor(t, func() bool { return watchers(p, t) == 0 })
	})
}

// taken is the response to a request on one end of a pipe.
type taken struct {
	http.ResponseWriter
	conn net.Conn
}

func (r taken) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return r.conn, bufio.NewReadWriter(bufio.NewReader(r.conn), bufio.NewWriter(r.conn)), nil
}

// A quiet socket is pinged; where nobody reads that any more, the watch ends.
func TestQuietWebSocketsArePinged(t *testing.T) {
	planetest.Compile(t, planetest.Bundle)
	synctest.Test(t, func(t *testing.T) {
		p := planetest.NewPlane(t)
		here, there := net.Pipe()
		q := planetest.Request("GET", planetest.ConfigMapsPath+"?watch=1&resourceVersion=0", "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
			"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Origin", "http://x")
		done := make(chan struct{})
		go func() {
			p.ServeHTTP(taken{httptest.NewRecorder(), there}, q)
			close(done)
		}()
		reader := bufio.NewReader(here)
		for {
			line, err := reader.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == "\r\n" {
				break
			}
		}
		opened := time.Now()
		for range 3 {
			ping := make([]byte, 2)
			if _, err := io.ReadFull(reader, ping); err != nil || ping[0] != 0x80|websocket.PingFrame || ping[1] != 0 {
				t.Fatalf("%x, %v", ping, err)
			}
		}
		if after := time.Since(opened); after < time.Minute || after > 3*time.Minute {
			t.Errorf("three pings in %v", after)
		}
		<-done // the next one is not read
		if after := time.Since(opened); after > 5*time.Minute {
			t.Errorf("over after %v", after)
		}
	})
}
