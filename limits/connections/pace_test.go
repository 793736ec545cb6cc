package connections_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"stele.dev/stele/limits/connections"
)

// upload is a handler that reads a body as the pipeline does, and answers with its length.
func upload(timeout time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		n, err := io.Copy(io.Discard, connections.Body(ctx, w, r.Body))
		if status, ok := err.(apierrors.APIStatus); ok {
			http.Error(w, err.Error(), int(status.Status().Code))
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Bytes", time.Duration(n).String())
	}
}

// drip is a body that comes in pieces.
type drip struct {
	pieces, size int
	every        time.Duration
}

func (d *drip) Read(b []byte) (int, error) {
	if d.pieces == 0 {
		return 0, io.EOF
	}
	time.Sleep(d.every)
	d.pieces--
	return copy(b, make([]byte, d.size)), nil
}

func TestABodyMustKeepItsPace(t *testing.T) {
	keys()
	for _, tc := range []struct {
		name  string
		body  drip
		code  int
		after time.Duration // at most
	}{
		{"a large body over a slow link", drip{50, 20 << 10, time.Second}, 200, time.Minute},
		{"a small body with a pause", drip{2, 100, 4 * time.Second}, 200, 9 * time.Second},
		{"a fast beginning pays for a pause", drip{2, 32 << 10, 17 * time.Second}, 408, 18 * time.Second},
		{"a byte a second", drip{1000, 1, time.Second}, 408, 12 * time.Second},
		{"nothing", drip{1, 1, 30 * time.Second}, 408, 31 * time.Second}, // this client of HTTP/2 waits for its own body
		{"fast enough, but for longer than a request may take", drip{1000, 10 << 10, time.Second}, 408, 61 * time.Second},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(tc.name+map[bool]string{false: ", HTTP/1", true: ", HTTP/2"}[http2], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := listen(t, connections.Limits{}, upload(time.Minute))
					start := time.Now()
					body := tc.body
					resp, err := p.client("192.0.2.1", http2).Post("https://server/", "", &body)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					if took := time.Since(start); resp.StatusCode != tc.code || took > tc.after {
						t.Errorf("%s after %s, want %d after %s at most", resp.Status, took, tc.code, tc.after)
					}
					want := 0.
					if tc.code == 408 {
						want = 1
					}
					p.expect(want, "stele_server_slow_bodies_total")
					time.Sleep(2 * time.Hour) // until the body ends
				})
			})
		}
	}
}

// While the server does other things, the client is not to blame.
func TestASlowServerIsNoSlowBody(t *testing.T) {
	keys()
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := listen(t, connections.Limits{}, func(w http.ResponseWriter, r *http.Request) {
				body := connections.Body(r.Context(), w, r.Body)
				b := make([]byte, 1<<10)
				for {
					time.Sleep(5 * time.Second)
					if _, err := io.ReadFull(body, b); err == io.EOF {
						return
					} else if err != nil {
						t.Error(err)
						return
					}
				}
			})
			resp, err := p.client("192.0.2.1", http2).Post("https://server/", "", &drip{pieces: 10, size: 1 << 10})
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			p.expect(0, "stele_server_slow_bodies_total")
		})
	}
}

// An answer that the client does not read ends in time: with HTTP/1 if it does not read the connection, with HTTP/2 also
// if it reads it, but does not open the window of the stream.
func TestAnAnswerThatIsNotReadEnds(t *testing.T) {
	keys()
	for name, begin := range map[string]func(t *testing.T, p *port){
		"HTTP/1": func(t *testing.T, p *port) {
			c, err := p.handshake("192.0.2.1", "http/1.1")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: server\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		},
		"HTTP/2": func(t *testing.T, p *port) {
			f := p.frames("192.0.2.1", noWindow)
			if _, err := f.open(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				written := make(chan error, 1)
				p := listen(t, connections.Limits{}, func(w http.ResponseWriter, r *http.Request) {
					_, err := w.Write(make([]byte, 1<<20))
					written <- err
				})
				begin(t, p)
				start := time.Now()
				if err := <-written; err == nil {
					t.Error("the answer was written")
				}
				if took := time.Since(start); took > 96*time.Second { // TLS says goodbye for 5 seconds
					t.Errorf("the write ended after %s", took)
				}
			})
		})
	}
}
