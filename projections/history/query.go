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

// ErrNone reports a moment before the first event.
var ErrNone = errors.New("history: nothing had happened yet")

func (s *Store) reader(ctx context.Context) *reader {
	return &reader{s: s, ctx: ctx, view: s.view.Load()}
}

// Get returns the newest change of an object at a revision or before, which may be that it
// was deleted; nil if there had been none of that name.
func (s *Store) Get(ctx context.Context, r schema.GroupResource, namespace, name string, at uint64) (*Change, error) {
	for c, err := range s.Versions(ctx, r, namespace, name, at) {
		return c, err
	}
	return nil, nil
}

// Versions yields the changes of the objects that had a name one after the other, from a
// revision on back, the newest first. It ends with an error if there is one.
func (s *Store) Versions(ctx context.Context, r schema.GroupResource, namespace, name string, from uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		reader := s.reader(ctx)
		upto := reader.upTo(from)
		reader.changes(func(yield func(seq) bool) {
			for newest := range reader.candidates(reader.prints.object(r, namespace, name)) {
				for at := reader.index.upTo(newest, upto); at != 0; at = reader.at(at).prev {
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

// List yields the objects of a resource that there were at a revision, each as its last
// change, in the order of those. A namespace of "" means all. It ends with an error if there
// is one.
func (s *Store) List(ctx context.Context, r schema.GroupResource, namespace string, at uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		reader := s.reader(ctx)
		upto := reader.upTo(at)
		f := Filter{Resource: r, Namespace: namespace}
		want := reader.sieve(f)
		reader.changes(func(yield func(seq) bool) {
			for at := seq(1); at <= upto; at++ {
				if e := reader.at(at); want.passes(e) && e.alive(upto) && !yield(at) {
					return
				}
			}
		}, f.matches, yield)
	}
}

// Filter says which changes are meant; the zero Filter means all.
type Filter struct {
	// Resource, if it is not empty: changes of its objects.
	Resource schema.GroupResource
	// Namespace and Name of the object, where they are not empty; a Name only with a Resource.
	Namespace, Name string
}

func (f *Filter) matches(o *logpb.Object) bool {
	if *f == (Filter{}) {
		return true
	}
	return o != nil && (f.Resource.Empty() || resourceOf(o) == f.Resource) &&
		(f.Namespace == "" || f.Namespace == o.GetNamespace()) && (f.Name == "" || f.Name == o.GetName())
}

// sieve is what fingerprints tell of a Filter: what does not pass does not match.
type sieve struct{ want, of entry }

func (v *view) sieve(f Filter) (s sieve) {
	p := v.prints.object(f.Resource, f.Namespace, f.Name)
	if !f.Resource.Empty() {
		s.want.bits, s.of.bits = p.resource, resourceMask
	}
	if f.Namespace != "" {
		s.want.space, s.of.space = p.space, ^uint32(0)
	}
	if f.Name != "" {
		s.want.name, s.of.name = p.name, ^uint32(0)
	}
	if f != (Filter{}) {
		s.of.bits |= noObject
	}
	return s
}

func (s *sieve) passes(e *entry) bool {
	return e.bits&s.of.bits == s.want.bits && e.space&s.of.space == s.want.space && e.name&s.of.name == s.want.name
}

// After yields the changes behind a revision up to another one, that included, the oldest
// first. It ends with an error if there is one.
func (s *Store) After(ctx context.Context, f Filter, after, upto uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		reader := s.reader(ctx)
		want := reader.sieve(f)
		first, last := reader.upTo(after)+1, reader.upTo(upto)
		reader.changes(func(yield func(seq) bool) {
			for at := first; at <= last; at++ {
				if want.passes(reader.at(at)) && !yield(at) {
					return
				}
			}
		}, f.matches, yield)
	}
}

// Before yields the changes at a revision or before, the newest first. It ends with an error
// if there is one.
func (s *Store) Before(ctx context.Context, f Filter, from uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		reader := s.reader(ctx)
		want := reader.sieve(f)
		reader.changes(func(yield func(seq) bool) {
			for at := reader.upTo(from); at > 0; at-- {
				if want.passes(reader.at(at)) && !yield(at) {
					return
				}
			}
		}, f.matches, yield)
	}
}

// At is the change of a revision; nil if there is none, as in the gap before an epoch.
func (s *Store) At(ctx context.Context, revision uint64) (*Change, error) {
	reader := s.reader(ctx)
	if at, ok := reader.seq(revision); ok {
		return reader.change(at)
	}
	return nil, nil
}

// Time is the log time of the last change at a revision or before. [ErrNone] if there is none.
func (s *Store) Time(ctx context.Context, revision uint64) (time.Time, error) {
	reader := s.reader(ctx)
	at := reader.upTo(revision)
	if at == 0 {
		return time.Time{}, ErrNone
	}
	record, err := reader.record(at)
	return reader.time(at, record.time), err
}

// RevisionAt is the last revision whose log time is not after a moment, among those that
// the store has come to. [ErrNone] if there is none.
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
	// The block first, so that few are read.
	number := sort.Search(int(reader.view.blocks)+1, func(i int) bool {
		first := reader.kept.blocks.at(uint32(i)).first
		return first > reader.last || later(first)
	}) - 1
	if err != nil {
		return 0, err
	}
	if number < 0 {
		return 0, ErrNone
	}
	first, beyond := reader.kept.blocks.at(uint32(number)).first, reader.last+1
	if number < int(reader.view.blocks) {
		beyond = min(beyond, reader.kept.blocks.at(uint32(number)+1).first)
	}
	n := sort.Search(int(beyond-first), func(i int) bool { return later(first + seq(i)) })
	if err != nil {
		return 0, err
	}
	return reader.revision(first + seq(n) - 1), nil
}

// Oldest is the first revision that can be asked for.
func (s *Store) Oldest() uint64 { return 1 }

// Lost tells whether a revision was issued before a restore and is not part of this history,
// and in which gap it lies.
func (s *Store) Lost(revision uint64) (Epoch, bool) {
	for _, e := range s.view.Load().epochs {
		if revision >= e.LostFrom && revision < e.Next {
			return e, true
		}
	}
	return Epoch{}, false
}
