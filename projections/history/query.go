package history

import (
	"context"
	"errors"
	"iter"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog/logpb"
)

// ErrNone reports a time or revision before the first event.
var ErrNone = errors.New("history: nothing had happened yet")

func (s *Store) reader(ctx context.Context) *reader {
	return &reader{s: s, ctx: ctx, view: s.view.Load()}
}

// Get returns an object's last change up to a revision, which may be a deletion; nil if there is none.
func (s *Store) Get(ctx context.Context, r schema.GroupResource, namespace, name string, at uint64) (*Change, error) {
	for c, err := range s.Versions(ctx, r, namespace, name, at) {
		return c, err
	}
	return nil, nil
}

// Versions yields the changes of all objects that ever had a name, from a revision on backwards, the
// newest first. It ends with an error if there is one.
func (s *Store) Versions(ctx context.Context, r schema.GroupResource, namespace, name string, from uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		reader := s.reader(ctx)
		upto := reader.upTo(from)
		reader.changes(func(yield func(seq) bool) {
			for newest := range reader.candidates(reader.prints.object(r, namespace, name)) {
				for at := reader.index.upTo(newest, upto); at != 0; at = reader.get(at).prev {
					if !yield(at) {
						return
					}
				}
			}
		}, func(o *logpb.Object) bool {
			return resourceOf(o) == r && o.GetNamespace() == namespace && o.GetName() == name
		}, yield)
	}
}

// List yields the objects of a resource that existed at a revision, each as its last change, in the order
// of these changes. A namespace of "" means all. It ends with an error if there is one.
func (s *Store) List(ctx context.Context, r schema.GroupResource, namespace string, at uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		reader := s.reader(ctx)
		upto := reader.upTo(at)
		f := Filter{Resource: r, Namespace: namespace}
		want := reader.sieve(f)
		reader.changes(func(yield func(seq) bool) {
			for at := seq(1); at <= upto; at++ {
				if e := reader.get(at); want.passes(e) && e.alive(upto) && !yield(at) {
					return
				}
			}
		}, f.matches, yield)
	}
}

// Filter selects changes; the zero Filter selects all.
type Filter struct {
	// Resource of the object, if it is not empty.
	Resource schema.GroupResource
	// Namespace and Name of the object, if they are not empty. A Name requires a Resource.
	Namespace, Name string
}

func (f *Filter) matches(o *logpb.Object) bool {
	if *f == (Filter{}) {
		return true
	}
	return o != nil && (f.Resource.Empty() || resourceOf(o) == f.Resource) &&
		(f.Namespace == "" || f.Namespace == o.GetNamespace()) && (f.Name == "" || f.Name == o.GetName())
}

// sieve is a Filter on fingerprints: an entry that does not pass does not match the Filter.
type sieve struct{ want, mask entry }

func (v *view) sieve(f Filter) (s sieve) {
	p := v.prints.object(f.Resource, f.Namespace, f.Name)
	if !f.Resource.Empty() {
		s.want.bits, s.mask.bits = p.resource, resourceMask
	}
	if f.Namespace != "" {
		s.want.space, s.mask.space = p.space, ^uint32(0)
	}
	if f.Name != "" {
		s.want.name, s.mask.name = p.name, ^uint32(0)
	}
	if f != (Filter{}) {
		s.mask.bits |= noObject
	}
	return s
}

func (s *sieve) passes(e *entry) bool {
	return e.bits&s.mask.bits == s.want.bits && e.space&s.mask.space == s.want.space && e.name&s.mask.name == s.want.name
}

// After yields the changes after a revision, up to and including upto, the oldest first. It ends with an
// error if there is one.
func (s *Store) After(ctx context.Context, f Filter, after, upto uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		reader := s.reader(ctx)
		want := reader.sieve(f)
		first, last := reader.upTo(after)+1, reader.upTo(upto)
		reader.changes(func(yield func(seq) bool) {
			for at := first; at <= last; at++ {
				if want.passes(reader.get(at)) && !yield(at) {
					return
				}
			}
		}, f.matches, yield)
	}
}

// Before yields the changes up to and including a revision, the newest first. It ends with an error if
// there is one.
func (s *Store) Before(ctx context.Context, f Filter, from uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		reader := s.reader(ctx)
		want := reader.sieve(f)
		reader.changes(func(yield func(seq) bool) {
			for at := reader.upTo(from); at > 0; at-- {
				if want.passes(reader.get(at)) && !yield(at) {
					return
				}
			}
		}, f.matches, yield)
	}
}

// At returns the change of a revision; nil if there is none, as in the gap before an epoch.
func (s *Store) At(ctx context.Context, revision uint64) (*Change, error) {
	reader := s.reader(ctx)
	if at, ok := reader.seq(revision); ok {
		return reader.change(at)
	}
	return nil, nil
}

// Time returns the log time of the last change up to a revision, or [ErrNone] if there is none.
func (s *Store) Time(ctx context.Context, revision uint64) (time.Time, error) {
	reader := s.reader(ctx)
	at := reader.upTo(revision)
	if at == 0 {
		return time.Time{}, ErrNone
	}
	record, err := reader.record(at)
	return reader.time(at, record.time), err
}

// RevisionAt returns the last revision whose log time is not after t, among those that the store has;
// [ErrNone] if there is none.
func (s *Store) RevisionAt(ctx context.Context, t time.Time) (uint64, error) {
	reader := s.reader(ctx)
	var err error
	later := func(at seq) bool {
		if err != nil {
			return true
		}
		var r record
		r, err = reader.record(at)
		return err != nil || reader.time(at, r.time).After(t)
	}
	// Search for the block first, so that few blocks are read.
	number := sort.Search(int(reader.view.blocks)+1, func(i int) bool {
		first := reader.generation.blocks.get(uint32(i)).first
		return first > reader.last || later(first)
	}) - 1
	if err != nil {
		return 0, err
	}
	if number < 0 {
		return 0, ErrNone
	}
	first, beyond := reader.generation.blocks.get(uint32(number)).first, reader.last+1
	if number < int(reader.view.blocks) {
		beyond = min(beyond, reader.generation.blocks.get(uint32(number)+1).first)
	}
	n := sort.Search(int(beyond-first), func(i int) bool { return later(first + seq(i)) })
	if err != nil {
		return 0, err
	}
	return reader.revision(first + seq(n) - 1), nil
}

// Oldest returns the oldest revision that queries may ask for.
func (s *Store) Oldest() uint64 { return 1 }

// Lost reports whether a revision was lost by a restore, and in which gap it lies.
func (s *Store) Lost(revision uint64) (Epoch, bool) {
	for _, e := range s.view.Load().epochs {
		if revision >= e.LostFrom && revision < e.Next {
			return e, true
		}
	}
	return Epoch{}, false
}
