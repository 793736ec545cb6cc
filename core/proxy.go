package core

import (
	"context"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// findAggregate sets the server that answers the request in place of this one, if there is one. The past is not on that server, so that
// a request below /at is refused, unless this server answered the group at that moment.
func (p *Pipeline) findAggregate(r *Request) error {
	gvr := r.GVR()
	a := r.Tip.Policy.Aggregate(gvr.GroupVersion())
	if past := r.Past.Tip; past != nil && past.Policy != nil {
		if past.Policy.Version(gvr) != nil {
			return nil
		}
		if then := past.Policy.Aggregate(gvr.GroupVersion()); then != nil {
			a = then
		}
	}
	if a == nil {
		return nil
	}
	if r.Past.Moment != nil {
		return read.PastElsewhere(&r.Call, a)
	}
	r.Aggregated = &call.Aggregated{By: a, Listed: p.aggregation.Lists(a, gvr.Version, gvr.Resource, r.Info.Subresource)}
	return nil
}

// proxy passes a request on to the server that answers it. The policy of a write is confirmed first: there is no commit that would find
// that another one is in force. The request holds no seats while it waits for the other server, which has limits of its own.
func (p *Pipeline) proxy(ctx context.Context, r *Request) error {
	a := r.Aggregated.By
	if p.aggregation != nil {
		r.Aggregated.State = p.aggregation.Describe(a, r.Info.APIVersion)
	}
	if !r.Mode.OfClient() {
		return nil // an explanation asks no other server
	}
	if p.aggregation == nil {
		return status.Unavailable("requests are not passed on to other servers here")
	}
	if r.Write && !r.Confirmed {
		tip, err := p.committer.Confirm(ctx)
		if err != nil {
			return err
		}
		r.Confirmed = true
		if tip.PolicyRevision() != r.Tip.PolicyRevision() {
			return &call.Again{Stage: "impersonation", Tip: tip}
		}
		r.Tip = tip
	}
	r.ReleaseSeats()
	return p.aggregation.Serve(ctx, &r.Call, a, func(ctx context.Context) error { return p.mayGoOn(ctx, r, a) })
}

// mayGoOn returns an error if the policy in force does not allow a request that goes on for long, or if another server answers it now. It
// may run while the request is answered, so that it changes nothing of it.
func (p *Pipeline) mayGoOn(ctx context.Context, r *Request, a *policy.Aggregate) error {
	info := *r.Info
	one := newRequest()
	one.Call = call.Call{HTTP: r.HTTP, W: call.NewDiscard(), AuditID: r.AuditID, Received: r.Received, Mode: call.Explained, Info: &info, Requester: r.Requester, Confirmed: true}
	if err := p.reauthorize(ctx, one, noTurn); err != nil {
		return err
	}
	if now := one.Aggregated; now == nil || !now.By.Same(a) {
		return read.ErrGone
	}
	return nil
}

// noTurn is a turn that is there at once: what asks has one already.
func noTurn(context.Context) (func(), error) { return func() {}, nil }
