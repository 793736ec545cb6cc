package core

import (
	"context"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/limits/connections"
)

// requestTimeout bounds every request, except watches and virtual resources with another timeout.
const requestTimeout = time.Minute

// connection parses the method and the path, and sets the limits of the request: its timeout and its share of memory
// for bodies. The server has dealt with TLS and HTTP/2.
func (p *Pipeline) connection(_ context.Context, r *Request) error {
	if err := read.CutMoment(&r.Call); err != nil {
		return err
	}
	info, err := call.RequestInfo(r.HTTP)
	if err != nil {
		return status.BadRequest(err.Error())
	}
	r.Info = info
	if info.IsResourceRequest {
		switch info.Verb {
		case "create", "update", "patch", "delete":
			r.Write = true
		case "watch": // a path below /watch/ is a watch, whatever the method
			if r.HTTP.Method != http.MethodGet && r.HTTP.Method != http.MethodHead {
				return status.MethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, strings.ToLower(r.HTTP.Method))
			}
		}
	}
	if info.Verb == "watch" {
		return nil // a watch has its own timeout
	}
	if !info.IsResourceRequest {
		if route := p.surface.Route(info.Path); route != nil && route.Long && r.Past.Moment == nil {
			return nil
		}
	}
	defer func() {
		// A client that stops sending or reading must not keep the request alive.
		deadline, ok := r.HTTP.Context().Deadline()
		if !ok || authn.Inside(r.HTTP.Context()) || r.HTTP.ProtoMajor == 2 && time.Until(deadline) <= requestTimeout {
			return // a request of the program itself has no connection; on a stream of HTTP/2 the server and the body have deadlines
		}
		c := http.NewResponseController(r.W)
		_ = c.SetReadDeadline(deadline)
		_ = c.SetWriteDeadline(deadline.Add(call.Stalled))
	}()
	timeout := requestTimeout
	if info.Verb == "create" {
		if row := p.table.Find(&r.Call); row != nil && row.Timeout > 0 {
			timeout = row.Timeout
		}
	}
	asked := ""
	if u := r.HTTP.URL; u.RawQuery != "" { // most requests have no query
		asked = u.Query().Get("timeout")
	}
	if asked != "" {
		d, err := time.ParseDuration(asked)
		if err != nil {
			return status.BadRequestf("invalid timeout specified in the request URL - %v", err)
		}
		if d > 0 && d < timeout {
			timeout = d
		}
	}
	ctx, cancel := context.WithDeadline(r.HTTP.Context(), r.Received.Add(timeout))
	r.HTTP, r.Cancel = r.HTTP.WithContext(ctx), cancel
	if r.Mode.OfClient() { // else its body is part of one that has its share of memory; to wait for more would be a deadlock
		return p.countBody(ctx, r)
	}
	return nil
}

// countBody makes the body take shares of memory. With HTTP/2 the client sends the first part of it without being asked.
func (p *Pipeline) countBody(ctx context.Context, r *Request) error {
	h := r.HTTP
	body, contentType := connections.Body(ctx, r.W, h.Body), h.Header.Get("Content-Type")
	if h.ProtoMajor != 2 || h.Body == http.NoBody || authn.Inside(ctx) {
		h.Body = p.memory.Body(ctx, body, h.ContentLength, contentType)
		return nil
	}
	counted, err := p.memory.ArrivingBody(ctx, body, h.ContentLength, contentType)
	if err != nil {
		return err
	}
	h.Body = counted
	return nil
}
