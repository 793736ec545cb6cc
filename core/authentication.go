package core

import (
	"context"
	"errors"

	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/status"
	"stele.dev/stele/limits/connections"
)

// authentication sets the requester. A failed authentication gets a 401 without a reason, or a 429 if there were too many of
// its source.
func (p *Pipeline) authentication(_ context.Context, r *Request) error {
	if !r.Mode.OfClient() {
		return nil // the requester is the user who asked for the explanation
	}
	u, err := p.authenticator.Authenticate(r.HTTP)
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
