// Package archive keeps the older batches of a log in a folder of segments (package segment), so that they can be
// removed from the backend. [Archive] is an [eventlog.Archive]; [Keeper] seals segments and trims the backend.
//
// # Folder
//
//	<segment>.log, <segment>.payloads   the segments, see package segment
//	SHA256SUMS                          the hashes of all files: `sha256sum -c SHA256SUMS` checks them
//	*.tmp                               files that are being written; Open removes them
//
// A segment ends with the first batch at which it has so many revisions, or so many bytes of events: every replica cuts
// at the same revisions. It is written to temporary files, synced and read back. Then first the .payloads file gets its
// name and then the .log file, which is the moment from which the segment exists. A rewritten segment has other names,
// with the next generation; the files of the generation before are removed afterwards. So a crash at any moment leaves
// a segment as it was or as it is.
//
// # Damage
//
// [Open] reads the footers of all files, and checks that every segment continues the one before. It names each file that
// is damaged, missing, of another log, or there twice. What is newest and damaged is made again from the backend, as
// long as that has it ([Archive.Seal]); so is any other damaged segment. Until then the revisions of a damaged segment
// cannot be read: the error names the file. All other revisions can.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sort"
	"sync/atomic"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment"
)

// Defaults of [Options].
const (
	DefaultSegmentRevisions = 1 << 16
	DefaultSegmentBytes     = 64 << 20
	DefaultCacheBytes       = 32 << 20
)

// Options for [Open].
type Options struct {
	// Dir is the folder. It is created if it does not exist. Only one process may use it at a time.
	Dir string
	// Log is the ID of the log.
	Log eventlog.ID
	// SegmentRevisions and SegmentBytes say at how many revisions, or bytes of events before compression, a segment
	// ends; DefaultSegmentRevisions and DefaultSegmentBytes if 0. Replicas with the same values have the same files.
	SegmentRevisions uint64
	SegmentBytes     int64
	// CacheBytes bounds the memory for blocks that were read; DefaultCacheBytes if 0.
	CacheBytes int
	// Logger gets messages for operators; nil for none.
	Logger *slog.Logger

	// before is called before every change on the disk, for tests.
	before func(op, name string) error
}

// Archive keeps the older batches of one log in a folder. It is safe for concurrent use.
type Archive struct {
	o      Options
	folder folder
	cache  *segment.Cache
	state  atomic.Pointer[state]
	fill   func(ctx context.Context, upto uint64) error // nil if there is nowhere to get segments from

	writing  turn // held while files change; it guards what follows
	sums     sums
	unlisted bool      // the list on the disk is not sums
	begun    *unsealed // the segment that is being written; nil if there is none
	tried    bool      // damaged segments have been tried to be made again
}

var _ eventlog.Archive = (*Archive)(nil)

// state is the content of an archive at a moment. It is immutable.
type state struct {
	// slots are the segments in order, without a gap between them.
	// Invariant: the last one is not damaged.
	slots []slot
	// beyond are damaged segments behind the last slot. They are made again.
	beyond []slot
}

// slot is a segment, or the place of one that is damaged or missing.
type slot struct {
	first, last uint64
	segment     *segment.Segment // nil if damaged
	info        segment.Info     // of the segment
	file        string           // name of the .log file
	err         error            // why it is damaged
	readBack    bool             // this process has read it in full
}

// tip returns the position after the last slot; the zero Head if there is none.
func (s *state) tip() eventlog.Head {
	if n := len(s.slots); n > 0 {
		return s.slots[n-1].info.After
	}
	return eventlog.Head{}
}

// slotAt returns the last slot that begins at a revision or before it; -1 if there is none.
func (s *state) slotAt(revision uint64) int {
	return sort.Search(len(s.slots), func(i int) bool { return s.slots[i].first > revision }) - 1
}

// Segments returns what the archive has, in order, without segments that are damaged.
func (a *Archive) Segments() []segment.Info {
	var infos []segment.Info
	for _, s := range a.state.Load().slots {
		if s.segment != nil {
			infos = append(infos, s.info)
		}
	}
	return infos
}

// Damaged returns an error for every segment that cannot be read. It names the file.
func (a *Archive) Damaged() []error {
	s := a.state.Load()
	var errs []error
	for _, slots := range [][]slot{s.slots, s.beyond} {
		for _, slot := range slots {
			if slot.err != nil {
				errs = append(errs, slot.err)
			}
		}
	}
	return errs
}

// Dir returns the folder of the archive.
func (a *Archive) Dir() string { return a.o.Dir }

// Tip implements [eventlog.Archive].
func (a *Archive) Tip() eventlog.Head { return a.state.Load().tip() }

// Oldest returns the position before the oldest batch that is kept. If the archive is empty, this is the position before
// the first batch of the log.
func (a *Archive) Oldest() eventlog.Head { return a.state.Load().oldest(a.o.Log) }

func (s *state) oldest(log eventlog.ID) eventlog.Head {
	for _, slot := range s.slots {
		if slot.segment != nil {
			return slot.info.Kept
		}
	}
	return eventlog.Head{Log: log}
}

// After implements [eventlog.Archive]. If batches were forgotten ([Archive.Rewrite]), it passes over them: the first
// batch that it returns then does not continue the position, or another one the batch before.
func (a *Archive) After(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	return retried(a, func(s *state) ([]*eventlog.Batch, error) { return a.batchesAfter(ctx, s, after) })
}

func (a *Archive) batchesAfter(ctx context.Context, s *state, after eventlog.Head) ([]*eventlog.Batch, error) {
	tip := s.tip()
	if after.Log != a.o.Log || after.Revision >= tip.Revision {
		return nil, fmt.Errorf("archive: %v is not a position before the end of the archive, %v", after, tip)
	}
	slot := &s.slots[sort.Search(len(s.slots), func(i int) bool { return s.slots[i].last > after.Revision })]
	if slot.err != nil {
		return nil, slot.damage(slot.err)
	}
	if oldest := s.oldest(a.o.Log); after.Revision < oldest.Revision {
		return nil, &eventlog.ForgottenError{Oldest: oldest}
	}
	batches, gap, err := slot.segment.After(ctx, after.Revision)
	if err != nil {
		return nil, slot.damage(err)
	}
	if len(batches) == 0 {
		return nil, fmt.Errorf("archive: segment %s has no batch after %v", slot.file, after)
	}
	previous := batches[0].Previous
	if gap != nil {
		previous = gap.Before.Hash
	}
	inGap := gap != nil && after.Revision > gap.Before.Revision // then the hash of the position is not kept
	if !inGap && after.Hash != previous {
		return nil, fmt.Errorf("%w: revision %d of segment %s does not continue %v", eventlog.ErrDiverged, batches[0].First, slot.file, after)
	}
	return batches, nil
}

// Back implements [eventlog.Archive]. It passes over batches that were forgotten: the first batch that it returns may so
// end before `from`.
func (a *Archive) Back(ctx context.Context, from uint64, max int) ([]*eventlog.Batch, error) {
	return retried(a, func(s *state) ([]*eventlog.Batch, error) { return a.batchesBack(ctx, s, from, max) })
}

func (a *Archive) batchesBack(ctx context.Context, s *state, from uint64, max int) (batches []*eventlog.Batch, err error) {
	for i := s.slotAt(from); i >= 0 && len(batches) < max; i-- {
		slot := &s.slots[i]
		err := slot.err
		var more []*eventlog.Batch
		if err == nil {
			more, err = slot.segment.Back(ctx, from, max-len(batches))
		}
		if err != nil && len(batches) > 0 && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) {
			return batches, nil // the next call gets the error
		}
		if err != nil {
			return nil, slot.damage(err)
		}
		batches = append(batches, more...)
	}
	if oldest := s.oldest(a.o.Log); len(batches) == 0 && max > 0 && oldest.Revision > 0 {
		return nil, &eventlog.ForgottenError{Oldest: oldest}
	}
	return batches, nil
}

// damage returns an error of reading the segment with the revisions that it has. The end of a context says nothing of it.
func (s *slot) damage(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || eventlog.IsFatal(err) {
		return err
	}
	return &eventlog.DamageError{From: s.first, To: s.last, Err: err}
}

// retried reads from the current state. If its files were replaced meanwhile, it reads from the next one.
func retried[T any](a *Archive, read func(*state) (T, error)) (T, error) {
	for {
		s := a.state.Load()
		v, err := read(s)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return v, err
		}
		if a.state.Load() == s {
			var path *os.PathError
			var damage *eventlog.DamageError
			if errors.As(err, &path) && errors.As(err, &damage) {
				err = &eventlog.DamageError{From: damage.From, To: damage.To, Err: &segment.DamagedError{File: path.Path, Reason: "it is missing"}}
			}
			return v, err
		}
	}
}
