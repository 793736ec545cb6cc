package history_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// tape is a log in memory to which tests write, including epochs.
type tape struct {
	// atOnce is the maximum number of batches that Next returns; 0 means all.
	atOnce int

	mu      sync.Mutex
	id      eventlog.ID
	tip     eventlog.Head
	now     time.Time
	batches []*eventlog.Batch
	grown   chan struct{}
	kept    int // the index of the oldest batch that has not been forgotten
}

func newTape(id byte) *tape {
	t := &tape{id: eventlog.ID{id}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), grown: make(chan struct{})}
	t.tip = t.start()
	return t
}

func (t *tape) start() eventlog.Head { return eventlog.Head{Log: t.id} }

// write appends a batch.
func (t *tape) write(events ...*eventlog.Event) *eventlog.Batch {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := &eventlog.Batch{Log: t.id, Epoch: t.tip.Epoch, First: t.tip.Revision + 1, Previous: t.tip.Hash, Time: t.now, Events: events}
	if started := events[0].Meta.GetEpochStarted(); started != nil {
		b.Epoch, b.First = b.Epoch+1, started.GetNext()
	}
	sum := sha256.New()
	sum.Write(t.tip.Hash[:])
	for _, e := range events {
		e.Revision, e.Time = b.First+b.Revisions, b.Time
		b.Revisions += e.Span()
		meta, _ := proto.Marshal(e.Meta)
		sum.Write(binary.BigEndian.AppendUint64(meta, b.Revisions))
	}
	sum.Sum(b.Hash[:0])
	t.batches = append(t.batches, b)
	t.tip = b.Head()
	close(t.grown)
	t.grown = make(chan struct{})
	return b
}

// position returns the index of a revision's batch, or the one that it would have.
func (t *tape) position(revision uint64) int {
	return sort.Search(len(t.batches), func(i int) bool { return t.batches[i].First >= revision })
}

func (t *tape) Next(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	for {
		t.mu.Lock()
		grown := t.grown
		batches, err := t.following(after)
		t.mu.Unlock()
		if err != nil || len(batches) > 0 {
			return batches, err
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *tape) following(after eventlog.Head) ([]*eventlog.Batch, error) {
	i := t.position(after.Revision + 1)
	before := t.start()
	if i < t.kept {
		return nil, &eventlog.ForgottenError{Oldest: t.batches[t.kept-1].Head()}
	}
	if i > 0 {
		before = t.batches[i-1].Head()
	}
	if i == len(t.batches) && t.tip.Revision > after.Revision { // as [eventlog.Log] has it
		return nil, &eventlog.CorruptError{Revision: after.Revision + 1, Reason: "it is missing"}
	}
	if before != after {
		return nil, fmt.Errorf("%w: at %v", eventlog.ErrDiverged, after)
	}
	batches := t.batches[i:len(t.batches):len(t.batches)]
	if t.atOnce > 0 {
		batches = batches[:min(t.atOnce, len(batches))]
	}
	return batches, nil
}

func (t *tape) CatchUp(_ context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.following(after)
}

func (t *tape) Back(_ context.Context, from uint64, most int) ([]*eventlog.Batch, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.position(from + 1)
	if i > 0 && i <= t.kept {
		return nil, &eventlog.ForgottenError{Oldest: t.batches[t.kept-1].Head()}
	}
	back := slices.Clone(t.batches[max(t.kept, i-most):i])
	slices.Reverse(back)
	return back, nil
}

// forget makes a batch the oldest one that is kept, and returns its first revision.
func (t *tape) forget(before int) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = before
	return t.batches[before].First
}

// cut returns the log up to a batch, as in a backup.
func (t *tape) cut(batches int) *tape {
	c := newTape(t.id[0])
	c.now = t.now
	c.batches = slices.Clone(t.batches[:batches])
	c.tip = c.batches[batches-1].Head()
	return c
}

// author writes random changes, and records them in the model.
type author struct {
	*rand.Rand
	*tape
	model naive
	// living objects, by the revision of their last change.
	living map[place]uint64
	places []place // that there may be objects in
}

func newAuthor(t *tape, seed uint64) *author {
	a := &author{Rand: rand.New(rand.NewPCG(seed, 1)), tape: t, living: map[place]uint64{}}
	for _, r := range []schema.GroupResource{{Resource: "pods"}, {Group: "apps", Resource: "pods"}, {Resource: "nodes"}, {Group: "example.com", Resource: "widgets"}} {
		for name := range 12 {
			p := place{r, fmt.Sprint("ns-", a.IntN(3)), fmt.Sprint("n-", name)}
			if r.Resource == "nodes" {
				p.namespace = ""
			}
			a.places = append(a.places, p)
		}
	}
	a.commit(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_LOG_CREATED, Detail: &logpb.Metadata_LogCreated{LogCreated: &logpb.LogCreated{BatchLimit: 1}}}})
	return a
}

func (a *author) commit(events ...*eventlog.Event) *eventlog.Batch {
	b := a.write(events...)
	a.know(b)
	return b
}

// know records a change in the model, and which objects exist.
func (a *author) know(b *eventlog.Batch) {
	a.model.apply(b)
	for _, c := range a.model.changes[len(a.model.changes)-min(len(a.model.changes), int(b.Revisions)):] {
		if c.Revision >= b.First && c.Object != nil {
			if a.living[placeOf(c.Object)] = c.Revision; c.Deleted {
				delete(a.living, placeOf(c.Object))
			}
		}
	}
}

// bytes returns random bytes, which do not compress well.
func (a *author) bytes(most int) []byte {
	b := make([]byte, a.IntN(most))
	for i := range b {
		b[i] = "0123456789abcdef"[a.IntN(16)]
	}
	return b
}

// writes appends batches.
func (a *author) writes(batches int) {
	for range batches {
		a.tape.now = a.tape.now.Add(time.Duration(a.IntN(3)) * time.Second)
		if a.IntN(80) == 0 {
			next := a.tip.Revision + 1 + a.Uint64N(1000)
			a.commit(&eventlog.Event{Meta: &logpb.Metadata{
				Type: logpb.Type_TYPE_EPOCH_STARTED, Detail: &logpb.Metadata_EpochStarted{EpochStarted: &logpb.EpochStarted{LostFrom: a.tip.Revision + 1, Next: next}},
			}})
			continue
		}
		if a.IntN(80) == 0 { // a clock that was ahead for the last batches
			a.tape.now = a.tape.now.Add(-time.Duration(a.IntN(5)) * time.Second)
			a.commit(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CLOCK_SET, Detail: &logpb.Metadata_ClockSet{ClockSet: &logpb.ClockSet{}}}})
			continue
		}
		var events []*eventlog.Event
		touched := map[place]bool{} // one change of an object in a batch: its previous revision is known
		for range 1 + a.IntN(5) {
			if e := a.event(touched); e != nil {
				events = append(events, e)
			}
		}
		if len(events) > 0 {
			a.commit(events...)
		}
	}
}

func (a *author) event(touched map[place]bool) *eventlog.Event {
	switch a.IntN(20) {
	case 0:
		return &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_POLICY_ACTIVATED, Detail: &logpb.Metadata_PolicyActivated{PolicyActivated: &logpb.PolicyActivated{Digest: a.bytes(20)}}}}
	case 1:
		bulk := &logpb.Bulk{}
		for _, p := range a.places {
			if revision := a.living[p]; revision != 0 && !touched[p] && a.IntN(6) == 0 {
				touched[p] = true
				bulk.Objects = append(bulk.Objects, &logpb.BulkObject{Object: a.object(p), PreviousRevision: revision})
			}
		}
		if len(bulk.Objects) == 0 {
			return nil
		}
		return &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_BULK_DELETED, Span: uint32(len(bulk.Objects)), Detail: &logpb.Metadata_Bulk{Bulk: bulk}}}
	}
	p := a.places[a.IntN(len(a.places))]
	if touched[p] {
		return nil
	}
	touched[p] = true
	e := &eventlog.Event{Meta: &logpb.Metadata{Object: a.object(p), PreviousRevision: a.living[p], Actor: &logpb.Actor{User: string(a.bytes(10))}}}
	switch {
	case a.living[p] == 0:
		e.Meta.Type = logpb.Type_TYPE_CREATED
	case a.IntN(4) == 0:
		e.Meta.Type = logpb.Type_TYPE_DELETED
	default:
		e.Meta.Type = logpb.Type_TYPE_UPDATED
	}
	most := 2000
	if a.IntN(100) == 0 {
		most = 100_000
	}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, a.bytes(most))
	switch a.IntN(10) {
	case 0: // what was redacted is gone
		e.Contents[0] = nil
	case 1, 2:
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_REQUEST}, a.bytes(300))
	case 3:
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_KEPT}, a.bytes(300))
	}
	return e
}

func (a *author) object(p place) *logpb.Object {
	return &logpb.Object{Group: p.Group, Resource: p.Resource, Namespace: p.namespace, Name: p.name, Uid: string(a.bytes(36)), Version: "v1", Kind: "K"}
}
