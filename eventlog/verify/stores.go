package verify

import (
	"context"
	"iter"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment"
)

// Stored reads batches of a log's store.
type Stored interface {
	// Verbatim returns batches that follow a position, without waiting; none if it is the tip.
	Verbatim(ctx context.Context, after eventlog.Head) ([]*eventlog.Parts, error)
}

// BatchesOf returns a function for [Source.Batches] that reads a store.
func BatchesOf(log Stored) func(ctx context.Context, after eventlog.Head, visit func(*eventlog.Parts) error) error {
	return func(ctx context.Context, after eventlog.Head, visit func(*eventlog.Parts) error) error {
		for {
			batches, err := log.Verbatim(ctx, after)
			if err != nil || len(batches) == 0 {
				return err
			}
			for _, b := range batches {
				if err := visit(b); err != nil {
					return err
				}
				after = b.Head()
			}
		}
	}
}

// ConfirmBy returns a function for [Source.Confirm] that asks a log without an archive.
func ConfirmBy(log *eventlog.Log) func(ctx context.Context, at eventlog.Head) error {
	return func(ctx context.Context, at eventlog.Head) error {
		_, err := log.CatchUp(ctx, at) // compares the position with the head
		return err
	}
}

// Archive is the part of an archive that is verified.
type Archive interface {
	// Tip returns the position after the newest segment; the zero Head if there is none.
	Tip() eventlog.Head
	// Segment returns the segment that has what follows a position; nil if none has. The error says why it is damaged.
	Segment(after eventlog.Head) (*segment.Segment, error)
	// Damaged returns an error for every segment that cannot be read.
	Damaged() []error
}

// SegmentsOf returns the segments of an archive for [Source.Segments].
func SegmentsOf(a Archive) iter.Seq2[*segment.Segment, error] {
	return func(yield func(*segment.Segment, error) bool) {
		at := eventlog.Head{}
		for at.Revision < a.Tip().Revision {
			of, err := a.Segment(at)
			if !yield(of, err) || err != nil {
				return
			}
			at = of.Info().After
		}
		for _, err := range a.Damaged() { // behind the newest good one
			yield(nil, err)
			return
		}
	}
}
