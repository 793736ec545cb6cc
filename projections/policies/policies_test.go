package policies_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/policies"
)

// fixture is a log, and the state after it.
type fixture struct {
	t     *testing.T
	log   *eventlog.Log
	tip   eventlog.Head
	state *policies.State
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	var store memlog.Store
	log, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	batches, err := log.CatchUp(t.Context(), log.Start())
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t, log, batches[0].Head(), &policies.State{}}
}

// append appends an event to the log and applies it.
func (f *fixture) append(e *eventlog.Event) {
	f.t.Helper()
	entry, err := eventlog.Encode(e)
	if err != nil {
		f.t.Fatal(err)
	}
	won, _, err := f.log.Append(f.t.Context(), f.tip, eventlog.NewDraft([]*eventlog.Entry{entry}))
	if err != nil {
		f.t.Fatal(err)
	}
	f.tip = won.Head()
	if f.state, err = f.state.Apply(won.Events[0], won.First); err != nil {
		f.t.Fatal(err)
	}
}

func proposal(form string, files ...policies.File) *policies.Proposal {
	return &policies.Proposal{Digest: policies.DigestOf([]byte(form)), SourceDigest: policies.DigestOf([]byte("source of " + form)),
		Package: "prod", Commit: "c-" + form[:1], Form: []byte(form), Sources: files}
}

func activation(p *policies.Proposal, replaces *policies.Proposal) *eventlog.Event {
	a := &logpb.PolicyActivated{Digest: p.Digest[:]}
	if replaces != nil {
		a.ExpectedPrevious = replaces.Digest[:]
	}
	return &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_POLICY_ACTIVATED, Actor: &logpb.Actor{User: "alice"},
		Detail: &logpb.Metadata_PolicyActivated{PolicyActivated: a}}}
}

func (f *fixture) activate(p, replaces *policies.Proposal) {
	f.t.Helper()
	for _, e := range p.Events(f.state) {
		f.append(e)
	}
	f.append(activation(p, replaces))
}

func TestWhatWasInForceCanBeRecalled(t *testing.T) {
	f := newFixture(t)
	large := strings.Repeat("a large file, in several chunks ", 20_000)
	first := proposal("a form", policies.File{Path: "a.cue", Data: []byte(large)}, policies.File{Path: "b.cue", Data: []byte("b")})
	second := proposal("b form", policies.File{Path: "b.cue", Data: []byte("b")})
	f.activate(first, nil)
	f.activate(second, first)
	f.activate(first, second)
	h := f.state.History
	if len(h) != 3 || h[0].Digest != first.Digest || h[1].Digest != second.Digest || h[2].Digest != first.Digest || h[2].Revision != f.tip.Revision || h[1].Commit != "c-b" || h[0].Actor != "alice" {
		t.Fatalf("history %+v", h)
	}
	for i, want := range []*policies.Proposal{first, second, first} {
		got, err := f.state.Recall(t.Context(), f.log, h[i])
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Form) != string(want.Form) || got.Package != "prod" || len(got.Sources) != len(want.Sources) || string(got.Sources[0].Data) != string(want.Sources[0].Data) {
			t.Errorf("activation %d was recalled as %v with %d files", i, got.Digest, len(got.Sources))
		}
	}
}

// A policy that is proposed takes the memory of its form and its files once more: nothing is made larger step by step.
func TestAProposalAllocatesItsSize(t *testing.T) {
	f := newFixture(t)
	const size = 16 << 20
	p := proposal("a" + strings.Repeat("form ", size/5))
	events := p.Events(f.state)
	for _, e := range events[:len(events)-1] {
		f.append(e)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	next, err := f.state.Apply(events[len(events)-1], f.tip.Revision+1)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > size+size/4 {
		t.Errorf("a form of %d MiB allocates %d MiB", size>>20, n>>20)
	}
	runtime.KeepAlive(next)
}

// Chunks of the policy in force must not be written again.
func TestChunksAreShared(t *testing.T) {
	f := newFixture(t)
	shared := policies.File{Path: "a.cue", Data: []byte("shared")}
	first := proposal("a form", shared)
	f.activate(first, nil)
	if events := proposal("b form", shared).Events(f.state); len(events) != 2 { // its form, and the proposal
		t.Errorf("%d events", len(events))
	}
}

func TestEventsThatDoNotFollowAreRefused(t *testing.T) {
	f := newFixture(t)
	first, second := proposal("a form"), proposal("b form")
	f.activate(first, nil)
	refused := func(name string, e *eventlog.Event) error {
		t.Helper()
		before := f.state
		_, err := before.Apply(e, f.tip.Revision+1)
		if err == nil {
			t.Errorf("%s was applied", name)
		}
		return err
	}
	refused("what was not proposed", activation(second, first))
	events := second.Events(f.state)
	refused("a proposal without its chunks", events[len(events)-1])
	for _, e := range events {
		f.append(e)
	}
	if err := refused("in place of none", activation(second, nil)); !errors.Is(err, policies.ErrOtherInForce) {
		t.Errorf("in place of none: %v", err)
	}
	if err := refused("in place of another", activation(second, second)); !errors.Is(err, policies.ErrOtherInForce) {
		t.Errorf("in place of another: %v", err)
	}
	digest := policies.DigestOf([]byte("one thing"))
	chunk := &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_POLICY_CHUNK, Detail: &logpb.Metadata_PolicyChunk{PolicyChunk: &logpb.PolicyChunk{Digest: digest[:]}}}}
	chunk.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_CHUNK}, []byte("another"))
	refused("a chunk with other content", chunk)
	if _, err := f.state.Recall(context.Background(), f.log, policies.Record{Proposed: 1}); err == nil {
		t.Error("what is no proposal was recalled")
	}
}
