package core

import (
	"context"

	"stele.dev/stele/core/call"
	"stele.dev/stele/limits/memory"
)

// flow finds the flow of the request, and takes seats of its priority level. It may wait for them. A request keeps its seats
// when it is sent back. The requests that it runs as parts of itself have none of their own: to wait for more would be a
// deadlock.
//
// The body is read before that, so that no seat waits for a client. Bodies of requests that wait would also fill the window of
// an HTTP/2 connection, and the body of the request with the seat could not arrive.
func (p *Pipeline) flow(ctx context.Context, r *Request) error {
	switch {
	case r.Tip.Policy == nil || r.Flow.Taken != nil || r.Mode.IsPart():
		return nil
	case !r.Mode.OfClient():
		p.flows.Classify(&r.Call)
		return nil
	}
	memory.SetOwner(r.HTTP.Body, r.User.GetName())
	if r.mayFetch(ctx) {
		if err := call.Fetch(r.HTTP); err != nil {
			return err
		}
	}
	if err := p.flows.Take(ctx, &r.Call); err != nil {
		return err
	}
	r.ReleaseSeatsOfSlowReader()
	return p.pinAfterWait(r)
}

// pinAfterWait pins a newer tip, if there is one: the request may have waited for its body or its seats, and what it may do is
// decided after the wait. It keeps its seats under another policy, too.
func (p *Pipeline) pinAfterWait(r *Request) error {
	tip := p.committer.Tip()
	if tip.Revision() <= r.Tip.Revision() {
		return nil
	}
	r.Confirmed = p.committer.Unconfirmed() == 0
	return r.Pin(tip)
}

// mayFetch reports whether the body may be read before the request has seats. Requests are not authorized yet: without this,
// clients that may do nothing would take the memory for bodies from others. A request that the policy refuses is refused in
// the stage authorization, and its body is never read. Authorizers outside of the policy are not asked twice.
func (r *Request) mayFetch(ctx context.Context) bool {
	if n := r.HTTP.ContentLength; n >= 0 && n < memory.Small || len(r.Tip.Policy.Form().Outside()) > 0 {
		return true
	}
	access := r.access()
	d := r.Tip.Policy.Authorize(ctx, &access)
	return d.Allowed || d.Pending != nil
}
