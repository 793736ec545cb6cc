package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment"
)

var _ eventlog.Filler = (*Archive)(nil)

// FillWith sets what [Archive.Fill] does: it gets the segments up to a revision from elsewhere, and installs them. It MUST
// be called before the archive is used.
func (a *Archive) FillWith(fill func(ctx context.Context, upto uint64) error) { a.fill = fill }

// Fill implements [eventlog.Filler].
func (a *Archive) Fill(ctx context.Context, upto uint64) error {
	if a.fill == nil {
		return errors.ErrUnsupported
	}
	return a.fill(ctx, upto)
}

// Lack is why an archive can use a segment of elsewhere.
type Lack int

// The reasons.
const (
	// LacksNothing: the archive has the segment, or other segments with its revisions, or has forgotten them.
	LacksNothing Lack = iota
	// LacksNewest: it is behind the end of the archive.
	LacksNewest
	// LacksGeneration: the archive has an earlier generation of it.
	LacksGeneration
	// LacksDamaged: the archive's files are damaged or missing.
	LacksDamaged
)

// Lacks returns why the archive can use a segment with these revisions and of this generation.
func (a *Archive) Lacks(first, last uint64, generation uint32) Lack {
	s := a.state.Load()
	for i := range s.slots {
		slot := &s.slots[i]
		if slot.last < first || slot.first > last {
			continue
		}
		foreign := (*foreignError)(nil)
		switch {
		case errors.As(slot.err, &foreign):
			return LacksNothing
		case slot.err != nil:
			return LacksDamaged
		case slot.first == first && slot.last == last && generation > slot.info.Generation:
			return LacksGeneration
		}
		return LacksNothing
	}
	if first > s.tip().Revision {
		return LacksNewest
	}
	return LacksNothing
}

// Install moves the two files of a segment into the archive, given the path of its .log file, which is in another folder
// of the same disk. It reads them in full first, and checks that the segment continues the one before it, and is
// continued by the one behind it: it takes the place of a damaged or missing segment or of an earlier generation, or
// comes behind the newest one. It reports false, and leaves the files, if the archive can not use the segment. The error
// is a [*segment.DamagedError] if the files are damaged.
func (a *Archive) Install(ctx context.Context, path string) (bool, error) {
	from, err := segment.Open(path, nil)
	if err != nil {
		return false, err
	}
	sum, err := segment.Sum(path)
	if err != nil {
		return false, err
	}
	from.SetSum(sum)
	if err := from.Verify(ctx); err != nil {
		return false, err
	}
	info := from.Info()
	if info.Log != a.o.Log {
		return false, &foreignError{path, info.Log, a.o.Log}
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	lack := a.Lacks(info.First, info.Last, info.Generation)
	if lack == LacksNothing {
		return false, nil
	}
	s := a.state.Load()
	if err := s.fits(&info, lack); err != nil {
		return false, fmt.Errorf("archive: %s: %w", path, err)
	}
	if lack == LacksNewest {
		a.abandon()
	}
	made, err := a.take(&info, from.Paths())
	if err != nil {
		return false, fmt.Errorf("archive: install %s: %w", path, err)
	}
	if lack != LacksGeneration {
		return true, a.insert(made)
	}
	i := s.slotAt(info.First)
	old := s.slots[i]
	next := &state{slots: slices.Clone(s.slots), beyond: s.beyond}
	next.slots[i] = made
	a.state.Store(next)
	a.replaceSums(&old.info, &made.info)
	a.removeSegment(old.file)
	return true, nil
}

// fits returns why a segment cannot be where the archive lacks it; nil if it can.
func (s *state) fits(info *segment.Info, lack Lack) error {
	i := s.slotAt(info.First) // the slot in whose place it comes, or behind which
	if lack == LacksGeneration {
		// The batches that are left must be those of before: a gap could hide that others follow it.
		if was := &s.slots[i].info; was.Before != info.Before || was.After != info.After || was.Ordinal != info.Ordinal || !slices.EqualFunc(was.Tree, info.Tree, bytes.Equal) {
			return fmt.Errorf("%w: it is not a later generation of the segment that is there", eventlog.ErrDiverged)
		}
		return nil
	}
	before, after := i, i+1 // the neighbors
	if i >= 0 && s.slots[i].err != nil {
		before = i - 1
	}
	for after < len(s.slots) && s.slots[after].last <= info.Last {
		after++
	}
	joined := false // by a hash to a neighbor
	if before < 0 {
		if joined = info.Before.Revision == 0; joined && info.Ordinal != 0 {
			return fmt.Errorf("%w: it does not begin the log", eventlog.ErrDiverged)
		}
	} else if s.slots[before].err == nil {
		if reason := contradiction(&s.slots[before].info, info); reason != "" || s.slots[before].info.After != info.Before {
			return fmt.Errorf("%w: it does not continue the segment before it", eventlog.ErrDiverged)
		}
		joined = true
	}
	if after < len(s.slots) && s.slots[after].err == nil {
		next := &s.slots[after].info
		if reason := contradiction(info, next); reason != "" {
			return fmt.Errorf("%w: the segment behind it does not continue it", eventlog.ErrDiverged)
		}
		joined = joined || i >= 0 && next.Before == info.After && s.slots[i].first == info.First
	}
	if !joined {
		return errors.New("the segment before it is not there")
	}
	return nil
}

// take moves the files of a segment that was read in full into the folder. The .log file comes last, as when a segment is
// written.
func (a *Archive) take(info *segment.Info, paths [2]string) (slot, error) {
	for i := range paths {
		name := info.Files[1-i].Name
		if err := a.folder.allow("rename", name); err != nil {
			return slot{}, err
		}
		if err := os.Rename(paths[1-i], a.folder.join(name)); err != nil {
			return slot{}, err
		}
		if err := a.folder.sync(); err != nil {
			return slot{}, err
		}
	}
	files := [2]string{a.folder.join(info.Files[0].Name), a.folder.join(info.Files[1].Name)}
	return slot{first: info.First, last: info.Last, segment: segment.Of(*info, files, a.cache), info: *info, file: info.Files[0].Name, readBack: true}, nil
}

// replaceSums replaces the hashes of a segment's files by those of its next generation.
func (a *Archive) replaceSums(old, made *segment.Info) {
	for i := range old.Files {
		delete(a.sums, old.Files[i].Name)
		a.sums[made.Files[i].Name] = made.Files[i].SHA256
	}
	if err := a.writeSums(); err != nil {
		a.o.Logger.Warn("the list of the hashes of segments cannot be written; the next start computes them", "error", err)
	}
}

// Scrub reads segments in full that this process has not read yet, and calls pause after each. The next look at
// [Archive.Damaged] and [Archive.Lacks] knows those that are damaged. The error is that of pause, or of a context that
// ended.
func (a *Archive) Scrub(ctx context.Context, pause func() error) error {
	done := map[string]bool{}
	for {
		s := a.state.Load()
		i := slices.IndexFunc(s.slots, func(slot slot) bool { return slot.err == nil && !done[slot.file] })
		if i < 0 {
			return ctx.Err()
		}
		done[s.slots[i].file] = true
		unread := s.slots[i]
		unread.readBack = false
		if err := a.check(ctx, unread); err != nil && ctx.Err() == nil {
			a.o.Logger.Error("a segment of the log is damaged", "error", err)
		}
		if err := pause(); err != nil {
			return err
		}
	}
}
