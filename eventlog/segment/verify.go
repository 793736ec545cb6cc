package segment

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/transparency-dev/merkle/compact"
	"stele.dev/stele/eventlog"
)

// Verify reads both files in full, without the cache. It checks their hashes, every block, the chain of all batches, and
// that the info is about them. [Segment.SetSum] must have been called. Errors are [*DamagedError], or those of the file
// system.
func (s *Segment) Verify(ctx context.Context) error {
	for i, path := range s.Paths() {
		sum, err := Sum(path)
		if err != nil {
			return err
		}
		if sum != s.info.Files[i].SHA256 {
			return &DamagedError{path, fmt.Sprintf("its SHA-256 is %x, not %x", sum, s.info.Files[i].SHA256)}
		}
	}
	v := &verification{at: s.info.Before, tree: ranges.NewEmptyRange(s.info.Ordinal)}
	uncached := &Segment{info: s.info, log: s.log, paid: s.paid}
	f := uncached.fetcher()
	for step, err := range uncached.verbatim(ctx, 0, f) {
		if err != nil {
			return err
		}
		if step.Gap != nil {
			err = v.gap(step.Gap)
		} else {
			err = v.batch(step.Parts)
		}
		if err != nil {
			return s.damagedLog(err)
		}
	}
	if err := v.compare(&s.info); err != nil {
		return s.damagedLog(err)
	}
	return uncached.verifyPayloads(f, v.payloads)
}

// verification is what has been found in a segment up to a position.
type verification struct {
	at                      eventlog.Head
	tree                    *compact.Range
	batches, events         uint64
	keptBatches, keptEvents uint64
	payloads                int
	first                   uint64
	kept                    *eventlog.Head
}

func (v *verification) batch(p *eventlog.Parts) error {
	if err := p.Follows(v.at); err != nil {
		return err
	}
	if v.kept == nil {
		kept := v.at
		v.kept = &kept
	}
	v.begin(p.First)
	v.at = p.Head()
	v.batches++
	v.keptBatches++
	v.events += uint64(len(p.Entries))
	v.keptEvents += uint64(len(p.Entries))
	for i := range p.Entries {
		for j := range p.Entries[i].Blobs {
			if !p.Entries[i].Blobs[j].Gone {
				v.payloads++
			}
		}
	}
	return v.tree.Append(LeafHash(p.Hash), nil)
}

func (v *verification) gap(g *Gap) error {
	if g.Before != v.at {
		return fmt.Errorf("a gap is after %v, not after %v", g.Before, v.at)
	}
	tree, err := ranges.NewRange(v.tree.End(), v.tree.End()+g.Batches, g.Tree)
	if err != nil {
		return err
	}
	v.begin(g.First)
	v.at = g.After
	v.batches += g.Batches
	v.events += g.Events
	return v.tree.AppendRange(tree, nil)
}

func (v *verification) begin(first uint64) {
	if v.first == 0 {
		v.first = first
	}
}

// compare returns an error if the info is about other batches.
func (v *verification) compare(i *Info) error {
	kept := v.at
	if v.kept != nil {
		kept = *v.kept
	}
	switch {
	case v.at != i.After:
		return fmt.Errorf("it ends at %v, its info says %v", v.at, i.After)
	case v.first != i.First || kept != i.Kept:
		return fmt.Errorf("it begins at revision %d and keeps what follows %v, its info says %d and %v", v.first, kept, i.First, i.Kept)
	case v.batches != i.Batches || v.events != i.Events || v.keptBatches != i.KeptBatches || v.keptEvents != i.KeptEvents:
		return fmt.Errorf("it has %d batches with %d events, its info says %d with %d", v.keptBatches, v.keptEvents, i.KeptBatches, i.KeptEvents)
	case !slices.EqualFunc(v.tree.Hashes(), i.Tree, bytes.Equal):
		return fmt.Errorf("the hashes of its batches are not those of its info")
	}
	return nil
}

// verifyPayloads checks that the .payloads file has no other blocks and payloads than those that were fetched, each once,
// for the given number of blobs.
func (s *Segment) verifyPayloads(f *fetcher, blobs int) error {
	x, err := s.payloadIndex()
	if err != nil {
		return err
	}
	if f.blocks != len(x.rows) || f.payloads != blobs {
		return &DamagedError{s.paid, fmt.Sprintf("it has %d blocks, of which %d with %d payloads are used; the .log file names %d payloads", len(x.rows), f.blocks, f.payloads, blobs)}
	}
	return nil
}
