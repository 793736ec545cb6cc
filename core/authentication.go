package core

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/status"
	"stele.dev/stele/limits/connections"
)

// authentication sets the requester. A failed authentication gets a 401 without a reason, or a 429 if there were too many of
// its source.
func (p *Pipeline) authentication(ctx context.Context, r *Request) error {
	if !r.Mode.OfClient() {
		return nil // the requester is the user who asked for the explanation
	}
	authenticate := p.authenticator.Authenticate
	if _, limited := ctx.Deadline(); !limited {
		authenticate = r.authenticateStream(ctx, p.authenticator)
	}
	u, err := authenticate(r.HTTP)
	if err != nil {
		r.recorded = err != authn.ErrUnauthorized // wrong credentials are counted by the log of failures
		if throttled := (*authn.ThrottledError)(nil); errors.As(err, &throttled) {
			return status.TooManyRequestsFor(throttled.Error()+"; try again later", throttled.After)
		}
		return status.Unauthorized()
	}
	if u != authn.Anonymous {
		connections.Known(r.HTTP.Context())
	}
	r.Requester = u
	return nil
}

// authenticateStream returns how a request without a deadline, such as a watch, is authenticated: its context ends when its
// credential is no longer valid. The cause is then the error with which it ends.
func (r *Request) authenticateStream(ctx context.Context, a *authn.Authenticator) func(*http.Request) (user.Info, error) {
	return func(h *http.Request) (user.Info, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		u, stop, err := a.AuthenticateStream(h, func() { cancel(status.Unauthorized()) })
		if err != nil {
			cancel(nil)
			return nil, err
		}
		r.HTTP = h.WithContext(ctx)
		r.disown = func() { stop(); cancel(nil) }
		return u, nil
	}
}
