package activation

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
)

// warnOpened tells who proposes a policy of the kinds that would show more of their past than
// they do, or did when there last was one of their name: their events are still in the log.
func (w *push) warnOpened(ctx context.Context) error {
	form := w.compiled.Form
	for i := range form.Kinds {
		kind := &form.Kinds[i]
		resource := schema.GroupResource{Group: kind.Group, Resource: kind.Plural}
		was := w.c.Tip.Policy.Kind(resource)
		if was == nil {
			var err error
			if was, err = w.lastKind(ctx, resource); err != nil {
				return err
			}
		}
		if was == nil || was.Of != nil {
			continue
		}
		if d := form.Opened(kind, was); d != nil {
			w.c.Warn(d.String())
		}
	}
	return nil
}

// lastKind is the kind of a resource that is not served, as it was when something was last written
// of it; nil if nothing was.
func (w *push) lastKind(ctx context.Context, resource schema.GroupResource) (*policy.Kind, error) {
	if err := w.Reader.History.Reach(ctx, w.c.Tip.Revision()); err != nil {
		return nil, err
	}
	for last, err := range w.Reader.History.Before(ctx, history.Filter{Resource: resource}, w.c.Tip.Revision()) {
		if err != nil {
			return nil, err
		}
		then, err := w.Reader.Past.Tip(ctx, w.c.Tip, last.Revision)
		if err != nil {
			return nil, err
		}
		return then.Policy.Kind(resource), nil
	}
	return nil, nil
}
