package core

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxBody is kube-apiserver's limit of a request's body.
	maxBody = 3 << 20
	// maxObject bounds an object as it is kept: a small body can have large defaults.
	maxObject = 4 << 20
	// stalled is how long a client may read nothing. Of HTTP/2 the server sees to it.
	stalled = 30 * time.Second
	// requestTimeout bounds everything but watches.
	requestTimeout = time.Minute
	// policyTimeout bounds a push: a large bundle takes minutes to compile.
	policyTimeout = 30 * time.Minute
)

// connection finds out what is asked for. TLS and HTTP/2 have been dealt with by the
// server; here are the limits of the single request.
func (p *Pipeline) connection(_ context.Context, r *Request) error {
	if err := p.cutMoment(r); err != nil {
		return err
	}
	info, err := p.requestInfo.NewRequestInfo(r.http)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	r.info = info
	if info.IsResourceRequest {
		switch info.Verb {
		case "create", "update", "patch", "delete":
			r.write = true
		case "watch": // by its path, whatever the method
			if r.http.Method != http.MethodGet && r.http.Method != http.MethodHead {
				return apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, strings.ToLower(r.http.Method))
			}
		}
	}
	if info.Verb == "watch" {
		return nil // it has a timeout of its own
	}
	defer func() {
		// A client that stalls, sending or reading, must not hold on to the request.
		if deadline, ok := r.http.Context().Deadline(); ok && r.http.ProtoMajor == 1 {
			c := http.NewResponseController(r.w)
			_ = c.SetReadDeadline(deadline)
			_ = c.SetWriteDeadline(deadline.Add(stalled))
		}
	}()
	timeout := requestTimeout
	if info.Verb == "create" && isPolicies(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}) {
		timeout = policyTimeout
	}
	if asked := r.http.URL.Query().Get("timeout"); asked != "" {
		d, err := time.ParseDuration(asked)
		if err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err))
		}
		if d > 0 && d < timeout {
			timeout = d
		}
	}
	ctx, cancel := context.WithDeadline(r.http.Context(), r.received.Add(timeout))
	r.http, r.cancel = r.http.WithContext(ctx), cancel
	if r.trace == nil { // what is explained is a part of a body that has its share: to wait with that for more would not end
		r.http.Body = p.bodies.Limit(ctx, r.http.Body, r.http.ContentLength)
	}
	return nil
}

// methodNotAllowed is the answer where no kind's own words are to be had.
func methodNotAllowed(method string) error {
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, method, schema.GroupResource{}, "", "", 0, false)
}

func tooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
}
