package activation

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
)

// warnOpened warns of kinds whose past objects more users could read under the new policy than under the one in force.
// A kind that is not in force is compared with the last one of its name, because its events are still in the log.
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

// lastKind returns the kind of a resource that is not served, as it was at the last write; nil if there was no write.
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
