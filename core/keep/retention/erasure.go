package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/projections/objects"
)

// erasure decides what stays of one segment. Invariant: no event is erased while an earlier version of the same object
// has its content, as the index of the history can be made again from what stays: a version with content and without a
// successor would be taken for the present one.
type erasure struct {
	*Eraser
	ctx     context.Context
	segment *segment.Info
	floors  map[schema.GroupResource]floor
	objects *objects.State // nil in some tests
	err     error
	changes bool

	kept map[uint64]bool // the revisions of the segment so far, and whether they keep their content
}

// erase writes a segment again without what is below the floors.
func (e *Eraser) erase(ctx context.Context, s *segment.Info, floors map[schema.GroupResource]floor) error {
	delete(e.again, s.First)
	x := &erasure{Eraser: e, ctx: ctx, segment: s, floors: floors, objects: e.Tip().Objects, kept: map[uint64]bool{}}
	freed, err := e.Archive.Rewrite(ctx, s.First, x.decide)
	if err = errors.Join(x.err, err); err != nil {
		return fmt.Errorf("segment of revisions %d-%d: %w", s.First, s.Last, err)
	}
	e.freed.Add(float64(max(freed, 0)))
	done := map[schema.GroupResource]floor{}
	for _, g := range s.Groups {
		done[groupResource(&g)] = floors[groupResource(&g)]
	}
	e.erased[s.First] = done
	if x.changes {
		e.Logger.Info("erased what retention does not keep", "revisions", fmt.Sprintf("%d-%d", s.First, s.Last), "bytes", freed)
	}
	return nil
}

// decide is called for the events of the segment in order. After an error it keeps everything.
func (x *erasure) decide(_ *eventlog.Batch, event *eventlog.Event) segment.Keep {
	if x.err != nil {
		return segment.All
	}
	keep, err := x.keep(event)
	if err != nil {
		x.err = err
		return segment.All
	}
	for i := range event.Span() {
		x.kept[event.Revision+i] = keep == segment.All
	}
	x.changes = x.changes || keep != segment.All
	return keep
}

// KeepsForEver reports whether a batch is never forgotten: one of its events is about no object, but about a policy or the log itself.
func KeepsForEver(b *eventlog.Batch) bool {
	return slices.ContainsFunc(b.Events, func(e *eventlog.Event) bool { return e.Meta.GetBulk() == nil && e.Meta.GetObject() == nil })
}

// keep decides about one event.
func (x *erasure) keep(event *eventlog.Event) (segment.Keep, error) {
	if bulk := event.Meta.GetBulk(); bulk != nil { // it has no payloads
		for i, o := range bulk.GetObjects() {
			keep, err := x.record(o.GetObject(), event.Revision+uint64(i), o.GetPreviousRevision())
			if err != nil || keep != segment.Nothing {
				return segment.All, err
			}
		}
		return segment.Nothing, nil
	}
	object := event.Meta.GetObject()
	if object == nil {
		return segment.All, nil
	}
	if x.present(object, event.Revision) { // whatever the index says
		return segment.All, nil
	}
	replaced := event.Revision
	if event.Meta.GetType() != logpb.Type_TYPE_DELETED {
		var err error
		replaced, err = x.History.Superseded(x.ctx, resourceOf(object), object.GetNamespace(), object.GetName(), event.Revision)
		if err != nil || replaced == 0 {
			return segment.All, err
		}
	}
	if replaced >= x.floors[resourceOf(object)].history {
		return segment.All, nil
	}
	return x.record(object, replaced, event.Meta.GetPreviousRevision())
}

// record decides about the record of a change whose version was replaced at a revision, given the revision of the
// object's change before it: Nothing or Metadata.
func (x *erasure) record(object *logpb.Object, replaced, previous uint64) (segment.Keep, error) {
	if replaced >= x.floors[resourceOf(object)].records {
		return segment.Metadata, nil
	}
	gone, err := x.gone(previous)
	if err != nil || !gone {
		return segment.Metadata, err
	}
	return segment.Nothing, nil
}

// gone reports whether the content of the version of a revision, which an event of the segment follows, is erased
// with this event or was erased before. If it stays in an earlier segment, the next pass writes both segments again.
func (x *erasure) gone(revision uint64) (bool, error) {
	if revision == 0 {
		return true, nil
	}
	if kept, known := x.kept[revision]; known {
		return !kept, nil
	}
	batches, err := x.Log.Back(x.ctx, revision, 1)
	if forgotten := (*eventlog.ForgottenError)(nil); errors.As(err, &forgotten) {
		return true, nil
	}
	if err != nil { // for example, a damaged segment: the record stays until it can be read
		x.again[x.segment.First] = true
		return false, x.ctx.Err()
	}
	if len(batches) == 0 || batches[0].Last() < revision || !hasContent(batches[0], revision) {
		return true, nil
	}
	all := x.Archive.Segments()
	if i := sort.Search(len(all), func(i int) bool { return all[i].Last >= revision }); i < len(all) && all[i].First < x.segment.First {
		x.again[all[i].First], x.again[x.segment.First] = true, true
	}
	return false, nil
}

func resourceOf(o *logpb.Object) schema.GroupResource {
	return schema.GroupResource{Group: o.GetGroup(), Resource: o.GetResource()}
}

// hasContent reports whether the event of a revision has the content of an object.
func hasContent(b *eventlog.Batch, revision uint64) bool {
	for _, e := range b.Events {
		if e.Revision <= revision && revision <= e.Last() {
			return e.Content(logpb.Role_ROLE_OBJECT) != nil
		}
	}
	return false
}

// present reports whether a version is the present one of its object.
func (x *erasure) present(o *logpb.Object, revision uint64) bool {
	if x.objects == nil {
		return false
	}
	is := x.objects.Get(resourceOf(o), o.GetNamespace(), o.GetName())
	return is != nil && is.Revision == revision
}
