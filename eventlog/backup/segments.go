package backup

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"path/filepath"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment"
)

const segmentsFolder = "segments"

// segmentOf returns a segment of the archive as a backup copies it.
func segmentOf(i *segment.Info) Segment {
	s := Segment{Before: PositionOf(i.Before), After: PositionOf(i.After), First: i.FirstTime.UTC(), Last: i.LastTime.UTC(), ClockSets: i.ClockSets}
	for _, f := range i.Files {
		s.Files = append(s.Files, StateFile{Name: path.Join(segmentsFolder, f.Name), Size: f.Size, SHA256: hex.EncodeToString(f.SHA256[:])})
	}
	return s
}

// openSegment opens the segment whose files are in a folder, checks both files in full, and that it is the part of the
// log that the manifest says.
func openSegment(ctx context.Context, dir string, part Part, log eventlog.ID) (*segment.Segment, error) {
	if len(part.Files) != 2 {
		return nil, &brokenError{part.Files[0].Stored, errors.New("a segment has two files")}
	}
	sum, err := hex.DecodeString(part.Files[0].PlainSHA256)
	if err != nil || len(sum) != 32 {
		return nil, &brokenError{part.Files[0].Stored, errors.New("its checksum in the manifest is not a SHA-256")}
	}
	s, err := segment.Open(filepath.Join(dir, path.Base(part.Files[0].Name)), nil)
	if err == nil {
		s.SetSum([32]byte(sum))
		err = s.Verify(ctx)
	}
	if damaged := (*segment.DamagedError)(nil); errors.As(err, &damaged) {
		return nil, &brokenError{part.Files[0].Stored, err}
	}
	if err != nil {
		return nil, err
	}
	if i := s.Info(); i.Log != log || PositionOf(i.Before) != part.Before || PositionOf(i.After) != part.After {
		return nil, &brokenError{part.Files[0].Stored, fmt.Errorf("it is another segment, of revisions %d to %d of log %v", i.First, i.Last, i.Log)}
	}
	return s, nil
}

// followSegment checks the files of a segment and the batches in it.
func (c *chain) followSegment(ctx context.Context, f *fetcher, part Part, temporary string) error {
	s, remove, err := f.segment(ctx, part, temporary)
	defer remove()
	if err != nil {
		return err
	}
	if c.v != nil {
		c.v.Batches += s.Info().KeptBatches
		c.v.Events += s.Info().KeptEvents
	}
	if err := c.noteSegment(ctx, s); err != nil || c.visit == nil {
		return err
	}
	for step, err := range s.Verbatim(ctx, 0) {
		if err != nil {
			return err
		}
		if step.Parts == nil {
			continue // forgotten
		}
		b, err := step.Parts.Decode()
		if err != nil {
			return err
		}
		if err := c.visit(b, func() []byte { return step.Parts.Encode().Value }); err != nil {
			return err
		}
	}
	return nil
}

// noteSegment notes the records of a segment. Nothing binds those before a gap to what follows.
func (c *chain) noteSegment(ctx context.Context, s *segment.Segment) error {
	info := s.Info()
	c.past.note(&info)
	if c.past.binding != nil {
		if err := c.past.binding.Segment(ctx, s); err != nil {
			return err
		}
	}
	if c.records == nil || s.Info().Last <= c.recordsFrom {
		return nil
	}
	for item, err := range s.Metadata(ctx, 0) {
		switch {
		case err != nil:
			return err
		case item.Gap != nil:
			clear(c.records)
		default:
			c.records.note(item.Batch)
		}
	}
	return nil
}

// fetchSegment fetches a segment that is restored as a whole.
func (r *restoration) fetchSegment(ctx context.Context, c *chain, part Part) error {
	for _, f := range part.Files {
		if path.Dir(f.Name) != segmentsFolder {
			return fmt.Errorf("the manifest names a file of a segment %s", f.Name)
		}
		if err := r.fetchFile(ctx, f, filepath.Join(r.Dir, filepath.FromSlash(f.Name))); err != nil {
			return err
		}
	}
	s, err := openSegment(ctx, filepath.Join(r.Dir, segmentsFolder), part, c.head.Log)
	if err != nil {
		return err
	}
	for item, err := range s.Metadata(ctx, s.Info().Last-1) {
		if err != nil {
			return err
		}
		if item.Batch != nil {
			r.level = max(r.level, item.Batch.Level())
		}
	}
	c.begin(part)
	if err := c.noteSegment(ctx, s); err != nil {
		return err
	}
	c.head = part.After.Head(c.head.Log)
	r.progress.Revision = part.After.Revision
	if part.Before.Revision > 0 {
		return nil
	}
	for step, err := range s.Verbatim(ctx, 0) {
		if err == nil && step.Parts != nil && step.Parts.First == 1 {
			r.first = step.Parts.Encode()
		}
		return err // the log's first batch is the first step, and never forgotten
	}
	return nil
}
