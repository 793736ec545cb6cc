package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/transparency-dev/merkle/compact"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/segment"
)

// Binding finds out what binds the batches before a gap to the log. No batch that is kept continues a gap. But before retention
// makes one, it records the root of the tree over all batches that the gap is among, see [logpb.PastErased]. That event comes
// behind the gap, and the hash chain binds it to the end of the log. So whoever changes a batch before the gap has to find other hashes
// with the same root.
//
// It is given all of a log, from the beginning on. It is for one goroutine.
type Binding struct {
	tree *compact.Range
	// roots are those of the trees that end with a segment, by their sizes. The records are of these.
	roots map[uint64]eventlog.Hash
	// gapFrom and gapTo are the first and the last batch of the newest gap, counted from 1; 0 if there is none.
	gapFrom, gapTo uint64
	// records are those behind the newest gap: nothing binds earlier ones.
	records []*logpb.PastErased
	// agreed is the largest size of a tree that is known to be that of the log by a head of elsewhere.
	agreed uint64
}

// NewBinding returns a binding at the beginning of a log.
func NewBinding() *Binding {
	return &Binding{tree: factory.NewEmptyRange(0), roots: map[uint64]eventlog.Hash{}}
}

// Segment adds a segment, which has been verified.
func (b *Binding) Segment(ctx context.Context, of *segment.Segment) error {
	for item, err := range of.Metadata(ctx, of.Info().Before.Revision) {
		if err == nil && item.Gap != nil {
			err = b.gap(item.Gap)
		} else if err == nil {
			err = b.Batch(item.Batch)
		}
		if err != nil {
			return err
		}
	}
	b.endSegment()
	return nil
}

// whole adds a segment of which nothing needs to be looked at: it has no gap, and there is none before it.
func (b *Binding) whole(info *segment.Info) error {
	tree, err := factory.NewRange(info.Ordinal, info.Ordinal+info.Batches, info.Tree)
	if err == nil {
		err = b.tree.AppendRange(tree, nil)
	}
	b.endSegment()
	return err
}

// endSegment notes the root at the end of a segment.
func (b *Binding) endSegment() { b.roots[b.tree.End()] = b.root() }

func (b *Binding) root() eventlog.Hash {
	root, err := b.tree.GetRootHash(nil)
	if err != nil {
		panic("verify: " + err.Error()) // the range begins at 0
	}
	return eventlog.Hash(root)
}

// Batch adds a batch.
func (b *Binding) Batch(batch *eventlog.Batch) error {
	for _, e := range batch.Events {
		if is := e.Meta.GetPastErased(); is != nil {
			b.records = append(b.records, is)
		}
	}
	return b.tree.Append(segment.LeafHash(batch.Hash), nil)
}

// gap adds batches that are not kept.
func (b *Binding) gap(g *segment.Gap) error {
	if b.gapTo == 0 || b.gapTo != b.tree.End() {
		b.gapFrom = b.tree.End() + 1
	}
	tree, err := factory.NewRange(b.tree.End(), b.tree.End()+g.Batches, g.Tree)
	if err == nil {
		err = b.tree.AppendRange(tree, nil)
	}
	b.gapTo, b.records = b.tree.End(), nil
	return err
}

// Check compares what has been added with the records. The error is a [*Difference] if it is not what a record says, and an
// [*IncomparableError] if there are batches before a gap, and no record or head is about them.
func (b *Binding) Check(where string) error {
	bound := b.agreed
	for _, is := range b.records {
		root, known := b.roots[is.GetBatches()]
		if !known || is.GetBatches() == 0 {
			continue
		}
		if !slices.Equal(root[:], is.GetRoot()) {
			return &Difference{where, 0, fmt.Sprintf("the first %d batches are not those that the log has recorded before a part of them was erased: their root is %v, the recorded one %x. One that is before the gap of batches %d to %d was changed",
				is.GetBatches(), root, is.GetRoot(), b.gapFrom, b.gapTo)}
		}
		bound = max(bound, is.GetBatches())
	}
	if b.gapTo > bound {
		return &IncomparableError{Unbound: b.gapTo}
	}
	return nil
}

// Floors returns the floors that the log has recorded behind the newest gap, by plural.group; false if it has recorded none.
func (b *Binding) Floors() (floors map[string]uint64, recorded bool) {
	floors = map[string]uint64{}
	for _, is := range b.records {
		for _, f := range is.GetFloors() {
			floors[f.GetKind()] = max(floors[f.GetKind()], f.GetContents())
		}
	}
	return floors, len(b.records) > 0
}
