package core

import (
	"context"

	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
)

// impersonation pins the tip, unless the request was sent back with a newer one, and sets the user to the one in the
// impersonation headers. The tip's policy must allow each of the user, groups, uid and extra. The rules are those of
// k8s.io/apiserver, but the user's size is bounded as in authentication.
func (p *Pipeline) impersonation(ctx context.Context, r *Request) error {
	if r.Tip == nil {
		r.Tip = p.committer.Tip()
		r.Confirmed = p.committer.Unconfirmed() == 0
	}
	if !r.Mode.Is(call.Replayed) {
		r.ClassifyAudit(&p.audits, authn.Inside(ctx))
		p.prepareRecord(r)
	}
	r.User = r.Requester
	if r.Tip.Policy == nil || !authn.Impersonates(r.HTTP.Header) {
		return nil
	}
	as, err := authn.Impersonate(ctx, r.Requester, r.HTTP.Header, r.Tip.Policy.Authorizer())
	if err != nil {
		return err
	}
	if err := authn.Bounded(as); err != nil {
		return status.BadRequest(err.Error())
	}
	r.User = as
	return nil
}
