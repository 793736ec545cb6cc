package plans

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
)

// MayName returns a function that reports whether the caller may list a resource in a namespace, under the policy in
// force. Each answer is asked for once. The function is safe for concurrent use.
func MayName(ctx context.Context, c *call.Call) func(schema.GroupResource, string) bool {
	type place struct {
		schema.GroupResource
		namespace string
	}
	var mu sync.Mutex
	known := map[place]bool{}
	return func(r schema.GroupResource, namespace string) bool {
		mu.Lock()
		defer mu.Unlock()
		at := place{r, namespace}
		if may, is := known[at]; is {
			return may
		}
		request := policy.Request{
			User: c.User.GetName(), UID: c.User.GetUID(), Groups: c.User.GetGroups(), Extra: c.User.GetExtra(),
			Verb: "list", IsResource: true, Group: r.Group, Resource: r.Resource, Namespace: namespace,
		}
		if k := c.Tip.Policy.Kind(r); k != nil {
			request.Version = k.StorageVersion
		}
		known[at] = c.Tip.Policy.Authorize(ctx, &request).Allowed
		return known[at]
	}
}

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
