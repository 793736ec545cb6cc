package core

import "context"

// flow finds the flow of the request, and takes seats of its priority level. It may wait for them. A request keeps its seats
// when it is sent back. The requests that it runs as parts of itself have none of their own: to wait for more would be a
// deadlock.
func (p *Pipeline) flow(ctx context.Context, r *Request) error {
	switch {
	case r.Tip.Policy == nil || r.Flow.Taken != nil || r.item != "":
		return nil
	case r.Explained:
		p.flows.Classify(&r.Call)
		return nil
	}
	err := p.flows.Take(ctx, &r.Call)
	r.ReleaseSeatsOfSlowReader()
	return err
}
