// Package verify reads a whole log and checks everything that can be checked without a second copy: the hashes of all
// events and batches, that each batch continues the one before, that revisions have no gap but those that the log
// declares, the checksums of segments, the newest position, and tree heads that were kept elsewhere.
//
// [Log] stops at the first difference, and names it. What a hash cannot tell is who wrote a batch: whoever can write
// all of the store can make another log that is right in itself. Only a tree head that was kept elsewhere finds that. A
// head agrees only if the log still has the position at which it ends: a hash that the next batch continues. Of batches
// that are forgotten nothing but hashes is left, which nothing that is kept continues, so that a head that ends among
// them is an [*IncomparableError]. So are batches before a gap of which the log has no record, see [Binding].
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/proof"
	"stele.dev/stele/eventlog/segment"
)

// Source is a log to verify.
type Source struct {
	ID eventlog.ID
	// Segments returns the segments in order; nil if there are none. An error is a segment that cannot be opened.
	Segments iter.Seq2[*segment.Segment, error]
	// Batches visits the batches that follow a position and are in no segment.
	Batches func(ctx context.Context, after eventlog.Head, visit func(*eventlog.Parts) error) error
	// Confirm returns an error if a position is not the newest one that the store names.
	Confirm func(ctx context.Context, at eventlog.Head) error
	// Name says where the batches are that are in no segment, for messages.
	Name string
}

// Options for [Log].
type Options struct {
	// Heads are tree heads that the log must agree with.
	Heads []proof.TreeHead
	// Progress is called with the last revision that was verified, often; nil for none.
	Progress func(revision uint64)
}

// Result sums up a log that was verified.
type Result struct {
	Head      proof.TreeHead // of all batches
	Segments  int
	Batches   uint64 // that are there
	Events    uint64 // of these
	Epochs    []segment.Epoch
	Forgotten uint64 // batches of which only hashes are left
}

// Difference is something in a log that is not as it must be.
type Difference struct {
	Where    string // a file, or the store
	Revision uint64 // the first one that is wrong, or that could not be verified; 0 if unknown
	What     string
}

// Error implements error.
func (d *Difference) Error() string {
	if d.Revision == 0 {
		return fmt.Sprintf("%s: %s", d.Where, d.What)
	}
	return fmt.Sprintf("%s: revision %d: %s", d.Where, d.Revision, d.What)
}

// IncomparableError reports tree heads that end among batches that are forgotten, whether the log is theirs is not known, and
// batches that nothing binds to the log. Everything else in the log is right.
type IncomparableError struct {
	Heads []Incomparable
	// Unbound is the number of the log's first batches some of which are forgotten, and the log has no record of what they
	// were: whether those that are kept of them are those of the log is not known. It is 0 if there are none.
	Unbound uint64
}

// Incomparable is a tree head that cannot be compared, and the batches that are forgotten around its end, counted from 1.
type Incomparable struct {
	Head     proof.TreeHead
	From, To uint64
}

// Error implements error.
func (e *IncomparableError) Error() string {
	var texts []string
	if e.Unbound > 0 {
		texts = append(texts, fmt.Sprintf("what is kept of the first %d batches cannot be compared: others of them are forgotten, and the log has not recorded what they were; a server of this version records it when it next looks at what to erase", e.Unbound))
	}
	for _, h := range e.Heads {
		texts = append(texts, fmt.Sprintf("the tree head of size %d cannot be compared: batches %d to %d are forgotten", h.Head.Size, h.From, h.To))
	}
	return strings.Join(texts, "; ")
}

// walk is what has been verified.
type walk struct {
	Options
	Result
	source Source
	at     eventlog.Head
	// binding has the tree of what has been verified.
	binding *Binding
	// gapAt is the number of the first batch of the gap at whose end the walk is, counted from 1; 0 if it is at none.
	gapAt uint64
	// incomparable are the heads that end among forgotten batches.
	incomparable []Incomparable
}

var factory = &compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}

// Log verifies a log. The error is a [*Difference] for the first one that it finds, an [*IncomparableError] if there is none
// but a head could not be compared, or says why the log cannot be read.
func Log(ctx context.Context, s Source, o Options) (*Result, error) {
	o.Heads = slices.SortedFunc(slices.Values(o.Heads), func(a, b proof.TreeHead) int { return cmp.Compare(a.Size, b.Size) })
	w := &walk{Options: o, source: s, at: eventlog.Head{Log: s.ID}, binding: NewBinding()}
	for _, h := range o.Heads {
		if h.Log != s.ID {
			return nil, &Difference{Where: s.Name, What: fmt.Sprintf("it is log %v, the tree head of size %d is of log %v", s.ID, h.Size, h.Log)}
		}
	}
	if s.Segments != nil {
		for of, err := range s.Segments {
			if err != nil {
				return nil, w.differenceIn(w.source.Name, err)
			}
			if err := w.segment(ctx, of); err != nil {
				return nil, err
			}
		}
	}
	if err := s.Batches(ctx, w.at, w.batch); err != nil {
		return nil, w.differenceIn(s.Name, err)
	}
	if w.size() == 0 {
		return nil, &Difference{s.Name, 1, "the log is empty"}
	}
	if err := s.Confirm(ctx, w.at); err != nil {
		return nil, w.differenceIn(s.Name, err)
	}
	if w.gapAt > 0 {
		w.passOver(func(h *proof.TreeHead) bool { return h.Size == w.size() })
	}
	if len(w.Heads) > 0 {
		return nil, &Difference{s.Name, w.at.Revision + 1, fmt.Sprintf("it ends after %d batches, before the tree head of size %d (revision %d): what follows is lost, or was taken away", w.size(), w.Heads[0].Size, w.Heads[0].Revision)}
	}
	w.Head = w.head()
	unknown := &IncomparableError{Heads: w.incomparable}
	if err := w.binding.Check(s.Name); err != nil && !errors.As(err, &unknown) {
		return nil, err
	}
	if unknown.Heads = w.incomparable; len(unknown.Heads) > 0 || unknown.Unbound > 0 {
		return nil, unknown
	}
	return &w.Result, nil
}

// size returns the number of batches that have been verified, with those that are forgotten.
func (w *walk) size() uint64 { return w.binding.tree.End() }

// head returns the head of what has been verified.
func (w *walk) head() proof.TreeHead {
	return proof.TreeHead{Log: w.at.Log, Size: w.size(), Root: w.binding.root(), Revision: w.at.Revision, Batch: w.at.Hash}
}

// compare compares what has been verified with the heads of this size.
func (w *walk) compare(where string) error {
	for len(w.Heads) > 0 && w.Heads[0].Size <= w.size() {
		want, got := w.Heads[0], w.head()
		if want.Size != got.Size || want.Root != got.Root {
			return &Difference{where, 0, fmt.Sprintf("the first %d batches, up to revision %d, are not those of the tree head: their root is %v, the head's %v", got.Size, got.Revision, got.Root, want.Root)}
		}
		if want.Revision > 0 && want != got {
			return &Difference{where, 0, fmt.Sprintf("the newest of the first %d batches is not that of the tree head: it is %v up to revision %d, the head's %v up to %d", got.Size, got.Batch, got.Revision, want.Batch, want.Revision)}
		}
		w.Heads, w.binding.agreed = w.Heads[1:], want.Size
	}
	if w.Progress != nil {
		w.Progress(w.at.Revision)
	}
	return nil
}

// differenceIn returns the difference that an error is about, or the error if it is about none.
func (w *walk) differenceIn(where string, err error) error {
	var known *Difference
	var damaged *segment.DamagedError
	var corrupt *eventlog.CorruptError
	var unsupported *eventlog.UnsupportedError
	var missing *eventlog.MissingError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &damaged):
		return &Difference{damaged.File, w.at.Revision + 1, damaged.Reason}
	case errors.As(err, &corrupt):
		return &Difference{where, max(corrupt.Revision, w.at.Revision+1), corrupt.Reason}
	case errors.As(err, &missing):
		return &Difference{where, missing.From, fmt.Sprintf("revisions %d to %d are missing: they are neither in a segment nor in the store", missing.From, missing.To)}
	case errors.Is(err, eventlog.ErrDiverged):
		return &Difference{where, w.at.Revision + 1, "it does not continue what is before it: " + err.Error()}
	case errors.As(err, &unsupported):
		return err
	}
	return fmt.Errorf("%s: after revision %d: %w", where, w.at.Revision, err)
}

// segment verifies a segment, which must continue what is before it.
func (w *walk) segment(ctx context.Context, of *segment.Segment) error {
	info, file := of.Info(), of.Paths()[0]
	if info.Before != w.at || info.Ordinal != w.size() {
		return &Difference{file, w.at.Revision + 1, fmt.Sprintf("the segment begins after %v and %d batches; what is before it ends at %v, after %d", info.Before, info.Ordinal, w.at, w.size())}
	}
	if err := of.Verify(ctx); err != nil {
		return w.differenceIn(file, err)
	}
	w.Result.Segments++
	w.Batches += info.KeptBatches
	w.Events += info.KeptEvents
	w.Forgotten += info.Batches - info.KeptBatches
	w.Epochs = append(w.Epochs, info.Epochs...)
	if len(w.Heads) > 0 && w.Heads[0].Size <= info.Ordinal+info.Batches || w.Forgotten > 0 {
		return w.steps(ctx, of)
	}
	if err := w.binding.whole(&info); err != nil {
		return w.differenceIn(file, err)
	}
	w.at, w.gapAt = info.After, 0
	return w.compare(file)
}

// steps goes through a segment that has been verified, to compare it with heads that end within it, and to find what binds it.
func (w *walk) steps(ctx context.Context, of *segment.Segment) error {
	file := of.Paths()[0]
	for item, err := range of.Metadata(ctx, of.Info().Before.Revision) {
		switch {
		case err != nil:
		case item.Gap != nil:
			err = w.gap(item.Gap)
		default:
			if err = w.endGap(file); err == nil {
				err = w.binding.Batch(item.Batch)
			}
			if w.at = item.Batch.Head(); err == nil {
				err = w.compare(file)
			}
		}
		if err != nil {
			return w.differenceIn(file, err)
		}
	}
	w.binding.endSegment()
	return nil
}

// gap goes over batches that are forgotten. A head that ends among them cannot be compared. Whether one that ends with them
// can, the next batch says: no batch continues the hashes in a gap, so that they alone prove nothing.
func (w *walk) gap(g *segment.Gap) error {
	if w.gapAt == 0 {
		w.gapAt = w.size() + 1
	}
	err := w.binding.gap(g)
	w.at = g.After
	w.passOver(func(h *proof.TreeHead) bool { return h.Size < w.size() })
	return err
}

// endGap is called before a batch that continues what is before it. If that is a gap, heads that end with it are compared: by
// the hash of their batch, if they have it.
func (w *walk) endGap(where string) error {
	if w.gapAt == 0 {
		return nil
	}
	w.passOver(func(h *proof.TreeHead) bool { return h.Size == w.size() && h.Revision == 0 })
	w.gapAt = 0
	return w.compare(where)
}

// passOver notes that the next heads cannot be compared, as long as they end in the gap.
func (w *walk) passOver(ends func(*proof.TreeHead) bool) {
	for len(w.Heads) > 0 && ends(&w.Heads[0]) {
		w.incomparable = append(w.incomparable, Incomparable{w.Heads[0], w.gapAt, w.size()})
		w.Heads = w.Heads[1:]
	}
}

// batch verifies that a batch, whose hash has been computed, continues what is before it.
func (w *walk) batch(p *eventlog.Parts) error {
	if err := p.Follows(w.at); err != nil {
		return err
	}
	b, err := p.Decode()
	if err != nil {
		return err
	}
	if started := b.Events[0].Meta.GetEpochStarted(); started != nil {
		w.Epochs = append(w.Epochs, segment.Epoch{LostFrom: started.GetLostFrom(), Next: started.GetNext()})
	}
	if err := w.endGap(w.source.Name); err != nil {
		return err
	}
	if err := w.binding.Batch(b); err != nil {
		return err
	}
	w.at = p.Head()
	w.Batches++
	w.Events += uint64(len(p.Entries))
	return w.compare(w.source.Name)
}
