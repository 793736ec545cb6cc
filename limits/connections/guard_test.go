package connections_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"stele.dev/stele/limits/connections"
)

// folder has the keys of all tests.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "connections"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

func ok(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }

// isClosed reports whether the server has closed a connection.
func isClosed(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return err == io.EOF
}

// Clients that open connections and send nothing never keep others out, and are closed in time.
func TestSilentConnectionsMakeRoomForOthers(t *testing.T) {
	keys()
	synctest.Test(t, func(t *testing.T) {
		p := listen(t, connections.Limits{Opening: 8, OpeningPerSource: 4}, ok)
		first := p.connect("192.0.2.1")
		for i := range 7 {
			p.connect(fmt.Sprintf("192.0.2.%d", 2+i))
		}
		get(t, p.client("198.51.100.1", true))
		get(t, p.client("198.51.100.2", false))
		p.expect(1, "stele_connections_closed_total", "silent")
		if !isClosed(first) {
			t.Error("the oldest silent connection is open")
		}
		last := p.connect("192.0.2.99")
		start := time.Now()
		closed(t, last)
		if took := time.Since(start).Round(time.Second); took != 15*time.Second {
			t.Errorf("a silent connection was closed after %s", took)
		}
		synctest.Wait()
		p.expect(8, "stele_connections_closed_total", "late")
	})
}

// A source has a part of the places for handshakes. Its own silent connections make room, those of others do not.
func TestASourceHasAPartOfTheHandshakes(t *testing.T) {
	keys()
	synctest.Test(t, func(t *testing.T) {
		p := listen(t, connections.Limits{Opening: 100, OpeningPerSource: 2}, ok)
		other := p.connect("192.0.2.1")
		own := []net.Conn{p.connect("192.0.2.2"), p.connect("192.0.2.2"), p.connect("192.0.2.2")}
		if !isClosed(own[0]) || isClosed(own[1]) || isClosed(own[2]) || isClosed(other) {
			t.Error("not the source's oldest connection was closed")
		}
		p.expect(1, "stele_connections_closed_total", "silent")
		p.expect(3, "stele_connections_open")
		p.expect(2, "stele_connections_sources")
	})
}

// At the limit of all connections, the one that is idle for longest goes, and unknown users go first.
func TestTheIdlestConnectionMakesRoom(t *testing.T) {
	keys()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		p := listen(t, connections.Limits{Total: 4}, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/hold":
				w.WriteHeader(200)
				w.(http.Flusher).Flush()
				<-hold
			case "/known":
				connections.Known(r.Context())
			}
		})
		ask := func(from, path string) *http.Client {
			t.Helper()
			c := p.client(from, true)
			resp, err := c.Get("https://server" + path)
			if err != nil {
				t.Fatal(err)
			}
			if path != "/hold" {
				_, _ = io.Copy(io.Discard, resp.Body)
			}
			t.Cleanup(func() { resp.Body.Close() })
			time.Sleep(time.Second)
			return c
		}
		ask("192.0.2.1", "/hold")
		ask("192.0.2.2", "/known")
		ask("192.0.2.3", "/")
		ask("192.0.2.4", "/")
		ask("192.0.2.5", "/hold") // closes that of .3
		ask("192.0.2.6", "/hold") // closes that of .4
		p.expect(2, "stele_connections_closed_total", "idlest")
		p.expect(0, "stele_connections_refused_total")
		ask("192.0.2.7", "/hold") // closes that of .2, the only one without a request
		p.expect(3, "stele_connections_closed_total", "idlest")
		if c := p.connect("192.0.2.8"); !isClosed(c) { // all are in use
			t.Error("a connection beyond the limit is open")
		}
		p.expect(1, "stele_connections_refused_total", "limit")
		p.expect(4, "stele_connections_open")
		close(hold)
	})
}

// A source with many connections in use cannot take the last places from sources with few, nor from this machine.
func TestTheLastPlacesAreForSourcesWithFewConnections(t *testing.T) {
	keys()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		defer close(hold)
		p := listen(t, connections.Limits{Total: 32, PerSource: -1, OpeningPerSource: -1}, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-hold
		})
		hang := func(from string) error {
			resp, err := p.client(from, true).Get("https://server/")
			if err == nil {
				t.Cleanup(func() { resp.Body.Close() })
			}
			return err
		}
		for i := range 30 {
			if err := hang("192.0.2.1"); err != nil {
				t.Fatal(i, err)
			}
		}
		if hang("192.0.2.1") == nil {
			t.Error("the source got the place before the last")
		}
		if err := hang("192.0.2.2"); err != nil {
			t.Errorf("another source: %v", err)
		}
		if err := hang("127.0.0.1"); err != nil {
			t.Errorf("this machine: %v", err)
		}
	})
}

// A source has a part of the connections; one of IPv6 is a network.
func TestASourceHasAPartOfTheConnections(t *testing.T) {
	keys()
	synctest.Test(t, func(t *testing.T) {
		p := listen(t, connections.Limits{Total: 100, PerSource: 2}, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		for _, from := range []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "127.0.0.1", "127.0.0.1", "127.0.0.1"} {
			resp, err := p.client(from, true).Get("https://server/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
		}
		if c := p.connect("2001:db8::ffff"); !isClosed(c) {
			t.Error("a third connection of the network is open")
		}
		p.expect(1, "stele_connections_refused_total", "source")
	})
}

// Handshakes that are computed take turns, and a client that stops in the middle of one does not keep its place.
func TestHandshakesTakeTurns(t *testing.T) {
	keys()
	synctest.Test(t, func(t *testing.T) {
		p := listen(t, connections.Limits{Handshakes: 1}, ok)
		for i := range 20 {
			// It sends a hello and reads nothing, so the server's answer hangs in the pipe.
			c := p.connect(fmt.Sprintf("192.0.2.%d", i))
			go func() { _, _ = c.Write(hello(t, p)) }()
		}
		synctest.Wait()
		get(t, p.client("198.51.100.1", true))
		p.expect(0, "stele_connections_handshakes_waiting")
	})
}

// A client that cancels more requests than the limits allow is told to go away; others go on.
func TestRapidResetsEndTheConnection(t *testing.T) {
	keys()
	synctest.Test(t, func(t *testing.T) {
		p := listen(t, connections.Limits{Resets: 10}, func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-time.After(time.Second):
			}
		})
		honest := p.client("198.51.100.1", true)
		get(t, honest)
		f := p.frames("192.0.2.1")
		for i := 0; i < 150; i++ {
			id, err := f.open()
			if err == nil {
				synctest.Wait()
				err = f.WriteRSTStream(id, http2.ErrCodeCancel)
			}
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
		if _, err := f.open(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		<-f.over
		if f.goaway == nil {
			t.Error("the client was not told to go away")
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("the connection was closed after %s", took)
		}
		p.expect(1, "stele_server_http2_abuses_total", "resets")
		get(t, honest)
		p.expect(0, "stele_connections_refused_total")
	})
}

// Go's server ends a connection with many requests that were cancelled before they began.
func TestResetsBeforeTheHandlerEndTheConnection(t *testing.T) {
	keys()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		p := listen(t, connections.Limits{Streams: 4, Resets: -1}, func(w http.ResponseWriter, r *http.Request) { <-hold })
		f := p.frames("192.0.2.1")
		var err error
		for i := 0; i < 100 && err == nil; i++ {
			var id uint32
			if id, err = f.open(); err == nil {
				err = f.WriteRSTStream(id, http2.ErrCodeCancel)
			}
		}
		close(hold)
		<-f.over
		if f.goaway == nil || *f.goaway != http2.ErrCodeEnhanceYourCalm {
			t.Errorf("the client was told %v", f.goaway)
		}
		p.expect(1, "stele_server_http2_errors_total", "conn_ENHANCE_YOUR_CALM_too_many_early_resets")
	})
}

// flood sends frames until the connection ends, and returns how many.
func (f *frames) flood(t *testing.T, most int, send func(i int) error) int {
	t.Helper()
	for i := range most {
		if send(i) != nil {
			<-f.over
			return i
		}
	}
	t.Errorf("%d frames did not end the connection", most)
	f.conn.Close()
	return most
}

// Control frames without requests end the connection.
func TestFloodsOfControlFramesEndTheConnection(t *testing.T) {
	keys()
	for name, send := range map[string]func(f *frames) error{
		"ping":     func(f *frames) error { return f.WritePing(false, [8]byte{}) },
		"settings": func(f *frames) error { return f.WriteSettings(http2.Setting{ID: http2.SettingEnablePush}) },
		"priority": func(f *frames) error { return f.WritePriority(1, http2.PriorityParam{StreamDep: 3}) },
		"window":   func(f *frames) error { return f.WriteWindowUpdate(0, 1) },
		"unknown":  func(f *frames) error { return f.WriteRawFrame(99, 0, 0, make([]byte, 1000)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := listen(t, connections.Limits{ControlBytes: 1 << 10}, ok)
				f := p.frames("192.0.2.1")
				f.flood(t, 10_000, func(int) error { return send(f) })
				p.expect(1, "stele_server_http2_abuses_total", "control")
				p.expect(1, "stele_connections_closed_total", "control")
			})
		})
	}
}

// A header that goes on and on ends the connection (Go's server sees to that).
func TestAFloodOfContinuationsEndsTheConnection(t *testing.T) {
	keys()
	synctest.Test(t, func(t *testing.T) {
		p := listen(t, connections.Limits{HeaderBytes: 16 << 10}, ok)
		f := p.frames("192.0.2.1")
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.header, EndStream: true}); err != nil {
			t.Fatal(err)
		}
		part := append([]byte{0, 1, 'a', 127, 128, 7}, make([]byte, 1023)...) // a field of 1023 bytes
		sent := f.flood(t, 1000, func(int) error { return f.WriteContinuation(1, false, part) })
		if sent > 100 {
			t.Errorf("%d KiB of headers were taken", sent)
		}
	})
}

// A header that never ends is not kept for longer than an idle connection.
func TestAHeaderMustEnd(t *testing.T) {
	keys()
	synctest.Test(t, func(t *testing.T) {
		p := listen(t, connections.Limits{}, ok)
		f := p.frames("192.0.2.1")
		start := time.Now()
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.header[:1]}); err != nil {
			t.Fatal(err)
		}
		<-f.over
		if took := time.Since(start); took > 2*time.Minute {
			t.Errorf("HTTP/2: closed after %s", took)
		}
		c, err := p.handshake("192.0.2.2", "http/1.1")
		if err != nil {
			t.Fatal(err)
		}
		start = time.Now()
		go func() {
			for _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: server\r\n"); err == nil; _, err = io.WriteString(c, "a: b\r\n") {
				time.Sleep(time.Second)
			}
		}()
		closed(t, c)
		c.Close()
		time.Sleep(time.Second)
		if took := time.Since(start).Round(time.Second); took != 16*time.Second {
			t.Errorf("HTTP/1: closed after %s", took)
		}
	})
}

// Connections without a request are closed; those with one are not.
func TestIdleConnectionsAreClosed(t *testing.T) {
	keys()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		p := listen(t, connections.Limits{}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hold" {
				_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
				<-hold
			}
		})
		get(t, p.client("192.0.2.1", true))
		get(t, p.client("192.0.2.1", false))
		ended := make(chan error)
		go func() {
			resp, err := p.client("192.0.2.2", true).Get("https://server/hold")
			if err == nil {
				resp.Body.Close()
			}
			ended <- err
		}()
		time.Sleep(80 * time.Second)
		p.expect(3, "stele_connections_open")
		time.Sleep(20 * time.Second)
		p.expect(1, "stele_connections_open")
		time.Sleep(time.Hour)
		close(hold)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
