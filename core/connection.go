package core

import (
	"context"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
)

// requestTimeout bounds all requests but watches, and rows of the table that have another timeout.
const requestTimeout = time.Minute

// connection finds out what is asked for. TLS and HTTP/2 have been dealt with by the
// server; here are the limits of the single request.
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
		case "watch": // by its path, whatever the method
			if r.HTTP.Method != http.MethodGet && r.HTTP.Method != http.MethodHead {
				return status.MethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, strings.ToLower(r.HTTP.Method))
			}
		}
	}
	if info.Verb == "watch" {
		return nil // it has a timeout of its own
	}
	defer func() {
		// A client that stalls, sending or reading, must not hold on to the request.
		if deadline, ok := r.HTTP.Context().Deadline(); ok && r.HTTP.ProtoMajor == 1 {
			c := http.NewResponseController(r.W)
			_ = c.SetReadDeadline(deadline)
			_ = c.SetWriteDeadline(deadline.Add(call.Stalled))
		}
	}()
	timeout := requestTimeout
	if info.Verb == "create" {
		if row := p.table.Find(&r.Call); row != nil && row.Timeout > 0 {
			timeout = row.Timeout
		}
	}
	if asked := r.HTTP.URL.Query().Get("timeout"); asked != "" {
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
	if !r.Explained { // what is explained is a part of a body that has its share: to wait with that for more would not end
		r.HTTP.Body = p.bodies.Limit(ctx, r.HTTP.Body, r.HTTP.ContentLength)
	}
	return nil
}
