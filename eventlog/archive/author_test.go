package archive_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
)

// author writes a random log with every kind of event. batches is the oracle: all that was written.
type author struct {
	*rand.Rand
	t       testing.TB
	store   *memlog.Store
	log     *eventlog.Log
	clock   atomic.Int64 // Unix nanoseconds
	tip     eventlog.Head
	batches []*eventlog.Batch
	version map[string]uint64 // revision of the last change of an object
}

func newAuthor(t testing.TB, seed uint64) *author {
	t.Helper()
	a := &author{
		Rand: rand.New(rand.NewPCG(seed, 7)), t: t, store: &memlog.Store{},
		version: map[string]uint64{},
	}
	a.clock.Store(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano())
	log, err := eventlog.Open(t.Context(), a.store.Open(nil), eventlog.Options{Clock: a.now})
	if err != nil {
		t.Fatal(err)
	}
	a.log = log
	a.catchUp()
	return a
}

func (a *author) now() time.Time { return time.Unix(0, a.clock.Load()).UTC() }

func (a *author) advance(d time.Duration) { a.clock.Add(int64(d)) }

// catchUp reads what was written behind the tip.
func (a *author) catchUp() {
	a.t.Helper()
	for {
		more, err := a.log.CatchUp(a.t.Context(), a.tipOrStart())
		if err != nil {
			a.t.Fatal(err)
		}
		if len(more) == 0 {
			return
		}
		a.batches = append(a.batches, more...)
		a.tip = more[len(more)-1].Head()
	}
}

func (a *author) tipOrStart() eventlog.Head {
	if a.tip == (eventlog.Head{}) {
		return a.log.Start()
	}
	return a.tip
}

func (a *author) commit(events ...*eventlog.Event) {
	a.t.Helper()
	var entries []*eventlog.Entry
	for _, e := range events {
		entry, err := eventlog.Encode(e)
		if err != nil {
			a.t.Fatal(err)
		}
		entries = append(entries, entry)
	}
	won, _, err := a.log.Append(a.t.Context(), a.tip, eventlog.NewDraft(entries))
	if err != nil || won == nil {
		a.t.Fatal(won, err)
	}
	a.tip = won.Head()
	a.batches = append(a.batches, won)
	a.advance(time.Duration(a.IntN(5000)) * time.Millisecond)
}

// writes commits n random batches.
func (a *author) writes(n int) {
	a.t.Helper()
	for range n {
		switch a.IntN(30) {
		case 0:
			a.epoch()
		case 1:
			a.clockSet()
		case 2:
			a.commit(&eventlog.Event{Meta: &logpb.Metadata{
				Type: logpb.Type_TYPE_POLICY_ACTIVATED, Detail: &logpb.Metadata_PolicyActivated{PolicyActivated: &logpb.PolicyActivated{Digest: make([]byte, 32)}},
			}})
		default:
			var events []*eventlog.Event
			for range 1 + a.IntN(4)*a.IntN(3) {
				events = append(events, a.event())
			}
			a.commit(events...)
		}
	}
}

func (a *author) epoch() {
	lost := a.tip.Revision + 1
	started, _, err := a.log.StartEpoch(a.t.Context(), a.tip, lost, lost+a.Uint64N(1000))
	if err != nil || started == nil {
		a.t.Fatal(started, err)
	}
	a.tip, a.batches = started.Head(), append(a.batches, started)
}

func (a *author) clockSet() {
	a.advance(-time.Minute)
	set, _, err := a.log.SetClock(a.t.Context(), a.tip)
	if err != nil || set == nil {
		a.t.Fatal(set, err)
	}
	a.tip, a.batches = set.Head(), append(a.batches, set)
}

var resources = []string{"pods", "configmaps", "leases", "secrets"}

// event returns a random change. Its revision is known once it is committed.
func (a *author) event() *eventlog.Event {
	if a.IntN(20) == 0 {
		return a.bulk()
	}
	resource := resources[a.IntN(len(resources))]
	name := fmt.Sprint(resource, a.IntN(20))
	e := &eventlog.Event{Meta: &logpb.Metadata{
		Type:      logpb.Type_TYPE_UPDATED,
		Object:    &logpb.Object{Resource: resource, Namespace: "default", Name: name, Version: "v1", Kind: resource},
		Actor:     &logpb.Actor{User: "alice", Groups: []string{"system:authenticated"}},
		Decisions: &logpb.Decisions{Authorizer: "rbac", Rule: "widgets/bindings/developers", Source: "teams/widgets.cue:31"},
	}}
	if resource == "leases" {
		e.Meta.Object.Group = "coordination.k8s.io"
	}
	size := a.IntN(300)
	if a.IntN(100) == 0 {
		size = 150_000
	}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, a.bytes(size))
	if a.IntN(3) == 0 {
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_REQUEST}, a.bytes(a.IntN(100)))
	}
	return e
}

func (a *author) bulk() *eventlog.Event {
	n := 2 + a.IntN(5)
	b := &logpb.Bulk{}
	for i := range n {
		b.Objects = append(b.Objects, &logpb.BulkObject{Object: &logpb.Object{Resource: "events", Name: fmt.Sprint(i)}, PreviousRevision: 1})
	}
	return &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_BULK_DELETED, Span: uint32(n), Detail: &logpb.Metadata_Bulk{Bulk: b}}}
}

func (a *author) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefgh"[a.IntN(8)]
	}
	return b
}

// erase removes the contents of one of so many batches behind a revision from the store, as a redaction would.
func (a *author) erase(one int, behind uint64) {
	a.t.Helper()
	a.store.Tamper(func(head []byte, batches []eventlog.Stored) ([]byte, []eventlog.Stored) {
		for i := range batches {
			if batches[i].First <= behind || a.IntN(one) > 0 {
				continue
			}
			p, err := eventlog.Split(batches[i].First, batches[i].Value)
			if err != nil {
				a.t.Fatal(err)
			}
			for j := range p.Entries {
				for k := range p.Entries[j].Blobs {
					if p.Entries[j].Blobs[k], err = p.Entries[j].Blobs[k].Erased(); err != nil {
						a.t.Fatal(err)
					}
				}
			}
			batches[i] = p.Encode()
		}
		return head, batches
	})
	a.tip, a.batches = eventlog.Head{}, nil
	fresh, err := eventlog.Open(a.t.Context(), a.store.Open(nil), eventlog.Options{Clock: a.now})
	if err != nil {
		a.t.Fatal(err)
	}
	a.log = fresh
	a.catchUp()
}
