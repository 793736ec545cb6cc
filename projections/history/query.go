package history

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
)

// ErrNone reports a time or revision before the first event.
var ErrNone = errors.New("history: nothing had happened yet")

// ErrForgotten reports a revision that is not kept any more: see [Store.Oldest] and [Store.OldestOf].
var ErrForgotten = errors.New("history: that revision is not kept any more")

func forgotten(revision uint64) error { return fmt.Errorf("%w: %d", ErrForgotten, revision) }

// Get returns an object's last change up to a revision, which may be a deletion; nil if there is none.
func (s *Store) Get(ctx context.Context, r schema.GroupResource, namespace, name string, at uint64) (*Change, error) {
	v := s.look()
	versions, err := v.versions(Filter{r, namespace, name}, 0, at, 1)
	// The version before the oldest change is kept, too. It may have been forgotten while it was read.
	if now := s.look(); err == nil && at+1 < max(now.oldest, now.resources[r].floors.Changes) {
		err = forgotten(at)
	}
	if err != nil || len(versions) == 0 {
		return nil, err
	}
	c, err := s.change(ctx, v, versions[0], nil)
	kept := at >= s.OldestOf(r) // asked after the read, which may have found out that the log forgot something
	if err == nil && c.Payload == nil && !c.Deleted && kept {
		return nil, nil // what superseded this version, below the floor, is erased
	}
	if errors.Is(err, ErrForgotten) && kept {
		if gone, damaged := v.deleted(r, namespace, name, versions[0]); gone || damaged != nil {
			return nil, damaged // a deletion below the floor, which nothing followed
		}
	}
	return c, err
}

// deleted reports whether a version of an object is its deletion.
func (v *view) deleted(r schema.GroupResource, namespace, name string, revision uint64) (is bool, err error) {
	key := appendRevision(appendVersions(nil, v.resources[r].number, name, namespace), ^revision)
	return is, v.read(prefixOptions(key), func(it *pebble.Iterator) error {
		is = it.First() && isDeletion(it.Value())
		return nil
	})
}

// Versions yields the changes of all objects that ever had a name, from a revision on backwards, the
// newest first. It ends with an error if there is one. It leaves out changes that are not kept any more.
func (s *Store) Versions(ctx context.Context, r schema.GroupResource, namespace, name string, from uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		v := s.look()
		s.changes(ctx, v, true, func(n int) (revisions []uint64, err error) {
			revisions, err = v.versions(Filter{r, namespace, name}, 0, from, n)
			if len(revisions) > 0 {
				from = revisions[len(revisions)-1] - 1
			}
			return revisions, err
		}, yield)
	}
}

// List yields the objects of a resource that existed at a revision, each as its last change, in the order
// of these changes. A namespace of "" means all. It ends with an error if there is one.
func (s *Store) List(ctx context.Context, r schema.GroupResource, namespace string, at uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		v := s.look()
		at = min(at, v.head.Revision)
		s.changes(ctx, v, false, func(int) ([]uint64, error) {
			all, err := v.living(r, namespace, at)
			if err == nil && at > 0 && at < s.OldestOf(r) { // perhaps while it was read
				err = forgotten(at)
			}
			at = 0
			return all, err
		}, yield)
	}
}

// Filter selects changes; the zero Filter selects all.
type Filter struct {
	// Resource of the object, if it is not empty.
	Resource schema.GroupResource
	// Namespace and Name of the object, if they are not empty. A Name requires a Resource.
	Namespace, Name string
}

// After yields the changes after a revision, up to and including upto, the oldest first. It ends with an
// error if there is one, [ErrForgotten] if a change is not kept any more. With the zero Filter, or before a
// revision of [Store.Forget], it leaves these out.
func (s *Store) After(ctx context.Context, f Filter, after, upto uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		v := s.look()
		upto = min(upto, v.head.Revision)
		s.changes(ctx, v, f == (Filter{}), v.pick(f, true, &after, &upto), yield)
	}
}

// Before yields the changes up to and including a revision, the newest first. It ends with an error if
// there is one. It leaves out changes that are not kept any more.
func (s *Store) Before(ctx context.Context, f Filter, from uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		v := s.look()
		after := uint64(0)
		from = min(from, v.head.Revision)
		s.changes(ctx, v, true, v.pick(f, false, &after, &from), yield)
	}
}

// At returns the change of a revision; nil if there is none, as in the gap before an epoch.
func (s *Store) At(ctx context.Context, revision uint64) (*Change, error) {
	v := s.look()
	if _, lost := v.lost(revision); lost || revision == 0 || revision > v.head.Revision {
		return nil, nil
	}
	c, err := s.change(ctx, v, revision, nil)
	if errors.Is(err, ErrForgotten) {
		return nil, nil
	}
	return c, err
}

// Time returns the log time of the last change up to a revision; [ErrNone] if there is none, and [ErrForgotten] if it is
// not kept any more.
func (s *Store) Time(ctx context.Context, revision uint64) (time.Time, error) {
	v := s.look()
	revision = min(revision, v.head.Revision)
	if gap, lost := v.lost(revision); lost {
		revision = gap.LostFrom - 1
	}
	if revision < v.oldest {
		return time.Time{}, ErrNone
	}
	e, err := s.contents.event(ctx, revision)
	if err != nil {
		return time.Time{}, err
	}
	if e != nil {
		return v.clocks.Time(revision, e.Time), nil
	}
	batches, err := s.o.Log.Back(ctx, revision, 1) // the event is not kept: the one before
	if s.learn(err) {
		return time.Time{}, fmt.Errorf("%w: %w", forgotten(revision), err) // which says what the oldest is
	}
	if err == nil && len(batches) == 0 {
		return time.Time{}, ErrNone
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("history: read the time of revision %d: %w", revision, err)
	}
	return v.clocks.Time(batches[0].First, batches[0].Time), nil
}

// RevisionAt returns the last revision whose log time is not after t, among those that the store has;
// [ErrNone] if there is none.
func (s *Store) RevisionAt(ctx context.Context, t time.Time) (uint64, error) {
	v := s.look()
	from, to, err := v.revisionsAround(t)
	if err != nil {
		return 0, err
	}
	last, err := eventlog.LastBefore(ctx, s.o.Log, v.clocks, from, to, t.Add(1))
	if err != nil || last > 0 {
		return last, err
	}
	if _, err := s.o.Log.Back(ctx, from, 1); err != nil && !s.learn(err) {
		return 0, err
	}
	return 0, ErrNone
}

// learn reports whether an error says that the log does not reach back to what was read. If so, [Store.Oldest] is now
// where the log begins. This is only in memory: a log that is repaired may reach back further after a start.
func (s *Store) learn(err error) bool {
	none := (*eventlog.ForgottenError)(nil)
	if !errors.As(err, &none) {
		return false
	}
	if x := s.visible.Load(); x != nil && x.view.Load().oldest <= none.Oldest.Revision {
		x.learned.Store(true)
		x.update(func(v *view) { v.oldest = max(v.oldest, min(none.Oldest.Revision+1, v.head.Revision)) })
	}
	return true
}

// revisionsAround returns the first and the last revision between which a time is, by the time index.
func (v *view) revisionsAround(t time.Time) (from, to uint64, err error) {
	if v.head.Revision < v.oldest {
		return 0, 0, ErrNone
	}
	from, to = v.oldest, v.head.Revision
	return from, to, v.read(prefixOptions([]byte{timeKey}), func(it *pebble.Iterator) error {
		sample := func(upTo uint64) (revision uint64, later bool) { // the newest sample up to a revision, and whether it is after t
			if !it.SeekLT(keyOfTime(upTo+1)) || len(it.Value()) != 8 {
				return 0, false
			}
			revision = revisionOf(it.Key())
			at := time.Unix(0, int64(binary.BigEndian.Uint64(it.Value())))
			return revision, v.clocks.Time(revision, at).After(t)
		}
		n := sort.Search(int(to-from)+1, func(i int) bool {
			_, later := sample(from + uint64(i))
			return later
		})
		to = min(to, from+uint64(n)) // the sample there is the first that is later
		if n > 0 {
			first, _ := sample(from + uint64(n) - 1)
			from = max(from, first)
		}
		return nil
	})
}

// Oldest returns the oldest revision that queries may ask for.
func (s *Store) Oldest() uint64 { return s.look().oldest }

// OldestOf returns the oldest revision at which objects of a resource can be read.
func (s *Store) OldestOf(r schema.GroupResource) uint64 {
	v := s.look()
	return max(v.oldest, v.resources[r].floors.Contents, (*s.raised.Load())[r])
}

// Lost reports whether a revision was lost by a restore, and in which gap it lies.
func (s *Store) Lost(revision uint64) (Epoch, bool) { return s.look().lost(revision) }

func (v *view) lost(revision uint64) (Epoch, bool) {
	for _, e := range v.epochs {
		if revision >= e.LostFrom && revision < e.Next {
			return e, true
		}
	}
	return Epoch{}, false
}

// living returns the revisions of the objects of a resource that existed at a revision.
func (v *view) living(r schema.GroupResource, namespace string, at uint64) (all []uint64, err error) {
	info, found := v.resources[r]
	if !found {
		return nil, nil
	}
	return all, v.read(nil, func(it *pebble.Iterator) error {
		all, err = living(it, appendScope(nil, info.number, namespace), at, nil)
		return err
	})
}

// versions returns the revisions of up to n versions of one object, after a revision and up to another, the
// newest first.
func (v *view) versions(f Filter, after, upto uint64, n int) (revisions []uint64, err error) {
	info, found := v.resources[f.Resource]
	if upto = min(upto, v.head.Revision); !found || upto <= after {
		return nil, nil
	}
	prefix := appendVersions(nil, info.number, f.Name, f.Namespace)
	return revisions, v.read(prefixOptions(prefix), func(it *pebble.Iterator) error {
		for more := it.SeekGE(appendRevision(prefix, ^upto)); more && len(revisions) < n; more = it.Next() {
			revision := revisionOfVersion(it.Key())
			if revision <= after {
				break
			}
			revisions = append(revisions, revision)
		}
		return nil
	})
}

// pick returns a function that returns the revisions of the next n changes or more that match a filter, after
// a revision and up to another, and none at the end. They ascend, or descend.
func (v *view) pick(f Filter, ascending bool, after, upto *uint64) func(n int) ([]uint64, error) {
	if f.Name != "" {
		return func(int) ([]uint64, error) {
			all, err := v.named(f, *after, *upto)
			if !ascending {
				slices.Reverse(all)
			}
			*upto = 0
			return all, err
		}
	}
	return func(n int) (revisions []uint64, err error) {
		if *upto <= *after {
			return nil, nil
		}
		if f == (Filter{}) {
			revisions = v.all(ascending, *after, *upto, n)
		} else if revisions, err = v.scoped(f, ascending, *after, *upto, n); err != nil {
			return nil, err
		}
		if len(revisions) > 0 && ascending {
			*after = revisions[len(revisions)-1]
		} else if len(revisions) > 0 {
			*upto = revisions[len(revisions)-1] - 1
		}
		return revisions, nil
	}
}

// all returns the next n revisions that the log has or had.
func (v *view) all(ascending bool, after, upto uint64, n int) (revisions []uint64) {
	after = max(after, v.oldest-1)
	for ; n > 0 && after < upto; n-- {
		at := upto
		if ascending {
			at = after + 1
		}
		if gap, lost := v.lost(at); lost && ascending {
			at = gap.Next
		} else if lost {
			at = gap.LostFrom - 1
		}
		if at <= after || at > upto {
			break
		}
		revisions = append(revisions, at)
		if ascending {
			after = at
		} else {
			upto = at - 1
		}
	}
	return revisions
}

// scoped returns the revisions of the next n changes of a resource, of a namespace, or of both.
func (v *view) scoped(f Filter, ascending bool, after, upto uint64, n int) (revisions []uint64, err error) {
	in := v.resources
	if info, found := v.resources[f.Resource]; found {
		in = map[schema.GroupResource]resource{f.Resource: info}
	} else if !f.Resource.Empty() {
		return nil, nil
	}
	err = v.read(nil, func(it *pebble.Iterator) error {
		for _, info := range in {
			scope := appendScope(nil, info.number, f.Namespace)
			it.SetBounds(newKey(changeKey, scope, max(after+1, info.floors.Changes)), newKey(changeKey, scope, upto+1))
			next := it.Prev
			more := false
			if ascending {
				more, next = it.First(), it.Next
			} else {
				more = it.Last()
			}
			for i := 0; more && i < n; i++ {
				revisions = append(revisions, revisionOf(it.Key()))
				more = next()
			}
		}
		return nil
	})
	slices.Sort(revisions)
	if !ascending {
		slices.Reverse(revisions)
	}
	return revisions[:min(n, len(revisions))], err
}

// named returns the revisions of all changes of objects with a name, in a namespace or in any, ascending.
func (v *view) named(f Filter, after, upto uint64) (revisions []uint64, err error) {
	info, found := v.resources[f.Resource]
	if after = max(after+1, info.floors.Changes) - 1; !found || upto <= after {
		return nil, nil
	}
	if f.Namespace != "" {
		revisions, err = v.versions(f, after, upto, math.MaxInt)
		slices.Reverse(revisions)
		return revisions, err
	}
	err = v.read(prefixOptions(appendNamed(nil, info.number, f.Name)), func(it *pebble.Iterator) error {
		for it.First(); it.Valid(); it.Next() {
			if r := revisionOfVersion(it.Key()); after < r && r <= upto {
				revisions = append(revisions, r)
			}
		}
		return nil
	})
	slices.Sort(revisions)
	return revisions, err
}
