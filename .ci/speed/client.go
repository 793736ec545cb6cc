package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	clients     = 64 // that send one request after the other
	connections = 8  // that they share
)

// target is a server as clients see it.
type target struct {
	base  *url.URL
	tls   *tls.Config
	token string // "" if the client has a certificate
	pool  []*http.Transport
}

func newTarget(base *url.URL, config *tls.Config, token string) *target {
	t := &target{base: base, tls: config, token: token}
	for range connections {
		t.pool = append(t.pool, t.transport())
	}
	return t
}

// transport returns a client with connections of its own.
func (t *target) transport() *http.Transport {
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxIdleConnsPerHost: 256, ReadBufferSize: 64 << 10, TLSClientConfig: t.tls.Clone(),
	}
}

func (t *target) close() {
	for _, c := range t.pool {
		c.CloseIdleConnections()
	}
}

func (t *target) request(ctx context.Context, method, path, query, mediaType string, body []byte) *http.Request {
	u := *t.base
	u.Path, u.RawQuery = path, query
	r := &http.Request{
		Method: method, URL: &u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Accept": {"application/json"}, "User-Agent": {"speed"}},
	}
	if t.token != "" {
		r.Header["Authorization"] = []string{"Bearer " + t.token}
	}
	if body != nil {
		r.Header["Content-Type"] = []string{mediaType}
		r.ContentLength = int64(len(body))
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return r.WithContext(ctx)
}

// statusError is an answer that is an error.
type statusError struct {
	code int
	body string
}

func (e *statusError) Error() string { return fmt.Sprintf("HTTP %d: %.300s", e.code, e.body) }

func codeOf(err error) int {
	if s := new(statusError); errors.As(err, &s) {
		return s.code
	}
	return 0
}

// client sends one request after the other. It uses its buffers again.
type client struct {
	id     int
	target *target
	via    *http.Transport
	answer bytes.Buffer
	next   string // the continue token of its list
}

func (t *target) client(id int) *client {
	return &client{id: id, target: t, via: t.pool[id%len(t.pool)]}
}

// send returns the answer, which is valid until the next call. As client-go does, it tries again after a 429; the wait counts.
func (c *client) send(ctx context.Context, method, path, query, mediaType string, body []byte) ([]byte, error) {
	for try := 0; ; try++ {
		resp, err := c.via.RoundTrip(c.target.request(ctx, method, path, query, mediaType, body))
		if err != nil {
			return nil, err
		}
		c.answer.Reset()
		_, err = c.answer.ReadFrom(resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusTooManyRequests && try < 10:
			after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
			if err != nil || after < 1 {
				after = 1
			}
			select {
			case <-time.After(time.Duration(after) * time.Second):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		case resp.StatusCode >= 300:
			return nil, &statusError{resp.StatusCode, c.answer.String()}
		default:
			return c.answer.Bytes(), nil
		}
	}
}

// loop calls do for 0 to n-1 by some clients, or for a time if n is negative, and returns how long each call took.
func (t *target) loop(ctx context.Context, n int, span time.Duration, clients int, do func(ctx context.Context, c *client, i int) error) ([]time.Duration, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	took := make([][]time.Duration, clients)
	end := time.Now().Add(span)
	var next atomic.Int64
	var all sync.WaitGroup
	for id := range clients {
		c := t.client(id)
		all.Go(func() {
			for ctx.Err() == nil && (n >= 0 || time.Now().Before(end)) {
				i := int(next.Add(1) - 1)
				if n >= 0 && i >= n {
					return
				}
				start := time.Now()
				if err := do(ctx, c, i); err != nil {
					stop(err)
					return
				}
				took[id] = append(took[id], time.Since(start))
			}
		})
	}
	all.Wait()
	return slices.Concat(took...), context.Cause(ctx)
}

// percentile returns the q-quantile in ms.
func percentile(took []time.Duration, q float64) float64 {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return float64(took[min(len(took)-1, int(q*float64(len(took))))]) / 1e6
}
