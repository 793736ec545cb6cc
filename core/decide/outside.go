package decide

import (
	"context"
	"sync/atomic"

	"stele.dev/stele/policy"
)

// Unasked returns a policy whose authorizers outside of it are not asked, and have no opinion.
func Unasked(p *policy.Policy) *policy.Policy {
	return p.WithAuthorizers(func(string) policy.Authorizer { return quiet{} })
}

// quiet is an authorizer outside of a policy that is not asked.
type quiet struct{}

func (quiet) Authorize(ctx context.Context, _ *policy.Request) policy.Opinion {
	if asked, is := ctx.Value(notingKey{}).(*atomic.Bool); is {
		asked.Store(true)
	}
	return policy.Opinion{}
}

func (quiet) ByName(*policy.Request) bool { return false }

type notingKey struct{}

// Noting returns a context for decisions of a policy from [Unasked]. asked reports whether they depend on an authorizer outside of it, as those
// of rules of admission with the variable authorizer may.
func Noting(ctx context.Context) (_ context.Context, asked func() bool) {
	is := new(atomic.Bool)
	return context.WithValue(ctx, notingKey{}, is), is.Load
}
