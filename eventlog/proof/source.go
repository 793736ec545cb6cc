package proof

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment"
)

// Log is the newest part of a log, which is in no segment. [eventlog.Log] is one.
type Log interface {
	// Verbatim returns batches that follow a position, without waiting; none if it is the tip.
	Verbatim(ctx context.Context, after eventlog.Head) ([]*eventlog.Parts, error)
}

// Segments is the older part of a log. Package archive has one.
type Segments interface {
	// Segments returns what there is, in order.
	Segments() []segment.Info
	// Segment returns the segment that has what follows a position; nil if none has. If it is damaged, this is an error.
	Segment(after eventlog.Head) (*segment.Segment, error)
}

// source reads a log from both.
type source struct {
	log      Log
	segments Segments // nil if there are none
}

// NewSource returns the source of a log. segments is nil if it has none.
func NewSource(log Log, segments Segments) Source { return source{log, segments} }

// Segments implements [Source]. Behind a segment that is damaged it returns none.
func (s source) Segments() ([]Run, error) {
	if s.segments == nil {
		return nil, nil
	}
	var runs []Run
	for _, info := range s.segments.Segments() {
		if len(runs) == 0 && info.Ordinal > 0 {
			return nil, fmt.Errorf("%w: the segments of the log's first %d batches were dropped or are damaged, and with them their hashes", ErrForgotten, info.Ordinal)
		}
		if len(runs) > 0 && runs[len(runs)-1].After != info.Before {
			break
		}
		runs = append(runs, Run{Before: info.Before, After: info.After, Batches: info.Batches, Tree: info.Tree})
	}
	return runs, nil
}

// withSegment calls read with the segment that has what follows a position, nil if it is in none. If the segment's files were
// replaced meanwhile, it calls read with the new ones.
func withSegment[T any](s source, after eventlog.Head, read func(*segment.Segment) (T, error)) (result T, err error) {
	var of *segment.Segment
	for {
		before := of
		if s.segments != nil {
			if of, err = s.segments.Segment(after); err != nil {
				return result, err
			}
		}
		result, err = read(of)
		if !errors.Is(err, fs.ErrNotExist) || of == before {
			return result, err
		}
	}
}

// Read implements [Source].
func (s source) Read(ctx context.Context, after eventlog.Head) ([]Item, error) {
	return withSegment(s, after, func(of *segment.Segment) ([]Item, error) { return s.read(ctx, after, of) })
}

func (s source) read(ctx context.Context, after eventlog.Head, of *segment.Segment) (items []Item, err error) {
	if of == nil {
		batches, err := s.log.Verbatim(ctx, after)
		for _, b := range batches {
			items = append(items, Item{First: b.First, After: b.Head()})
		}
		return items, err
	}
	for step, err := range of.Metadata(ctx, after.Revision) {
		switch {
		case err != nil:
			return nil, err
		case step.Gap == nil:
			items = append(items, Item{First: step.Batch.First, After: step.Batch.Head()})
		case step.Gap.Before.Revision < after.Revision:
			return nil, fmt.Errorf("%w: revision %d", ErrForgotten, after.Revision)
		default:
			gap := &Run{Before: step.Gap.Before, After: step.Gap.After, Batches: step.Gap.Batches, Tree: step.Gap.Tree}
			items = append(items, Item{After: gap.After, Gap: gap})
		}
	}
	return items, nil
}

// Batch implements [Source].
func (s source) Batch(ctx context.Context, after eventlog.Head) (*eventlog.Parts, error) {
	return withSegment(s, after, func(of *segment.Segment) (*eventlog.Parts, error) { return s.batch(ctx, after, of) })
}

func (s source) batch(ctx context.Context, after eventlog.Head, of *segment.Segment) (*eventlog.Parts, error) {
	if of == nil {
		batches, err := s.log.Verbatim(ctx, after)
		if err == nil && len(batches) == 0 {
			err = fmt.Errorf("%w: it ends at %v", eventlog.ErrDiverged, after)
		}
		if err != nil {
			return nil, err
		}
		return batches[0], nil
	}
	for step, err := range of.Verbatim(ctx, after.Revision) {
		if err == nil && step.Gap != nil {
			err = fmt.Errorf("%w: what follows revision %d", ErrForgotten, after.Revision)
		}
		return step.Parts, err
	}
	return nil, fmt.Errorf("%w: segment %s ends before %v", eventlog.ErrDiverged, of.Paths()[0], after)
}
