// Package loopback lets parts of the program use its API as clients. Their requests pass through every stage like
// others, without a network. The user is in the context of the request, so there is no credential that could be stolen
// or expire.
package loopback

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/auth/authn"
)

// Config returns a client configuration for requests that a handler serves as a user. It has no rate limit. It is safe
// for concurrent use.
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

// RoundTrip returns as soon as the answer begins; its body is written while it is read.
func (t *transport) RoundTrip(q *http.Request) (*http.Response, error) {
	if err := q.Context().Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(authn.WithUser(q.Context(), t.user))
	served := q.Clone(ctx) // the handler may change it
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
			if recover() != nil { // http.ErrAbortHandler; the handler recovers from others
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
		// Nobody reads the rest of the answer.
		body.CloseWithError(errGone)
		return nil, q.Context().Err()
	}
}

var errGone = errors.New("inside: the client is gone")

// reading is the body of an answer. Closing it ends the request.
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
	began   chan *http.Response // with capacity 1
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

// Flush does nothing: every write is read at once.
func (a *answer) Flush() {}
