package policies_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
		Package: "prod", Commit: "c-" + form[:1], Form: policies.Pack([]byte(form)), Sources: files}
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
	first := proposal("a form", policies.File{Path: "a.cue", Data: policies.Pack([]byte(large))}, policies.File{Path: "b.cue", Data: policies.Pack([]byte("b"))})
	second := proposal("b form", policies.File{Path: "b.cue", Data: policies.Pack([]byte("b"))})
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
		if !bytes.Equal(got.Form.Bytes(), want.Form.Bytes()) || got.Package != "prod" || len(got.Sources) != len(want.Sources) || !bytes.Equal(got.Sources[0].Data.Bytes(), want.Sources[0].Data.Bytes()) {
			t.Errorf("activation %d was recalled as %v with %d files", i, got.Digest, len(got.Sources))
		}
	}
}

// A policy is held in its compressed chunks alone, which its proposal, its activation and the chunks of the state share. Its text is made for a moment,
// a chunk at a time.
func TestAPolicyIsHeldCompressed(t *testing.T) {
	f := newFixture(t)
	const size = 16 << 20
	var text strings.Builder
	for i := 0; text.Len() < size; i++ {
		fmt.Fprintf(&text, `{"kinds":"string","doc":"What field %d of the object says.","source":"kinds/widget.cue:%d:3"},`, i%512, i)
	}
	p := proposal("a" + text.String())
	events := p.Events(f.state)
	for _, e := range events[:len(events)-1] {
		f.append(e)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f.append(events[len(events)-1])
	runtime.ReadMemStats(&after)
	// The chunks are decompressed one after the other, each from a copy of its compressed bytes.
	if n := after.TotalAlloc - before.TotalAlloc; n > 3<<20 {
		t.Errorf("to propose a form of %d MiB takes %d KiB, more than its compressed chunks and a few of them decompressed", size>>20, n>>10)
	}
	f.append(activation(p, nil))

	runtime.GC()
	runtime.ReadMemStats(&before)
	var again policies.Importer
	if err := f.state.Export(again.Add); err != nil {
		t.Fatal(err)
	}
	state, err := again.State()
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > size/6 {
		t.Errorf("a form of %d MiB is held in %d KiB", size>>20, held>>10)
	}
	if state.Active.Form.Digest() != p.Digest {
		t.Error("another form is in force")
	}
	runtime.KeepAlive(f)
}

// Chunks of the policy in force must not be written again.
func TestChunksAreShared(t *testing.T) {
	f := newFixture(t)
	shared := policies.File{Path: "a.cue", Data: policies.Pack([]byte("shared"))}
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
