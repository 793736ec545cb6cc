package proof_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/eventlog/proof"
)

// randomLog makes a log with batches of one to five events, some with payloads, some that take several revisions, and
// with an epoch in it. It returns the events.
func randomLog(t testing.TB, seed uint64, batches int) (*eventlog.Log, []*eventlog.Event) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, seed))
	log, err := eventlog.Open(t.Context(), new(memlog.Store).Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var events []*eventlog.Event
	at := log.Start()
	add := func(b *eventlog.Batch, err error) {
		if err != nil {
			t.Fatal(err)
		}
		events, at = append(events, b.Events...), b.Head()
	}
	first, err := log.CatchUp(t.Context(), at)
	add(first[0], err)
	for i := 1; i < batches; i++ {
		if i == batches/2 {
			b, _, err := log.StartEpoch(t.Context(), at, at.Revision+2, at.Revision+10)
			add(b, err)
			continue
		}
		var entries []*eventlog.Entry
		for range 1 + random.IntN(5) {
			entry, err := eventlog.Encode(randomEvent(random))
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, entry)
		}
		b, _, err := log.Append(t.Context(), at, eventlog.NewDraft(entries))
		add(b, err)
	}
	return log, events
}

func randomEvent(random *rand.Rand) *eventlog.Event {
	e := &eventlog.Event{Meta: &logpb.Metadata{
		Type:   logpb.Type_TYPE_CREATED,
		Object: &logpb.Object{Resource: "widgets", Name: fmt.Sprint(random.IntN(100))},
	}}
	if random.IntN(10) == 0 {
		e.Meta.Type, e.Meta.Span = logpb.Type_TYPE_BULK_DELETED, uint32(2+random.IntN(4))
	}
	for i := range random.IntN(3) {
		e.AddContent(&logpb.Payload{Role: logpb.Role(1 + i)}, bytes.Repeat([]byte{0x78}, random.IntN(40)))
	}
	return e
}

// parsed decodes a document of a tree's proof, as who gets it does.
func parsed(t testing.TB, p *proof.Inclusion, err error) *proof.Inclusion {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	got, err := proof.DecodeInclusion(p.Encode())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func headOf(t testing.TB, tree *proof.Tree, size uint64) proof.TreeHead {
	t.Helper()
	h, err := tree.Head(t.Context(), size)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestEveryEventIsProven(t *testing.T) {
	const batches = 2100 // two pieces and some
	log, events := randomLog(t, 1, batches)
	tree := proof.NewTree(proof.NewSource(log, nil), log.ID())
	newest := headOf(t, tree, 0)
	if newest.Size != batches || newest.Revision != events[len(events)-1].Last() {
		t.Fatalf("the newest head is %+v", newest)
	}
	for i := 0; i < len(events); i += 1 + i/3 {
		e := events[i]
		p, err := tree.Inclusion(t.Context(), e.Last(), 0, i%2 == 0)
		proven, err := parsed(t, p, err).Verify(newest)
		if err != nil {
			t.Fatalf("revision %d: %v", e.Revision, err)
		}
		if proven.Revision != e.Revision || proven.Last != e.Last() || !proven.Time.Equal(e.Time) || !proto.Equal(proven.Meta, e.Meta) {
			t.Errorf("revision %d: proven is %+v", e.Revision, proven)
		}
		for j, content := range proven.Contents {
			if i%2 == 0 && !bytes.Equal(content, e.Contents[j]) || i%2 == 0 == (content == nil) {
				t.Errorf("revision %d: content %d is %q, want %q", e.Revision, j, content, e.Contents[j])
			}
		}
	}
}

func TestEveryEventIsProvenInEveryTreeThatHasIt(t *testing.T) {
	const batches = 40
	log, events := randomLog(t, 2, batches)
	tree := proof.NewTree(proof.NewSource(log, nil), log.ID())
	for size := uint64(1); size <= batches; size++ {
		head := headOf(t, tree, size)
		for _, e := range events {
			p, err := tree.Inclusion(t.Context(), e.Revision, size, false)
			if e.Revision > head.Revision {
				if !errors.Is(err, proof.ErrNoEvent) {
					t.Fatalf("size %d, revision %d: %v", size, e.Revision, err)
				}
				continue
			}
			if _, err := parsed(t, p, err).Verify(head); err != nil {
				t.Fatalf("size %d, revision %d: %v", size, e.Revision, err)
			}
		}
	}
}

func TestAnyTwoHeadsAreConsistent(t *testing.T) {
	const batches = 40
	log, _ := randomLog(t, 3, batches)
	tree := proof.NewTree(proof.NewSource(log, nil), log.ID())
	for to := uint64(1); to <= batches; to++ {
		for from := uint64(1); from <= to; from++ {
			checkConsistency(t, tree, from, to)
		}
	}
}

func TestLargeHeadsAreConsistent(t *testing.T) {
	log, _ := randomLog(t, 4, 2100)
	tree := proof.NewTree(proof.NewSource(log, nil), log.ID())
	sizes := []uint64{1, 1023, 1024, 1025, 2047, 2048, 2049, 2100}
	for i, to := range sizes {
		for _, from := range sizes[:i+1] {
			checkConsistency(t, tree, from, to)
		}
	}
}

func checkConsistency(t *testing.T, tree *proof.Tree, from, to uint64) {
	t.Helper()
	p, err := tree.Consistency(t.Context(), from, to)
	if err != nil {
		t.Fatal(err)
	}
	got, err := proof.DecodeConsistency(p.Encode())
	if err != nil {
		t.Fatal(err)
	}
	earlier, later := headOf(t, tree, from), headOf(t, tree, to)
	if err := got.Verify(earlier, later); err != nil {
		t.Fatalf("from %d to %d: %v", from, to, err)
	}
	earlier.Root[0] ^= 1
	got.From = earlier.Text()
	if err := got.Verify(earlier, later); !errors.Is(err, proof.ErrInvalid) {
		t.Errorf("from another tree of size %d to %d: %v", from, to, err)
	}
}

func TestNoByteOfAProofCanBeChanged(t *testing.T) {
	log, events := randomLog(t, 5, 20)
	tree := proof.NewTree(proof.NewSource(log, nil), log.ID())
	head := headOf(t, tree, 0)
	p, err := tree.Inclusion(t.Context(), events[len(events)-3].Revision, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	flipEach(t, p.Encode(), func(changed []byte) error {
		p, err := proof.DecodeInclusion(changed)
		if err == nil {
			_, err = p.Verify(head)
		}
		return err
	})
	c, err := tree.Consistency(t.Context(), 7, 20)
	if err != nil {
		t.Fatal(err)
	}
	earlier := headOf(t, tree, 7)
	flipEach(t, c.Encode(), func(changed []byte) error {
		c, err := proof.DecodeConsistency(changed)
		if err == nil {
			err = c.Verify(earlier, head)
		}
		return err
	})
}

// flipEach flips each bit of a document, which verify must then refuse.
func flipEach(t *testing.T, document []byte, verify func([]byte) error) {
	t.Helper()
	if err := verify(document); err != nil {
		t.Fatal(err)
	}
	for i := range document {
		for bit := range 8 {
			changed := bytes.Clone(document)
			changed[i] ^= 1 << bit
			if verify(changed) == nil {
				t.Errorf("bit %d of byte %d can be flipped: %q", bit, i, document[max(0, i-20):min(len(document), i+20)])
			}
		}
	}
}

// A change of the document's meaning, rather than of its bytes, is refused too.
func TestWhatAProofSaysCannotBeChanged(t *testing.T) {
	log, events := randomLog(t, 6, 30)
	tree := proof.NewTree(proof.NewSource(log, nil), log.ID())
	head := headOf(t, tree, 0)
	for _, tc := range []struct {
		name   string
		change func(*proof.Inclusion)
	}{
		{"revision", func(p *proof.Inclusion) { p.Revision++ }},
		{"index of the event", func(p *proof.Inclusion) { p.Event.Index++ }},
		{"index of the batch", func(p *proof.Inclusion) { p.Batch.Index++ }},
		{"index far away", func(p *proof.Inclusion) { p.Batch.Index = 1 << 62 }},
		{"metadata", func(p *proof.Inclusion) { p.Event.Metadata = append(p.Event.Metadata, 0x98, 0x06, 0x01) }},
		{"payload less", func(p *proof.Inclusion) { p.Event.Payloads = nil }},
		{"payload more", func(p *proof.Inclusion) {
			p.Event.Payloads = append(p.Event.Payloads, proof.Payload{Hash: make([]byte, 32)})
		}},
		{"short path", func(p *proof.Inclusion) { p.Batch.Path = p.Batch.Path[1:] }},
		{"long path", func(p *proof.Inclusion) { p.Batch.Path = append(p.Batch.Path, make([]byte, 32)) }},
		{"longer path", func(p *proof.Inclusion) { p.Batch.Path = append(p.Batch.Path, make([][]byte, 100)...) }},
		{"previous", func(p *proof.Inclusion) { p.Batch.Previous = make([]byte, 32) }},
		{"header", func(p *proof.Inclusion) { p.Batch.Header = append(p.Batch.Header, 0x98, 0x06, 0x01) }},
		{"no header", func(p *proof.Inclusion) { p.Batch.Header = nil }},
		{"events before", func(p *proof.Inclusion) {
			if len(p.Before) > 0 {
				p.Before = p.Before[:len(p.Before)-1]
			} else {
				p.Before = []proof.Event{p.Event}
			}
		}},
		{"events before in another order", func(p *proof.Inclusion) {
			if len(p.Before) < 2 {
				p.Revision = 0
				return
			}
			p.Before[0], p.Before[1] = p.Before[1], p.Before[0]
		}},
		{"head", func(p *proof.Inclusion) { p.Head = strings.Replace(p.Head, "\n30\n", "\n31\n", 1) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, e := range events[1:] {
				p, err := tree.Inclusion(t.Context(), e.Revision, 0, true)
				if err != nil {
					t.Fatal(err)
				}
				before := string(p.Encode())
				tc.change(p)
				if string(p.Encode()) == before {
					continue // nothing to change
				}
				if got, err := p.Verify(head); err == nil {
					t.Fatalf("revision %d: proven %+v", e.Revision, got)
				}
			}
		})
	}
}

func TestAProofIsForOneHeadOnly(t *testing.T) {
	log, _ := randomLog(t, 7, 9)
	tree := proof.NewTree(proof.NewSource(log, nil), log.ID())
	p, err := tree.Inclusion(t.Context(), 3, 8, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Verify(headOf(t, tree, 9)); !errors.Is(err, proof.ErrInvalid) {
		t.Error(err)
	}
	other, _ := randomLog(t, 7, 9)
	if _, err := p.Verify(headOf(t, proof.NewTree(proof.NewSource(other, nil), other.ID()), 8)); !errors.Is(err, proof.ErrInvalid) {
		t.Error(err)
	}
}

func TestAHeadThatLiesAboutItsNewestBatch(t *testing.T) {
	log, _ := randomLog(t, 8, 9)
	tree := proof.NewTree(proof.NewSource(log, nil), log.ID())
	head := headOf(t, tree, 0)
	p, err := tree.Inclusion(t.Context(), head.Revision, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	head.Revision++
	p.Head = head.Text()
	if _, err := p.Verify(head); !errors.Is(err, proof.ErrInvalid) {
		t.Error(err)
	}
}

func TestWhatHasNoProof(t *testing.T) {
	log, events := randomLog(t, 9, 20)
	tree := proof.NewTree(proof.NewSource(log, nil), log.ID())
	last := events[len(events)-1].Last()
	lost := uint64(0)
	for _, e := range events {
		if started := e.Meta.GetEpochStarted(); started != nil {
			lost = started.GetLostFrom()
		}
	}
	for _, revision := range []uint64{0, lost, last + 1, 1 << 63} {
		if _, err := tree.Inclusion(t.Context(), revision, 0, false); !errors.Is(err, proof.ErrNoEvent) {
			t.Errorf("revision %d: %v", revision, err)
		}
	}
	for _, sizes := range [][2]uint64{{0, 5}, {6, 5}, {5, 21}, {21, 0}} {
		if _, err := tree.Consistency(t.Context(), sizes[0], sizes[1]); !errors.Is(err, proof.ErrNoSize) {
			t.Errorf("from %d to %d: %v", sizes[0], sizes[1], err)
		}
	}
}

func TestATreeFollowsItsLog(t *testing.T) {
	log, _ := randomLog(t, 10, 1020)
	tree := proof.NewTree(proof.NewSource(log, nil), log.ID())
	before := headOf(t, tree, 0)
	at := eventlog.Head{Log: log.ID(), Epoch: 1, Revision: before.Revision, Hash: before.Batch}
	for range 10 {
		entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CREATED}})
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := log.Append(t.Context(), at, eventlog.NewDraft([]*eventlog.Entry{entry}))
		if err != nil {
			t.Fatal(err)
		}
		at = b.Head()
		after := headOf(t, tree, 0)
		if after.Size != before.Size+1 || after.Revision != b.Last() || after.Batch != b.Hash {
			t.Fatalf("after revision %d the head is %+v", b.Last(), after)
		}
		checkConsistency(t, tree, before.Size, after.Size)
		before = after
	}
	if fresh := headOf(t, proof.NewTree(proof.NewSource(log, nil), log.ID()), 0); fresh != before {
		t.Errorf("a tree that is made anew has the head %+v, not %+v", fresh, before)
	}
}

// countingSource counts the batches that are read.
type countingSource struct {
	proof.Source
	read int
}

func (s *countingSource) Read(ctx context.Context, after eventlog.Head) ([]proof.Item, error) {
	items, err := s.Source.Read(ctx, after)
	s.read += len(items)
	return items, err
}

func TestAProofDoesNotReadTheWholeLog(t *testing.T) {
	log, _ := randomLog(t, 11, 4000)
	source := &countingSource{Source: proof.NewSource(log, nil)}
	tree := proof.NewTree(source, log.ID())
	headOf(t, tree, 0)
	source.read = 0
	if _, err := tree.Inclusion(t.Context(), 2500, 0, false); err != nil {
		t.Fatal(err)
	}
	if source.read > 1200 {
		t.Errorf("%d batches are read for one proof", source.read)
	}
}
