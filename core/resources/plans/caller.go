package plans

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/projections/history"
)

// lastWrite returns a function that finds the last write of a resource up to the tip.
func (v *service) lastWrite(c *call.Call) func(context.Context, schema.GroupResource) (*LastWrite, error) {
	return func(ctx context.Context, r schema.GroupResource) (*LastWrite, error) {
		if err := v.History.Reach(ctx, c.Tip.Revision()); err != nil {
			return nil, err
		}
		for last, err := range v.History.Before(ctx, history.Filter{Resource: r}, c.Tip.Revision()) {
			if err != nil {
				return nil, err
			}
			return &LastWrite{last.Revision, last.Meta.GetActor().GetUser()}, nil
		}
		return nil, nil
	}
}
