package plans

import (
	"context"
	"errors"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/resources/plans/past"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/history"
)

// Record is a recorded write of an object, or a recorded refusal of one. It never changes.
type Record struct {
	*history.Change
	// Before is the object before the write, as it was stored; nil if there was none.
	Before []byte

	states  past.States     // of what rules read, before the write
	space   *space          // the namespace of the object, before the write; nil to ask for it
	refusal *eventlog.Event // nil for a write
}

// Records are the recorded writes of a span. They are safe for concurrent use.
type Records interface {
	// Span returns the first and the last revision of the span.
	Span() (since, until uint64)
	// Writes returns the writes of objects that requests made, the oldest first, with the states that rules read. It returns refusals
	// among them, at the revisions on which they were decided. They are sorted by these.
	Writes(ctx context.Context, read past.All, refusals []*eventlog.Event) iter.Seq2[*Record, error]
	// Namespace returns a namespace as it was at a revision; nil if it was not there.
	Namespace(ctx context.Context, name string, revision uint64) ([]byte, error)
}

// recorded has the writes of a server.
type recorded struct {
	history      *history.Store
	since, until uint64
}

// newRecords returns the records of a span that ends at a tip. complete is false if older writes of the span are not kept.
func newRecords(ctx context.Context, h *history.Store, tip *commit.Tip, span time.Duration) (r *recorded, complete bool, err error) {
	if err := h.Reach(ctx, tip.Revision()); err != nil {
		return nil, false, err
	}
	r = &recorded{history: h, until: tip.Revision()}
	before, err := h.RevisionAt(ctx, tip.Time.Add(-span))
	if errors.Is(err, history.ErrNone) {
		r.since = max(1, h.Oldest())
		return r, r.since == 1, nil
	}
	r.since = min(before+1, r.until)
	return r, true, err
}

func (r *recorded) Span() (since, until uint64) { return r.since, r.until }

// place is where an object is.
type place struct {
	schema.GroupResource
	namespace, name string
}

func placeOf(o *logpb.Object) place {
	return place{schema.GroupResource{Group: o.GetGroup(), Resource: o.GetResource()}, o.GetNamespace(), o.GetName()}
}

// bytesAtHand limits how much of the objects that were read stays in memory, for the next writes of them.
const bytesAtHand = 64 << 20

func (r *recorded) Writes(ctx context.Context, read past.All, refusals []*eventlog.Event) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		if err := read.Begin(ctx, r.history, r.since-1); err != nil {
			yield(nil, err)
			return
		}
		type version struct {
			revision uint64
			written  []byte
		}
		atHand, size := map[place]version{}, 0
		namespaces := spaces{}
		for c, err := range r.history.After(ctx, history.Filter{}, r.since-1, r.until) {
			if err != nil {
				yield(nil, err)
				return
			}
			if c.Object == nil {
				continue
			}
			at, states := placeOf(c.Object), read.States()
			for ; len(refusals) > 0 && decidedAt(refusals[0]) < c.Revision; refusals = refusals[1:] {
				if !yield(r.refusal(refusals[0], states), nil) {
					return
				}
			}
			namespace, err := namespaces.namespaceBefore(ctx, r.history, c)
			if err == nil {
				err = read.Follow(c)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			before := atHand[at]
			if before.revision != c.Previous || c.Previous == 0 {
				before = version{}
			}
			if size += len(c.Written()); size > bytesAtHand {
				clear(atHand)
				size = len(c.Written())
			}
			atHand[at] = version{c.Revision, c.Written()}
			if c.Meta.GetRequest().GetUri() == "" {
				continue // the server itself wrote it
			}
			if before.revision == 0 && c.Previous != 0 {
				was, err := r.history.Get(ctx, at.GroupResource, at.namespace, at.name, c.Previous)
				if err != nil && !errors.Is(err, history.ErrForgotten) {
					yield(nil, err)
					return
				}
				if err == nil && was != nil {
					before.written = was.Written()
				}
			}
			if !yield(&Record{Change: c, Before: before.written, states: states, space: namespace}, nil) {
				return
			}
		}
		for _, e := range refusals {
			if !yield(r.refusal(e, read.States()), nil) {
				return
			}
		}
	}
}

// decidedAt returns the revision on which a request was decided that wrote nothing.
func decidedAt(e *eventlog.Event) uint64 { return e.Meta.GetDecision().GetRevision() }

// refusal returns the record of a refusal. The states are those of the revision on which it was decided, if that is in the span.
func (r *recorded) refusal(e *eventlog.Event, states past.States) *Record {
	o := &Record{Change: undone(e), refusal: e}
	if at := decidedAt(e); at+1 >= r.since && at <= r.until {
		o.states = states
	}
	return o
}

// undone returns the change that a request would have made which wrote nothing.
func undone(e *eventlog.Event) *history.Change {
	o := e.Meta.GetObject()
	if namespaces := commit.Namespaces; o.GetNamespace() != "" && o.GetGroup() == namespaces.Group && o.GetResource() == namespaces.Resource {
		o = proto.CloneOf(o)
		o.Namespace = "" // the record has that of the request, which is the name
	}
	return &history.Change{Revision: decidedAt(e), Meta: e.Meta, Object: o}
}

func (r *recorded) Namespace(ctx context.Context, name string, revision uint64) ([]byte, error) {
	c, err := r.history.Get(ctx, commit.Namespaces, "", name, revision)
	if err != nil || c == nil || c.Deleted {
		return nil, err
	}
	return c.Payload, nil
}

// space is a namespace after one of its changes. It never changes.
type space struct {
	revision uint64
	payload  []byte // nil if it was not there
	lost     bool   // it has been erased
}

func spaceOf(c *history.Change) *space {
	switch {
	case c == nil || c.Deleted:
		return &space{}
	case c.Payload == nil:
		return &space{lost: true}
	}
	return &space{revision: c.Revision, payload: c.Written()}
}

// spaces are the namespaces of the records so far, by name.
type spaces map[string]*space

// namespaceBefore returns the namespace of an object before a change of it; nil if the object is in none. It follows the changes of namespaces.
func (s spaces) namespaceBefore(ctx context.Context, h *history.Store, c *history.Change) (*space, error) {
	name := c.Object.GetNamespace()
	if at := placeOf(c.Object); at.GroupResource == commit.Namespaces {
		s[at.name] = spaceOf(c)
		return nil, nil
	}
	if name == "" || c.Meta.GetRequest().GetUri() == "" {
		return nil, nil
	}
	if known := s[name]; known != nil {
		return known, nil
	}
	was, err := h.Get(ctx, commit.Namespaces, "", name, c.Revision-1)
	switch {
	case errors.Is(err, history.ErrForgotten):
		s[name] = &space{lost: true}
	case err != nil:
		return nil, err
	default:
		s[name] = spaceOf(was)
	}
	return s[name], nil
}
