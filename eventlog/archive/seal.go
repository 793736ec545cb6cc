package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment"
)

// Source is where batches are sealed from, as they are stored. [eventlog.Log] is one.
type Source interface {
	// Verbatim returns batches that follow a position, without waiting; none if it is the tip. The error is an
	// [eventlog.MissingError] if it does not have them any more.
	Verbatim(ctx context.Context, after eventlog.Head) ([]*eventlog.Parts, error)
}

var _ Source = (*eventlog.Log)(nil)

// unsealed is a segment that is being written.
type unsealed struct {
	writer        *segment.Writer
	log, payloads *file
}

func (u *unsealed) abandon() {
	u.log.abandon()
	u.payloads.abandon()
}

// Seal makes segments of the batches up to a position, which the source must have. A segment that is not complete is
// continued by the next call. It returns the number of new segments. After an error, the next call begins the segment
// again. The first call tries to make damaged segments again, too.
func (a *Archive) Seal(ctx context.Context, log Source, tip eventlog.Head) (sealed int, err error) {
	a.writing.Lock()
	defer a.writing.Unlock()
	if a.unlisted {
		if err := a.writeSums(); err != nil {
			return 0, fmt.Errorf("archive: %w", err)
		}
	}
	if !a.tried {
		a.tried = true
		a.repair(ctx, log)
	}
	for {
		more, err := a.sealOne(ctx, log, tip)
		if err != nil {
			a.abandon()
			return sealed, fmt.Errorf("archive: seal what follows revision %d: %w", a.Tip().Revision, a.explain(err))
		}
		if !more {
			return sealed, nil
		}
		sealed++
	}
}

// explain adds to an error of the source what the archive lacks.
func (a *Archive) explain(err error) error {
	var missing *eventlog.MissingError
	if errors.As(err, &missing) {
		return errors.Join(append([]error{err}, a.Damaged()...)...)
	}
	return err
}

// sealOne continues the segment that is being written, and reports whether it is complete.
func (a *Archive) sealOne(ctx context.Context, log Source, tip eventlog.Head) (bool, error) {
	s := a.state.Load()
	at := s.end(len(s.slots), a.o.Log)
	if a.begun != nil {
		at.head = a.begun.writer.After()
	}
	for at.head.Revision < tip.Revision {
		batches, err := log.Verbatim(ctx, at.head)
		if err != nil {
			return false, err
		}
		if len(batches) == 0 {
			return false, fmt.Errorf("the log ends at %v, not at %v", at.head, tip)
		}
		for _, p := range batches {
			if p.Last() > tip.Revision {
				return false, nil
			}
			if err := a.append(p, at); err != nil {
				return false, err
			}
			at.head = p.Head()
			if a.full() {
				return true, a.complete(ctx)
			}
		}
	}
	return false, nil
}

// end is the end of a segment in the log.
type end struct {
	head    eventlog.Head
	ordinal uint64 // number of batches up to it
}

// end returns where the slot before slot i ends.
func (s *state) end(i int, log eventlog.ID) end {
	if i == 0 {
		return end{head: eventlog.Head{Log: log}}
	}
	info := &s.slots[i-1].info
	return end{info.After, info.Ordinal + info.Batches}
}

// append appends a batch to the segment that is being written, or begins one.
func (a *Archive) append(p *eventlog.Parts, at end) error {
	if a.begun == nil {
		const unnamed = "new"
		log, err := a.folder.create(unnamed + segment.LogFile)
		if err != nil {
			return err
		}
		payloads, err := a.folder.create(unnamed + segment.PayloadsFile)
		if err != nil {
			log.abandon()
			return err
		}
		a.begun = &unsealed{segment.NewWriter(log, payloads, at.head, at.ordinal), log, payloads}
	}
	return a.begun.writer.Add(p)
}

func (a *Archive) full() bool {
	return a.begun.writer.Revisions() >= a.o.SegmentRevisions || a.begun.writer.Plain() >= a.o.SegmentBytes
}

func (a *Archive) abandon() {
	if a.begun != nil {
		a.begun.abandon()
		a.begun = nil
	}
}

// complete finishes the segment that is being written and adds it to the archive.
func (a *Archive) complete(ctx context.Context) error {
	u := a.begun
	info, err := u.writer.Finish()
	if err != nil {
		return err
	}
	made, err := a.publish(ctx, info, u.log, u.payloads)
	if err != nil {
		return err
	}
	a.begun = nil
	return a.insert(made)
}

// publish makes the two files of a segment durable, reads them back, and gives them their names.
func (a *Archive) publish(ctx context.Context, info *segment.Info, log, payloads *file) (slot, error) {
	made := slot{first: info.First, last: info.Last, info: *info, file: info.Files[0].Name, readBack: true}
	if err := a.refuseForeign(made); err != nil {
		return slot{}, err
	}
	if err := errors.Join(payloads.sync(), log.sync()); err != nil {
		return slot{}, err
	}
	written := segment.Of(*info, [2]string{a.folder.join(log.name + temporary), a.folder.join(payloads.name + temporary)}, nil)
	if err := written.Verify(ctx); err != nil {
		return slot{}, fmt.Errorf("reading back: %w", err)
	}
	for i, f := range []*file{payloads, log} {
		if err := f.publish(info.Files[1-i].Name); err != nil {
			return slot{}, err
		}
		if err := a.folder.sync(); err != nil { // the .payloads file never comes after the .log file
			return slot{}, err
		}
	}
	made.segment = segment.Of(*info, [2]string{a.folder.join(info.Files[0].Name), a.folder.join(info.Files[1].Name)}, a.cache)
	return made, nil
}

// refuseForeign returns an error if the names of a segment are those of another log's.
func (a *Archive) refuseForeign(made slot) error {
	s := a.state.Load()
	for _, slots := range [][]slot{s.slots, s.beyond} {
		for _, other := range slots {
			if foreign := (*foreignError)(nil); errors.As(other.err, &foreign) && other.first == made.first && other.last == made.last {
				return foreign
			}
		}
	}
	return nil
}

// insert adds a new segment at the end, or in the place of damaged ones, and removes the damaged files that it replaces.
func (a *Archive) insert(made slot) error {
	s := a.state.Load()
	next := &state{}
	i := s.slotAt(made.first)
	if i < 0 || s.slots[i].err == nil {
		i++
	}
	next.slots = append(next.slots, s.slots[:i]...)
	next.slots = append(next.slots, made)
	for _, old := range s.slots[i:] {
		if old.first > made.last {
			next.slots = append(next.slots, old)
		} else if old.last > made.last { // the rest of what is missing
			next.slots = append(next.slots, slot{first: made.last + 1, last: old.last, file: old.file, err: old.err})
		}
	}
	var replaced []slot
	for _, old := range append(slices.Clone(s.beyond), s.slots[i:]...) {
		foreign := (*foreignError)(nil)
		if old.err == nil || errors.As(old.err, &foreign) || old.last > made.last && old.first > made.first {
			continue
		}
		if old.first >= made.first && old.last <= made.last {
			replaced = append(replaced, old)
		}
	}
	for _, old := range s.beyond {
		if !slices.ContainsFunc(replaced, func(r slot) bool { return r.file == old.file && r.first == old.first }) {
			next.beyond = append(next.beyond, old)
		}
	}
	a.state.Store(next)
	for _, old := range replaced {
		delete(a.sums, old.file)
		if old.file != made.file {
			a.removeSegment(old.file)
		}
	}
	for _, f := range made.info.Files {
		a.sums[f.Name] = f.SHA256
	}
	return a.writeSums()
}

// repair tries to make damaged segments between others again, as far as the source still has their batches. What it
// cannot make stays damaged.
func (a *Archive) repair(ctx context.Context, log Source) {
	for i := 0; i < len(a.state.Load().slots) && ctx.Err() == nil; i++ {
		s := a.state.Load()
		if s.slots[i].err == nil || i > 0 && s.slots[i-1].err != nil {
			continue
		}
		if err := a.repairSlot(ctx, log, s, i); err != nil {
			a.abandon()
			a.o.Logger.Warn("a damaged segment cannot be made again from the log", "file", s.slots[i].file, "error", err)
			continue
		}
		a.o.Logger.Info("a damaged segment was made again from the log", "file", s.slots[i].file)
	}
}

// repairSlot makes the segment again that begins a damaged slot.
func (a *Archive) repairSlot(ctx context.Context, log Source, s *state, i int) error {
	if s.slots[i].first > 1 && i == 0 {
		return errors.New("the position before it is not known")
	}
	limit := s.slots[i].last
	if i+1 < len(s.slots) && s.slots[i+1].err == nil {
		limit = s.slots[i+1].info.Before.Revision
	}
	at := s.end(i, a.o.Log)
	for {
		batches, err := log.Verbatim(ctx, at.head)
		if err != nil {
			return err
		}
		if len(batches) == 0 {
			return errors.New("the log ends before it")
		}
		for _, p := range batches {
			if p.Last() > limit {
				return fmt.Errorf("the batch at revision %d goes beyond revision %d", p.First, limit)
			}
			if err := a.append(p, at); err != nil {
				return err
			}
			if at.head = p.Head(); at.head.Revision == limit || a.full() {
				return a.complete(ctx)
			}
		}
	}
}
