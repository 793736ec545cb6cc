package history

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	"github.com/cockroachdb/pebble/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Floors say since which revision the past of a resource is kept; 0 means all of it.
type Floors struct {
	// Contents is the oldest revision at which objects can be read. Contents that only earlier revisions need
	// may have been erased from the log.
	Contents uint64
	// Changes is the oldest revision whose changes are known, with or without contents; at most Contents. What
	// was superseded before may have been erased from the log as a whole.
	Changes uint64
}

// Forget raises the floors of a resource. From then on its objects can be read since Contents only. Lower floors
// than the present ones change nothing. What is below is removed from the index, which does not need it from the
// log any more once Forget has returned without an error, also after a crash: the versions that were superseded
// before Changes, the deletions and the changes before it, and lists of what existed that only revisions before
// Contents need. An object's last version before a floor stays.
//
// If the store has not reached the floors yet, they hold, but nothing is removed; the caller does it again later.
// An index that is made again from the log has no floors: the caller raises them again after a start. Errors are
// those of the context, and [ErrBehind] while the index is being made again.
func (s *Store) Forget(ctx context.Context, r schema.GroupResource, floors Floors) error {
	if floors.Changes > floors.Contents {
		return fmt.Errorf("history: changes of %s since revision %d need contents, which are kept since %d", r, floors.Changes, floors.Contents)
	}
	s.forgetting.Lock()
	defer s.forgetting.Unlock()
	if raised := *s.raised.Load(); floors.Contents > raised[r] {
		raised = maps.Clone(raised)
		raised[r] = floors.Contents
		s.raised.Store(&raised)
	}
	v := s.look()
	if floors.Contents > v.head.Revision {
		return nil
	}
	return v.forget(ctx, r, floors)
}

// forget raises the floors of a resource, and removes what is below them.
func (v *view) forget(ctx context.Context, r schema.GroupResource, to Floors) error {
	info, found := v.resources[r]
	to = Floors{max(to.Contents, info.floors.Contents), max(to.Changes, info.floors.Changes)}
	if !found || to == info.floors {
		return nil
	}
	f := &forgetter{view: v, number: info.number, floors: to, batch: v.db.NewBatch()}
	if err := f.batch.Set(keyOfFloor(info.number), appendRevision(appendRevision(nil, to.Contents), to.Changes), nil); err != nil {
		return err
	}
	// Queries hear of the floors before anything is removed. A query checks them when it has read.
	v.update(func(v *view) { v.set(r, resource{info.number, to}) })
	if err := f.scopes(ctx); err != nil {
		return err
	}
	if to.Changes > info.floors.Changes {
		if err := f.versions(ctx); err != nil {
			return err
		}
	}
	if err := f.commit(ctx); err != nil {
		return err
	}
	return v.flush(ctx)
}

// ForgetAll raises [Store.Oldest]: the log has forgotten, or is about to forget, everything before a revision.
// The floors of all resources are raised to it. Errors are as for [Store.Forget].
func (s *Store) ForgetAll(ctx context.Context, oldest uint64) error {
	s.forgetting.Lock()
	defer s.forgetting.Unlock()
	v := s.look()
	if oldest > v.head.Revision {
		return fmt.Errorf("%w: it has reached revision %d, not yet %d", ErrBehind, v.head.Revision, oldest)
	}
	if oldest < v.oldest || oldest == v.oldest && !v.learned.Load() {
		return nil
	}
	for r := range v.resources {
		if err := v.forget(ctx, r, Floors{oldest, oldest}); err != nil {
			return err
		}
	}
	v.update(func(v *view) { v.oldest = max(v.oldest, oldest) })
	f := &forgetter{view: v, batch: v.db.NewBatch()}
	if err := f.batch.Set(oldestName, appendRevision(nil, oldest), nil); err != nil {
		return err
	}
	if err := f.samples(oldest); err != nil {
		return err
	}
	if err := f.commit(ctx); err != nil {
		return err
	}
	return v.flush(ctx)
}

// forgetter removes what is below floors. It is used by one goroutine.
type forgetter struct {
	*view
	number uint64
	floors Floors
	batch  *pebble.Batch
}

// atATime is how many keys are read before readers and writers get a turn.
const atATime = 4096

// walk calls visit with all keys with a prefix, in order, and commits between them what visit removes.
func (f *forgetter) walk(ctx context.Context, prefix []byte, visit func(*pebble.Iterator) error) error {
	for from := prefix; from != nil; {
		bounds := &pebble.IterOptions{LowerBound: from, UpperBound: end(prefix)}
		err := f.read(bounds, func(it *pebble.Iterator) error {
			more := it.First()
			for n := 0; more && n < atATime; n++ {
				if err := visit(it); err != nil {
					return err
				}
				more = it.Next()
			}
			if from = nil; more {
				from = bytes.Clone(it.Key())
			}
			return nil
		})
		if err != nil {
			return err
		}
		if f.batch.Len() >= atOnceBytes {
			if err := f.commit(ctx); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// versions removes the versions that were superseded before the floor of changes, and deletions before it that
// nothing followed.
func (f *forgetter) versions(ctx context.Context) error {
	prefix := appendScope([]byte{versionKey}, f.number, "")
	prefix = prefix[:len(prefix)-1]
	var newer []byte // the key before, of the next version if the name is the same
	return f.walk(ctx, prefix, func(it *pebble.Iterator) error {
		key := it.Key()
		superseded := len(newer) == len(key) && bytes.Equal(newer[:len(key)-8], key[:len(key)-8]) && revisionOfVersion(newer) < f.floors.Changes
		gone := revisionOfVersion(key) < f.floors.Changes && isDeletion(it.Value())
		newer = append(newer[:0], key...)
		if superseded || gone {
			return f.batch.Delete(key, nil)
		}
		return nil
	})
}

// scopes removes, from the resource and from each of its namespaces, the bases before the newest one up to the
// floor of contents, and the changes before both that base and the floor of changes. The change with the base
// stays, so the newest change always does.
func (f *forgetter) scopes(ctx context.Context) error {
	prefix := appendScope([]byte{baseKey}, f.number, "")
	prefix = prefix[:len(prefix)-1]
	var newest []byte // the newest base up to the floor in the scope before the present key
	remove := func() error {
		if newest == nil {
			return nil
		}
		in, revision := newest[1:len(newest)-10], revisionOf(newest[:len(newest)-2])
		newest = nil
		if err := f.batch.DeleteRange(newKey(baseKey, in, 0), newKey(baseKey, in, revision), nil); err != nil {
			return err
		}
		return f.batch.DeleteRange(newKey(changeKey, in, 0), newKey(changeKey, in, min(revision, f.floors.Changes)), nil)
	}
	err := f.walk(ctx, prefix, func(it *pebble.Iterator) error {
		key := it.Key()
		if newest != nil && !isOfBase(key, newest[1:len(newest)-10]) {
			if err := remove(); err != nil {
				return err
			}
		}
		if revisionOf(key[:len(key)-2]) <= f.floors.Contents {
			newest = bytes.Clone(key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return remove()
}

// samples removes the entries of the time index before the newest one up to a revision.
func (f *forgetter) samples(upto uint64) error {
	return f.read(prefixOptions([]byte{timeKey}), func(it *pebble.Iterator) error {
		if !it.SeekLT(keyOfTime(upto + 1)) {
			return nil
		}
		return f.batch.DeleteRange(keyOfTime(0), bytes.Clone(it.Key()), nil)
	})
}

// commit removes from the index what has been gathered. It waits for a full disk.
func (f *forgetter) commit(ctx context.Context) error {
	select {
	case <-f.disk.Working():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f.using.RLock()
	defer f.using.RUnlock()
	if f.closed {
		return errGone
	}
	if err := f.db.Apply(f.batch, pebble.NoSync); err != nil {
		return f.bad(err)
	}
	f.batch = f.db.NewBatch()
	return nil
}
