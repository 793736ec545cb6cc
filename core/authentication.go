package core

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"stele.dev/stele/core/authn"
)

// authentication finds out who asks. Nobody in particular reaches what tells whether
// the server is there, and nothing else.
func (p *Pipeline) authentication(_ context.Context, r *Request) error {
	if r.trace != nil {
		return nil // it is who asks to have it explained
	}
	u, err := p.authenticator.Authenticate(r.http)
	if err != nil || u == nil && !public(r.http.URL.Path) {
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if u == nil {
		u = authn.Anonymous
	}
	r.requester = u
	// What comes after must not depend on it, or log it.
	r.http.Header.Del("Authorization")
	return nil
}

func public(path string) bool {
	switch path {
	case "/healthz", "/livez", "/readyz", "/version":
		return true
	}
	return false
}
