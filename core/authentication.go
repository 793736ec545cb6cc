package core

import (
	"context"

	"stele.dev/stele/core/status"
)

// authentication finds out who asks. Who does not get in learns no more than that.
func (p *Pipeline) authentication(_ context.Context, r *Request) error {
	if r.Explained {
		return nil // it is who asks to have it explained
	}
	u, err := p.authenticator.Authenticate(r.HTTP)
	if err != nil {
		return status.Unauthorized()
	}
	r.Requester = u
	return nil
}
