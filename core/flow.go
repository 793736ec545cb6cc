package core

import (
	"context"

	"stele.dev/stele/core/call"
)

// flow finds the flow of the request, and takes seats of its priority level. It may wait for them. A request keeps its seats
// when it is sent back. The requests that it runs as parts of itself have none of their own: to wait for more would be a
// deadlock.
//
// The body is read before that, so that no seat waits for a client. Bodies of requests that wait would also fill the window of
// an HTTP/2 connection, and the body of the request with the seat could not arrive.
func (p *Pipeline) flow(ctx context.Context, r *Request) error {
	switch {
	case r.Tip.Policy == nil || r.Flow.Taken != nil || r.item != "":
		return nil
	case r.Explained:
		p.flows.Classify(&r.Call)
		return nil
	}
	if err := call.Fetch(r.HTTP); err != nil {
		return err
	}
	err := p.flows.Take(ctx, &r.Call)
	r.ReleaseSeatsOfSlowReader()
	return err
}
