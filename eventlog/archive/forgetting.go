package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment"
)

// Rewrite forgets a part of the segment whose first revision is `first`: decide says what is kept of each event. It gets
// batches without contents. If the segment changes, its next generation takes its place, and Rewrite returns how many
// bytes smaller it is. A crash leaves one of the two. The last batch of a segment always stays, if only its metadata.
func (a *Archive) Rewrite(ctx context.Context, first uint64, decide func(*eventlog.Batch, *eventlog.Event) segment.Keep) (freed int64, err error) {
	a.writing.Lock()
	defer a.writing.Unlock()
	s := a.state.Load()
	i := s.slotAt(first)
	if i < 0 || s.slots[i].first != first {
		return 0, fmt.Errorf("archive: no segment begins at revision %d", first)
	}
	old := s.slots[i]
	if old.err != nil {
		return 0, old.err
	}
	made, err := a.rewrite(ctx, old.segment, decide)
	if err != nil {
		return 0, fmt.Errorf("archive: rewrite %s: %w", old.file, err)
	}
	if made == nil {
		return 0, nil
	}
	next := &state{slots: slices.Clone(s.slots), beyond: s.beyond}
	next.slots[i] = *made
	a.state.Store(next)
	a.replaceSums(&old.info, &made.info)
	a.removeSegment(old.file)
	return old.info.Size() - made.info.Size(), nil
}

// rewrite writes the next generation of a segment; nil if nothing changes.
func (a *Archive) rewrite(ctx context.Context, old *segment.Segment, decide func(*eventlog.Batch, *eventlog.Event) segment.Keep) (*slot, error) {
	const unnamed = "rewritten"
	log, err := a.folder.create(unnamed + segment.LogFile)
	if err != nil {
		return nil, err
	}
	defer log.abandon()
	payloads, err := a.folder.create(unnamed + segment.PayloadsFile)
	if err != nil {
		return nil, err
	}
	defer payloads.abandon()
	info, err := old.Rewrite(ctx, log, payloads, decide)
	if err != nil || info == nil {
		return nil, err
	}
	made, err := a.publish(ctx, info, log, payloads)
	if err != nil {
		return nil, err
	}
	return &made, nil
}

// Drop forgets the oldest segments that end at a revision or before it, as a whole. The newest segment always stays.
func (a *Archive) Drop(_ context.Context, upto uint64) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	s := a.state.Load()
	n := 0
	for n < len(s.slots)-1 && s.slots[n].last <= upto {
		n++
	}
	if n == 0 {
		return nil
	}
	a.state.Store(&state{slots: s.slots[n:], beyond: s.beyond})
	for _, old := range s.slots[:n] {
		delete(a.sums, old.file)
		delete(a.sums, segment.NameOf(old.file)+segment.PayloadsFile)
	}
	if err := a.writeSums(); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	for _, old := range s.slots[:n] { // the oldest first, so that a crash leaves no gap
		if foreign := (*foreignError)(nil); errors.As(old.err, &foreign) {
			continue
		}
		for _, extension := range []string{segment.LogFile, segment.PayloadsFile} {
			if err := a.folder.remove(segment.NameOf(old.file) + extension); err != nil {
				return fmt.Errorf("archive: %w", err)
			}
		}
	}
	if err := a.folder.sync(); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return nil
}

// Metadata returns all batches that end behind revision `after`, in order, without contents, and the gaps between them.
// It reads only the .log files. The iteration ends after an error, which is about a damaged segment, or an
// [eventlog.ForgottenError] if the next revision is before [Archive.Oldest].
func (a *Archive) Metadata(ctx context.Context, after uint64) iter.Seq2[segment.Item, error] {
	return func(yield func(segment.Item, error) bool) {
		if oldest := a.Oldest(); after < oldest.Revision && len(a.Segments()) > 0 && a.state.Load().slots[0].err == nil {
			yield(segment.Item{}, &eventlog.ForgottenError{Oldest: oldest})
			return
		}
		for {
			s := a.state.Load()
			slot := s.slotBehind(after)
			if slot == nil {
				return
			}
			if slot.err != nil {
				yield(segment.Item{}, slot.err)
				return
			}
			replaced := false
			for item, err := range slot.segment.Metadata(ctx, after) {
				if replaced = errors.Is(err, fs.ErrNotExist) && a.state.Load() != s; replaced {
					break // read on in the files that took the place of these
				}
				if !yield(item, err) || err != nil {
					return
				}
				if after = item.Gap.Last(); item.Batch != nil {
					after = item.Batch.Last()
				}
			}
			if !replaced {
				after = slot.last
			}
		}
	}
}

// slotBehind returns the first slot that ends behind a revision; nil if there is none.
func (s *state) slotBehind(revision uint64) *slot {
	for i := range s.slots {
		if s.slots[i].last > revision {
			return &s.slots[i]
		}
	}
	return nil
}

// Verify reads all files in full and checks them: their hashes, every block, and the chain of all batches. It returns an
// error for each segment that is damaged.
func (a *Archive) Verify(ctx context.Context) []error {
	var errs []error
	verified := map[uint64]bool{}
	for ctx.Err() == nil {
		s := a.state.Load()
		i := slices.IndexFunc(s.slots, func(slot slot) bool { return !verified[slot.first] })
		if i < 0 {
			return append(errs, beyondErrors(s)...)
		}
		slot := s.slots[i]
		err := slot.err
		if err == nil {
			err = slot.segment.Verify(ctx)
		}
		if errors.Is(err, fs.ErrNotExist) && a.state.Load() != s {
			continue
		}
		if verified[slot.first] = true; err != nil {
			errs = append(errs, err)
		}
	}
	return append(errs, ctx.Err())
}

func beyondErrors(s *state) []error {
	var errs []error
	for _, slot := range s.beyond {
		errs = append(errs, slot.err)
	}
	return errs
}
