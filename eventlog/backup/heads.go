package backup

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path"
	"path/filepath"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/proof"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/eventlog/verify"
	"stele.dev/stele/limits/durable"
)

// compareHeads compares the log of a backup with tree heads. The error is a [*verify.Difference], a
// [*verify.IncomparableError], or says why the backup cannot be read.
func (f *fetcher) compareHeads(ctx context.Context, heads []proof.TreeHead, temporary string) error {
	again := *f
	again.done = nil
	m := f.manifest
	_, err := verify.Log(ctx, verify.Source{
		ID: m.LogID(), Name: "backup " + m.Name(),
		Segments: again.segments(ctx, temporary),
		Batches: func(ctx context.Context, after eventlog.Head, visit func(*eventlog.Parts) error) error {
			return again.batches(ctx, temporary, after, visit)
		},
		Confirm: func(_ context.Context, at eventlog.Head) error {
			if PositionOf(at) != m.Head {
				return eventlog.ErrDiverged
			}
			return nil
		},
	}, verify.Options{Heads: heads})
	return err
}

// segments returns the segments of a backup, each in a folder that is removed afterwards.
func (f *fetcher) segments(ctx context.Context, temporary string) iter.Seq2[*segment.Segment, error] {
	return func(yield func(*segment.Segment, error) bool) {
		for _, part := range f.manifest.Parts {
			if part.Kind != SegmentPart {
				continue
			}
			of, remove, err := f.segment(ctx, part, temporary)
			more := yield(of, err)
			remove()
			if !more || err != nil {
				return
			}
		}
	}
}

// segment fetches a segment. remove removes its files.
func (f *fetcher) segment(ctx context.Context, part Part, temporary string) (of *segment.Segment, remove func(), err error) {
	dir, err := os.MkdirTemp(temporary, ".stele-segment-*")
	if err != nil {
		return nil, func() {}, err
	}
	remove = func() { os.RemoveAll(dir) }
	var bad error
	for _, file := range part.Files {
		to := filepath.Join(dir, path.Base(file.Name))
		err := f.fetch(ctx, file, func(write func(io.Writer) error) error { return durable.WriteFile(to, write) })
		if missing := (*BadFileError)(nil); err != nil && !errors.As(err, &missing) {
			return nil, remove, err
		}
		bad = errors.Join(bad, err) // both files may be bad
	}
	if bad != nil {
		return nil, remove, bad
	}
	of, err = openSegment(ctx, dir, part, f.manifest.LogID())
	return of, remove, err
}

// batches visits the batches behind a position that are in no segment.
func (f *fetcher) batches(ctx context.Context, temporary string, after eventlog.Head, visit func(*eventlog.Parts) error) error {
	for _, part := range f.manifest.Parts {
		if part.Kind != BatchesPart || part.After.Revision <= after.Revision {
			continue
		}
		s, err := f.spooled(ctx, part.Files[0], temporary)
		if err != nil {
			return err
		}
		_, err = ReadBatches(s.reader(), part.Before.Head(f.manifest.LogID()), func(b *eventlog.Batch, value []byte) error {
			parts, err := eventlog.Split(b.First, value)
			if err != nil {
				return err
			}
			return visit(parts)
		})
		s.discard()
		if err != nil {
			return err
		}
	}
	return nil
}
