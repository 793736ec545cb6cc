package core

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
)

// warnOpened tells who proposes a policy of the kinds that would show more of their past than
// they do, or did when there last was one of their name: their events are still in the log.
func (p *Pipeline) warnOpened(ctx context.Context, r *Request) error {
	form := r.compiled.Form
	for i := range form.Kinds {
		kind := &form.Kinds[i]
		resource := schema.GroupResource{Group: kind.Group, Resource: kind.Plural}
		was := r.Tip.Policy.Kind(resource)
		if was == nil {
			var err error
			if was, err = p.lastKind(ctx, r, resource); err != nil {
				return err
			}
		}
		if was == nil || was.Of != nil {
			continue
		}
		if d := form.Opened(kind, was); d != nil {
			r.Warn(d.String())
		}
	}
	return nil
}

// lastKind is the kind of a resource that is not served, as it was when something was last written
// of it; nil if nothing was.
func (p *Pipeline) lastKind(ctx context.Context, r *Request, resource schema.GroupResource) (*policy.Kind, error) {
	if err := p.history.Reach(ctx, r.Tip.Revision()); err != nil {
		return nil, err
	}
	for last, err := range p.history.Before(ctx, history.Filter{Resource: resource}, r.Tip.Revision()) {
		if err != nil {
			return nil, err
		}
		then, err := p.past.Tip(ctx, r.Tip, last.Revision)
		if err != nil {
			return nil, err
		}
		return then.Policy.Kind(resource), nil
	}
	return nil, nil
}
