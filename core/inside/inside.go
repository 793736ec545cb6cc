// Package inside is how parts of the program are clients of its API: requests take the
// same way as those from outside, through every stage, but for the network. Who sends them is
// known by where they come from, so there is no credential that could be stolen or expire.
package inside

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/authn"
)

// Config is for clients whose requests a handler serves in the name of a user. There is no
// limit of their rate. It is safe for concurrent use.
func Config(handler http.Handler, as user.Info) *rest.Config {
	return &rest.Config{
		Host:      "http://inside",
		UserAgent: "stele/" + as.GetName(),
		Transport: &transport{handler, as},
		QPS:       -1,
	}
}

// transport implements http.RoundTripper.
type transport struct {
	handler http.Handler
	user    user.Info
}

// RoundTrip returns as soon as the answer has begun; its body is written while it is read.
func (t *transport) RoundTrip(q *http.Request) (*http.Response, error) {
	if err := q.Context().Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(authn.WithUser(q.Context(), t.user))
	served := q.Clone(ctx) // which the handler may change
	served.RequestURI = q.URL.RequestURI()
	served.Proto, served.ProtoMajor, served.ProtoMinor = "HTTP/2.0", 2, 0 // many at once, without deadlines of their own
	if served.Body == nil {
		served.Body = http.NoBody
	}
	body, w := io.Pipe()
	a := &answer{request: q, header: http.Header{}, body: body, w: w, began: make(chan *http.Response, 1)}
	go func() {
		defer cancel()
		defer func() {
			if recover() != nil { // http.ErrAbortHandler: all else the handler has dealt with
				w.CloseWithError(io.ErrUnexpectedEOF)
			}
			a.begin(http.StatusOK)
			w.Close()
			if q.Body != nil {
				q.Body.Close()
			}
		}()
		t.handler.ServeHTTP(a, served)
	}()
	select {
	case r := <-a.began:
		r.Body = &reading{body, cancel}
		return r, nil
	case <-q.Context().Done():
		// What it still answers is read by nobody.
		body.CloseWithError(errGone)
		return nil, q.Context().Err()
	}
}

var errGone = errors.New("inside: the client is gone")

// reading ends the request when its answer is closed.
type reading struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (r *reading) Close() error {
	r.cancel()
	return r.CloseWithError(errGone)
}

// answer implements http.ResponseWriter and http.Flusher.
type answer struct {
	request *http.Request
	header  http.Header
	body    *io.PipeReader
	w       *io.PipeWriter
	once    sync.Once
	began   chan *http.Response // capacity 1
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) { a.begin(code) }

func (a *answer) begin(code int) {
	a.once.Do(func() {
		a.began <- &http.Response{
			Status: http.StatusText(code), StatusCode: code, Header: a.header.Clone(), ContentLength: -1,
			Proto: "HTTP/2.0", ProtoMajor: 2, Request: a.request,
		}
	})
}

func (a *answer) Write(b []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.w.Write(b)
}

// Flush does nothing: what is written is read at once.
func (a *answer) Flush() {}
