package segment

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// Keep says what is kept of an event.
type Keep int

// What can be kept of an event.
const (
	// All keeps everything.
	All Keep = iota
	// Metadata keeps the metadata, and of each payload only its hash.
	Metadata
	// Nothing keeps the hash of the batch, if nothing of any event in it is kept. Otherwise it is as Metadata; so it is
	// for the last batch of a segment.
	Nothing
)

// Rewrite writes the next generation of the segment, with what decide says to keep of each event. It gets batches
// without contents. The writers get the .log file and the .payloads file. If everything is kept, Rewrite writes
// nothing, and the info is nil.
func (s *Segment) Rewrite(ctx context.Context, log, payloads io.Writer, decide func(*eventlog.Batch, *eventlog.Event) Keep) (*Info, error) {
	p, err := s.plan(ctx, decide)
	if err != nil || !p.changes {
		return nil, err
	}
	w := &rewriter{
		s: s, plan: p, fetch: s.fetcher(), log: newLogWriter(log), payloads: newPayloadWriter(payloads),
		info: s.info, at: s.info.Before, groups: map[kind]*Group{}, dropped: map[kind][]uint64{},
	}
	for block, err := range s.logBlocks(ctx, 0) {
		if err != nil {
			return nil, err
		}
		for i := range block.records {
			if err := w.record(block, i); err != nil {
				return nil, err
			}
		}
	}
	if err := w.copyPayloads(ctx); err != nil {
		return nil, err
	}
	return w.finish()
}

// plan is what to keep of the batches of a segment.
type plan struct {
	batches [][]Keep // of each batch that is there: what to keep of each event; nil for nothing
	changes bool
}

// plan asks decide about all events.
func (s *Segment) plan(ctx context.Context, decide func(*eventlog.Batch, *eventlog.Event) Keep) (*plan, error) {
	p := new(plan)
	for block, err := range s.logBlocks(ctx, 0) {
		if err != nil {
			return nil, err
		}
		for i := range block.records {
			r := &block.records[i]
			if r.gap != nil {
				continue
			}
			b, err := s.metadata(block, i)
			if err != nil {
				return nil, err
			}
			keeps := make([]Keep, len(b.Events))
			nothing := b.Last() != s.info.Last
			for j, e := range b.Events {
				keeps[j] = decide(b, e)
				nothing = nothing && keeps[j] == Nothing
				p.changes = p.changes || keeps[j] != All && r.entries[j].hasContent()
			}
			if nothing {
				keeps, p.changes = nil, true
			}
			p.batches = append(p.batches, keeps)
		}
	}
	return p, nil
}

// hasContent reports whether any payload of the event is there.
func (e *entry) hasContent() bool {
	return slices.ContainsFunc(e.blobs, func(description []byte) bool { return !gone(description) })
}

// gone reports whether a blob is described as erased.
func gone(description []byte) bool {
	pb := new(logpb.Blob)
	return len(description) > 0 && proto.Unmarshal(description, pb) == nil && pb.GetGone()
}

// rewriter writes the next generation of a segment.
type rewriter struct {
	s        *Segment
	plan     *plan
	next     int // index into plan.batches
	fetch    *fetcher
	log      *logWriter
	payloads *payloadWriter
	info     Info
	at       eventlog.Head // position after the last record
	gap      *Gap          // before the next record that is written
	groups   map[kind]*Group
	dropped  map[kind][]uint64 // keys of payloads that are not kept, ascending
	kept     bool              // a batch has been written
}

// record writes a record as far as it is kept.
func (w *rewriter) record(block *logBlock, i int) error {
	r := &block.records[i]
	if r.gap != nil {
		w.at = r.gap.After
		return w.addGap(r.gap)
	}
	b, err := w.s.metadata(block, i)
	if err != nil {
		return err
	}
	keeps := w.plan.batches[w.next]
	w.next++
	before := w.at
	w.at = b.Head()
	if keeps == nil {
		if err := w.drop(r); err != nil {
			return err
		}
		return w.addGap(&Gap{
			Before: before, After: b.Head(), First: b.First, Batches: 1, Events: uint64(len(b.Events)),
			Tree: [][]byte{LeafHash(b.Hash)}, FirstTime: b.Time, LastTime: b.Time,
		})
	}
	entries, err := w.entries(r, b, keeps)
	if err != nil {
		return err
	}
	w.flushGap()
	if !w.kept {
		w.kept, w.info.Kept, w.info.KeptBatches, w.info.KeptEvents = true, before, 0, 0
	}
	w.info.KeptBatches++
	w.info.KeptEvents += uint64(len(b.Events))
	w.log.record(r.revision, r.header, entries, b.Hash)
	return cmp.Or(w.log.err, w.payloads.err)
}

// entries returns the events of a batch as far as they are kept.
func (w *rewriter) entries(r *record, b *eventlog.Batch, keeps []Keep) ([]entry, error) {
	entries := slices.Clone(r.entries)
	for i, e := range b.Events {
		k := kind{e.Meta.GetObject().GetGroup(), e.Meta.GetObject().GetResource()}
		g := w.groups[k]
		if g == nil {
			g = &Group{Group: k.group, Resource: k.resource}
			w.groups[k] = g
		}
		g.Events++
		g.Metadata += int64(len(entries[i].metadata))
		if keeps[i] != All {
			var err error
			if entries[i].blobs, err = w.erase(k, &entries[i], e.Revision-w.info.First); err != nil {
				return nil, err
			}
		}
		for j, description := range entries[i].blobs {
			if !gone(description) && j < len(e.Meta.GetPayloads()) {
				g.Payloads++
				g.Plain += int64(e.Meta.GetPayloads()[j].GetSize())
			}
		}
	}
	return entries, nil
}

// erase returns the descriptions of an event's blobs without contents.
func (w *rewriter) erase(k kind, e *entry, revision uint64) ([][]byte, error) {
	blobs := slices.Clone(e.blobs)
	for i, description := range blobs {
		if gone(description) {
			continue
		}
		var b eventlog.Blob
		if err := w.fetch.blob(&b, description, k, revision, i); err != nil {
			return nil, err
		}
		erased, err := b.Erased()
		if err != nil {
			return nil, w.s.damagedLog(err)
		}
		blobs[i] = appendBlob(nil, &erased)
		w.dropped[k] = append(w.dropped[k], revision<<keyBits|uint64(i))
	}
	return blobs, nil
}

// drop notes the payloads of a batch that is not kept.
func (w *rewriter) drop(r *record) error {
	revision := r.revision
	for i := range r.entries {
		var part eventlog.Part
		if err := part.Scan(r.entries[i].metadata); err != nil {
			return w.s.damagedLog(err)
		}
		k := kind{part.Group, part.Resource}
		for j, description := range r.entries[i].blobs {
			if !gone(description) {
				w.dropped[k] = append(w.dropped[k], revision<<keyBits|uint64(j))
			}
		}
		revision += part.Span
	}
	return nil
}

// addGap joins a gap to the one before.
func (w *rewriter) addGap(g *Gap) error {
	if w.gap == nil {
		w.gap = g
		return nil
	}
	joined := *w.gap
	from := w.ordinal() - joined.Batches
	tree, err := ranges.NewRange(from, from+joined.Batches, slices.Clone(joined.Tree))
	if err != nil {
		return w.s.damagedLog(err)
	}
	more, err := ranges.NewRange(from+joined.Batches, from+joined.Batches+g.Batches, g.Tree)
	if err != nil {
		return w.s.damagedLog(err)
	}
	must(tree.AppendRange(more, nil))
	joined.After, joined.LastTime, joined.Tree = g.After, g.LastTime, tree.Hashes()
	joined.Batches += g.Batches
	joined.Events += g.Events
	w.gap = &joined
	return nil
}

// ordinal returns the number of batches in the log up to the end of w.gap.
func (w *rewriter) ordinal() uint64 { return w.info.Ordinal + w.log.total + w.gap.Batches }

func (w *rewriter) flushGap() {
	if w.gap != nil {
		w.log.gap(w.gap.First-w.info.First, w.gap)
		w.gap = nil
	}
}

// copyPayloads writes the payloads that are kept. Blocks of which all are kept are copied as they are.
func (w *rewriter) copyPayloads(ctx context.Context) error {
	x, err := w.s.payloadIndex()
	if err != nil {
		return err
	}
	_, err = withFile(w.s.paid, func(r io.ReaderAt) (struct{}, error) {
		for i := range x.rows {
			if err := cmp.Or(ctx.Err(), w.payloads.err); err != nil {
				return struct{}{}, err
			}
			if err := w.copyBlock(r, x, i); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// copyBlock writes what is kept of one block.
func (w *rewriter) copyBlock(r io.ReaderAt, x *payloadIndex, i int) error {
	row := &x.rows[i]
	k := x.kinds[row.kind]
	dropped := w.dropped[k]
	from, _ := slices.BinarySearch(dropped, row.first)
	to, found := slices.BinarySearch(dropped, row.last)
	if found {
		to++
	}
	if from == to {
		compressed, err := readChecked(r, row.offset, int64(row.length), row.crc, "block")
		if err == nil {
			w.payloads.copy(k, row.first, row.last, row.blockAt, compressed)
		}
		return err
	}
	block, err := w.s.payloadBlock(row, i)
	if err != nil {
		return err
	}
	for j, key := range block.keys {
		if _, gone := slices.BinarySearch(dropped[from:to], key); !gone {
			w.payloads.add(k, block.payload(j))
		}
	}
	return nil
}

// finish completes the files.
func (w *rewriter) finish() (*Info, error) {
	if w.gap != nil || w.at != w.info.After {
		return nil, fmt.Errorf("segment: %s ends at %v, not at %v", w.s.log, w.at, w.info.After)
	}
	i := &w.info
	i.Generation++
	i.Groups = nil
	for _, g := range w.groups {
		i.Groups = append(i.Groups, *g)
	}
	return i, finish(i, w.log, w.payloads)
}
