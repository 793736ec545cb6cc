// Package history is the projection that answers for the past: every version of every
// object, and what each revision changed. It follows the log by itself, behind the
// committer, so that writes never wait for it.
package history

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sort"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// Change is what one revision did. It never changes and is safe for concurrent use.
type Change struct {
	Revision uint64
	Time     time.Time // log time
	// Meta is the metadata of the event; all changes of a bulk share it.
	Meta *logpb.Metadata
	// Object that was changed; nil if the change was about none.
	Object *logpb.Object
	// Previous is the revision of the version before; 0 if the object was new.
	Previous uint64
	Deleted  bool
	// Payload is the object after the change, as JSON without resourceVersion; of a deleted
	// object its last state. nil if it is gone, or there is no object.
	Payload []byte
	// Request is the body of the request, where the object is not what that asked for.
	Request []byte
}

// Store answers for the past up to the revision that it has come to. All methods are safe
// for concurrent use; Run belongs to one goroutine.
type Store struct {
	log    eventlog.Reader
	logger *slog.Logger

	mu      sync.Mutex
	at      eventlog.Head
	changes []*Change // ascending by revision
	keys    map[objectKey][]*Change
	epochs  []Epoch
	grown   chan struct{} // closed, and replaced, when there is more
}

type objectKey struct {
	schema.GroupResource
	namespace, name string
}

// Epoch is a new history after a restore: revisions from LostFrom up to Next, that one
// excluded, were lost.
type Epoch struct{ LostFrom, Next uint64 }

// Options for [Open].
type Options struct {
	// Dir is the folder for what does not fit into memory.
	Dir string
	Log eventlog.Reader
	// Start is the position before the log's first batch.
	Start  eventlog.Head
	Logger *slog.Logger
}

// Open makes a store that Run fills.
func Open(o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Store{log: o.Log, logger: o.Logger, at: o.Start, keys: map[objectKey][]*Change{}, grown: make(chan struct{})}, nil
}

// Close frees what the store holds, once Run has ended.
func (s *Store) Close() error { return nil }

// Run follows the log until the context ends, or the log cannot be followed any further.
func (s *Store) Run(ctx context.Context) error {
	for {
		batches, err := s.log.Next(ctx, s.at)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case eventlog.IsFatal(err):
			return fmt.Errorf("history: %w", err)
		case err != nil: // the backend is away
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s.mu.Lock()
		for _, b := range batches {
			for _, e := range b.Events {
				s.apply(e)
			}
			s.at = b.Head()
		}
		close(s.grown)
		s.grown = make(chan struct{})
		s.mu.Unlock()
	}
}

func (s *Store) apply(e *eventlog.Event) {
	m := e.Meta
	if started := m.GetEpochStarted(); started != nil {
		s.epochs = append(s.epochs, Epoch{started.GetLostFrom(), started.GetNext()})
	}
	if bulk := m.GetBulk(); bulk != nil {
		for i, g := range bulk.GetObjects() {
			c := &Change{Revision: e.Revision + uint64(i), Time: e.Time, Meta: m, Object: g.GetObject(), Previous: g.GetPreviousRevision(), Deleted: true}
			if versions := s.keys[keyOf(c.Object)]; len(versions) > 0 {
				c.Payload = versions[len(versions)-1].Payload
			}
			s.add(c)
		}
		return
	}
	s.add(&Change{
		Revision: e.Revision, Time: e.Time, Meta: m, Object: m.GetObject(), Previous: m.GetPreviousRevision(), Deleted: m.GetType() == logpb.Type_TYPE_DELETED,
		Payload: e.Content(logpb.Role_ROLE_OBJECT), Request: e.Content(logpb.Role_ROLE_REQUEST),
	})
}

func keyOf(o *logpb.Object) objectKey {
	return objectKey{schema.GroupResource{Group: o.GetGroup(), Resource: o.GetResource()}, o.GetNamespace(), o.GetName()}
}

func (s *Store) add(c *Change) {
	s.changes = append(s.changes, c)
	if c.Object != nil {
		k := keyOf(c.Object)
		s.keys[k] = append(s.keys[k], c)
	}
}

// Revision that the store has come to. Questions about later ones are for after [Store.Wait].
func (s *Store) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at.Revision
}

// Wait returns when the store has come to a revision, or the context ends.
func (s *Store) Wait(ctx context.Context, revision uint64) error {
	for {
		s.mu.Lock()
		done, grown := s.at.Revision >= revision, s.grown
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ErrNone reports a moment before the first event.
var ErrNone = errors.New("history: nothing had happened yet")

func (s *Store) all() []*Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

// upTo are the changes up to a revision.
func upTo(changes []*Change, revision uint64) []*Change {
	return changes[:sort.Search(len(changes), func(i int) bool { return changes[i].Revision > revision })]
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
// revision on back, the newest first.
func (s *Store) Versions(_ context.Context, r schema.GroupResource, namespace, name string, from uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		s.mu.Lock()
		versions := upTo(s.keys[objectKey{r, namespace, name}], from)
		s.mu.Unlock()
		for _, c := range slices.Backward(versions) {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// List yields the objects of a resource that there were at a revision, each as its last
// change, in no particular order. A namespace of "" means all.
func (s *Store) List(_ context.Context, r schema.GroupResource, namespace string, at uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		last := map[objectKey]*Change{}
		for _, c := range upTo(s.all(), at) {
			if c.Object != nil && c.Object.GetGroup() == r.Group && c.Object.GetResource() == r.Resource && (namespace == "" || namespace == c.Object.GetNamespace()) {
				last[keyOf(c.Object)] = c
			}
		}
		for _, c := range last {
			if !c.Deleted && !yield(c, nil) {
				return
			}
		}
	}
}

// Filter says which changes are meant; the zero Filter means all.
type Filter struct {
	// Resource, if it is not empty: changes of its objects.
	Resource schema.GroupResource
	// Namespace and Name of the object, where they are not empty; a Name only with a Resource.
	Namespace, Name string
}

func (f *Filter) matches(c *Change) bool {
	o := c.Object
	if *f == (Filter{}) {
		return true
	}
	return o != nil && (f.Resource.Empty() || o.GetGroup() == f.Resource.Group && o.GetResource() == f.Resource.Resource) &&
		(f.Namespace == "" || f.Namespace == o.GetNamespace()) && (f.Name == "" || f.Name == o.GetName())
}

// After yields the changes behind a revision up to another one, that included, the oldest
// first.
func (s *Store) After(_ context.Context, f Filter, after, upto uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		for _, c := range upTo(s.all(), upto) {
			if c.Revision > after && f.matches(c) && !yield(c, nil) {
				return
			}
		}
	}
}

// Before yields the changes at a revision or before, the newest first.
func (s *Store) Before(_ context.Context, f Filter, from uint64) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		for _, c := range slices.Backward(upTo(s.all(), from)) {
			if f.matches(c) && !yield(c, nil) {
				return
			}
		}
	}
}

// At is the change of a revision; nil if there is none, as in the gap before an epoch.
func (s *Store) At(_ context.Context, revision uint64) (*Change, error) {
	changes := upTo(s.all(), revision)
	if n := len(changes); n > 0 && changes[n-1].Revision == revision {
		return changes[n-1], nil
	}
	return nil, nil
}

// Time is the log time of the last change at a revision or before. [ErrNone] if there is none.
func (s *Store) Time(_ context.Context, revision uint64) (time.Time, error) {
	changes := upTo(s.all(), revision)
	if len(changes) == 0 {
		return time.Time{}, ErrNone
	}
	return changes[len(changes)-1].Time, nil
}

// RevisionAt is the last revision whose log time is not after a moment, among those that
// the store has come to. [ErrNone] if there is none.
func (s *Store) RevisionAt(_ context.Context, t time.Time) (uint64, error) {
	changes := s.all()
	n := sort.Search(len(changes), func(i int) bool { return changes[i].Time.After(t) })
	if n == 0 {
		return 0, ErrNone
	}
	return changes[n-1].Revision, nil
}

// Oldest is the first revision that can be asked for.
func (s *Store) Oldest() uint64 { return 1 }

// Lost tells whether a revision was issued before a restore and is not part of this history,
// and in which gap it lies.
func (s *Store) Lost(revision uint64) (Epoch, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.epochs {
		if revision >= e.LostFrom && revision < e.Next {
			return e, true
		}
	}
	return Epoch{}, false
}
