package history

import (
	"context"
	"errors"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// changes yields the changes of the revisions that next returns, n of them or more, until it returns none. It
// reads them ahead: one at first, then two, and so on, because the caller may want few. If anyOf is set,
// revisions that the log does not have any more are left out.
func (s *Store) changes(ctx context.Context, v *view, anyOf bool, next func(n int) ([]uint64, error), yield func(*Change, error) bool) {
	for most := 1; ; {
		revisions, err := next(most)
		if err == nil && s.visible.Load() != v.index { // what follows would be of another index
			err = errGone
		}
		if err != nil {
			yield(nil, err)
			return
		}
		if len(revisions) == 0 {
			return
		}
		for ; len(revisions) > 0; most = min(2*most, aheadChanges) {
			part := revisions[:min(most, len(revisions))]
			revisions = revisions[len(part):]
			if !s.yieldAll(ctx, v, anyOf, part, yield) {
				return
			}
		}
	}
}

// yieldAll yields the changes of revisions, and reports whether the caller wants more.
func (s *Store) yieldAll(ctx context.Context, v *view, anyOf bool, revisions []uint64, yield func(*Change, error) bool) bool {
	ready, err := s.readAhead(ctx, revisions)
	if errors.As(err, new(*eventlog.DamageError)) {
		err = nil // those before the damaged one are read one by one
	}
	if err != nil {
		yield(nil, err)
		return false
	}
	for _, r := range revisions {
		c, err := s.change(ctx, v, r, ready)
		if anyOf && errors.Is(err, ErrForgotten) {
			continue
		}
		if !yield(c, err) || err != nil {
			return false
		}
		delete(ready, r) // the caller may be done with it
	}
	return true
}

// readAhead reads events, and those that have the last states of objects that were deleted together.
func (s *Store) readAhead(ctx context.Context, revisions []uint64) (events, error) {
	if len(revisions) == 1 {
		return nil, nil
	}
	ready, err := s.contents.readAhead(ctx, revisions)
	if err != nil {
		return nil, err
	}
	var before []uint64
	for r, e := range ready {
		if e != nil && e.Meta.GetBulk() != nil {
			if _, previous := objectOf(e.Meta, int(r-e.Revision)); previous != 0 {
				before = append(before, previous)
			}
		}
	}
	if len(before) == 0 {
		return ready, nil
	}
	more, err := s.contents.readAhead(ctx, before)
	for r, e := range more {
		ready[r] = e
	}
	return ready, err
}

// event returns the event of a revision, from those that have been read or from the log.
func (s *Store) event(ctx context.Context, revision uint64, ready events) (*eventlog.Event, error) {
	if e, read := ready[revision]; read {
		return e, nil
	}
	return s.contents.event(ctx, revision)
}

// change returns the change of a revision. The error is ErrForgotten if the log does not have it any more.
func (s *Store) change(ctx context.Context, v *view, revision uint64, ready events) (*Change, error) {
	e, err := s.event(ctx, revision, ready)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, forgotten(revision)
	}
	c := &Change{
		Revision: revision, Time: v.clocks.Time(revision, e.Time), Meta: e.Meta, Deleted: deletes(e.Meta),
		Request: e.Content(logpb.Role_ROLE_REQUEST), Kept: e.Content(logpb.Role_ROLE_KEPT),
	}
	c.Object, c.Previous = objectOf(e.Meta, int(revision-e.Revision))
	if e.Meta.GetBulk() == nil {
		c.Payload = e.Content(logpb.Role_ROLE_OBJECT)
		return c, nil
	}
	for previous := c.Previous; previous != 0; { // a bulk has no payloads: the objects are deleted as they were
		before, err := s.event(ctx, previous, ready)
		if err != nil || before == nil {
			return c, err
		}
		if before.Meta.GetBulk() == nil {
			c.Payload = before.Content(logpb.Role_ROLE_OBJECT)
			break
		}
		_, previous = objectOf(before.Meta, int(previous-before.Revision))
	}
	return c, nil
}
