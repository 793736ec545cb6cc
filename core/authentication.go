package core

import (
	"context"

	"stele.dev/stele/core/authn"
	"stele.dev/stele/core/connections"
	"stele.dev/stele/core/status"
)

// authentication sets the requester. A failed authentication gets a 401 without a reason.
func (p *Pipeline) authentication(_ context.Context, r *Request) error {
	if r.Explained {
		return nil // the requester is the user who asked for the explanation
	}
	u, err := p.authenticator.Authenticate(r.HTTP)
	if err != nil {
		return status.Unauthorized()
	}
	if u != authn.Anonymous {
		connections.Known(r.HTTP.Context())
	}
	r.Requester = u
	return nil
}
