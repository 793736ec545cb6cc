package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Archive holds the older batches of a log outside of the backend, so that they can be removed there
// ([Log.Trim]). It MUST have checked that they continue each other and are what the log has. It is safe for
// concurrent use.
//
// An archive may have forgotten batches. After and Back then return a [*ForgottenError] if the first batch
// that they would return is forgotten, and leave out those that are forgotten behind it.
type Archive interface {
	// Tip returns the position after the newest batch; the zero Head if the archive is empty. It never
	// goes back.
	Tip() Head
	// After returns batches that follow a position before Tip, in order, and at least one. It returns
	// [ErrDiverged] if the archive knows the position's revision with another hash.
	After(ctx context.Context, after Head) ([]*Batch, error)
	// Back returns up to max batches that begin at revision `from` or earlier, the newest first, for a
	// `from` up to Tip. It returns fewer only if there are no older ones.
	Back(ctx context.Context, from uint64, max int) ([]*Batch, error)
}

// Filler is an [Archive] that can get batches from elsewhere, such as a bucket that replicas share.
type Filler interface {
	Archive
	// Fill gets the batches between Tip and a revision. It is called if they are neither in the archive nor in the
	// backend. The error is [errors.ErrUnsupported] if there is nowhere to get them from, and a [*MissingError] if they
	// are not there.
	Fill(ctx context.Context, upto uint64) error
}

// SetArchive tells the log where its older batches are. Next, CatchUp and Back then read from the archive
// what it has, and the rest from the backend. It is safe for concurrent use.
func (l *Log) SetArchive(a Archive) { l.archive.Store(&a) }

// Archive returns what SetArchive has set; nil if nothing. It is safe for concurrent use.
func (l *Log) Archive() Archive {
	if a := l.archive.Load(); a != nil {
		return *a
	}
	return nil
}

// Resume tells the log a position and its log time, which the caller knows from a checkpoint: the log then
// appends nothing with an earlier time, although it has not read the batches up to there. It is safe for
// concurrent use.
func (l *Log) Resume(at Head, t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteTime(at.Revision, t)
	l.resumed.Store(true)
}

// Trim removes the batches up to revision upto from the backend, except for the first and the newest one. It
// removes only what the archive has, and returns an error if that has less or another history. It is safe for
// concurrent use; errors of the backend may leave some of them.
func (l *Log) Trim(ctx context.Context, upto uint64) error {
	if upto <= l.first.Last() {
		return nil
	}
	archive := l.archive.Load()
	if archive == nil {
		return errors.New("eventlog: the log has no archive, so nothing can be removed from its store")
	}
	tip := (*archive).Tip()
	if upto > tip.Revision {
		return fmt.Errorf("eventlog: revisions up to %d cannot be removed from the store, the archive ends at %d", upto, tip.Revision)
	}
	if err := l.Continues(ctx, tip); err != nil {
		return fmt.Errorf("eventlog: nothing is removed from the log's store up to revision %d: %w", tip.Revision, err)
	}
	return l.backend.Trim(ctx, upto)
}

// Continues returns nil if the batches in the backend continue a position, or end there. The hash of a position covers
// all that is before it: the position, and so all before it, is then of this log. The error is [ErrDiverged] if it is of
// another history, and a [*MissingError] if the backend does not have what follows any more. It is safe for concurrent
// use.
func (l *Log) Continues(ctx context.Context, at Head) error {
	answer, err := l.backend.Read(ctx, at.Revision+1)
	if err != nil {
		return err
	}
	_, err = l.checkAs(ctx, at, answer, false)
	if gap := (*gapError)(nil); errors.As(err, &gap) {
		return &MissingError{From: at.Revision + 1, To: gap.next.First - 1}
	}
	return err
}

// Usage returns how much the log's backend stores and can store.
func (l *Log) Usage() Usage { return l.backend.Usage() }

// CatchUp implements [Reader].
func (l *Log) CatchUp(ctx context.Context, after Head) ([]*Batch, error) {
	for {
		older := l.older()
		if older.archive != nil && after.Revision < older.tip.Revision {
			return l.fromArchive(ctx, older.archive, after)
		}
		answer, err := l.backend.Read(ctx, after.Revision+1)
		if err != nil {
			return nil, err
		}
		newer, err := l.check(ctx, after, answer)
		if err == nil {
			l.remember(after, newer)
			return newer, nil
		}
		if err := l.gap(ctx, older, after, err); err != nil {
			return nil, err
		}
	}
}

// follow returns what [Log.CatchUp] would, given the backend's answer to a read after that position.
func (l *Log) follow(ctx context.Context, after Head, answer Answer) ([]*Batch, error) {
	newer, err := l.check(ctx, after, answer)
	if errors.As(err, new(*gapError)) {
		return l.CatchUp(ctx, after)
	}
	return newer, err
}

// fromArchive returns batches that follow a position before the archive's tip.
func (l *Log) fromArchive(ctx context.Context, archive Archive, after Head) ([]*Batch, error) {
	batches, err := archive.After(ctx, after)
	if err == nil {
		err = l.open(ctx, batches)
	}
	if err != nil {
		return nil, err
	}
	if len(batches) == 0 {
		return nil, fmt.Errorf("eventlog: the archive has nothing after %v", after)
	}
	l.work.add(batches...)
	switch b := batches[0]; {
	case b.Log != l.id || after.Log != l.id:
		return nil, fmt.Errorf("%w: the archive is of log %v, the position is %v", ErrDiverged, b.Log, after)
	case b.First <= after.Revision, b.First == after.Revision+1 && b.Previous != after.Hash:
		return nil, fmt.Errorf("%w: revision %d of the archive does not continue what was read up to %d", ErrDiverged, b.First, after.Revision)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range batches {
		if err := l.checkLevel(b); err != nil {
			return nil, err
		}
	}
	newest := batches[len(batches)-1]
	l.noteTime(newest.Last(), newest.Time)
	l.noteLevels(batches...)
	return batches, nil
}

// Back implements [Reader]. Nothing is missing between two batches of the backend, except behind the oldest
// that was not trimmed. So only the border to the archive is checked.
func (l *Log) Back(ctx context.Context, from uint64, max int) ([]*Batch, error) {
	batches, err := l.back(ctx, from, max)
	if err := l.open(ctx, batches); err != nil {
		return nil, err
	}
	return batches, err
}

// back is Back. It leaves closed what is sealed.
func (l *Log) back(ctx context.Context, from uint64, max int) ([]*Batch, error) {
	if from < l.first.First {
		return nil, nil
	}
	for {
		older := l.older()
		if from <= older.tip.Revision {
			batches, err := older.batchesBack(ctx, from, max)
			l.work.add(batches...)
			return batches, err
		}
		batches, err := l.backendBack(ctx, older.tip.Revision, from, max)
		if err != nil || len(batches) == max {
			return batches, err
		}
		meet, err := l.meets(ctx, older, from, batches)
		if err != nil {
			if err := l.gap(ctx, older, older.tip, err); err != nil {
				return nil, err
			}
		}
		if !meet {
			continue // something has changed meanwhile
		}
		rest, err := older.batchesBack(ctx, older.tip.Revision, max-len(batches))
		l.work.add(rest...)
		if len(batches) > 0 && errors.As(err, new(*ForgottenError)) {
			err = nil
		}
		return append(batches, rest...), err
	}
}

// backendBack returns up to max batches of the backend that begin at revision `from` or earlier and behind
// revision `behind`, the newest first.
func (l *Log) backendBack(ctx context.Context, behind, from uint64, max int) (batches []*Batch, err error) {
	stored, err := l.backend.ReadBack(ctx, from, max)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	for _, s := range stored {
		if s.First <= behind {
			break
		}
		b, err := l.decode(ctx, s, false)
		if err != nil {
			return nil, err
		}
		batches = append(batches, b)
	}
	return batches, nil
}

// open opens what is sealed in batches that nobody else has seen.
func (l *Log) open(ctx context.Context, batches []*Batch) error {
	for _, b := range batches {
		if err := b.open(ctx, l.keys, l.sealsAlways); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) decode(ctx context.Context, s Stored, open bool) (*Batch, error) {
	b, err := DecodeBatch(s.First, s.Value)
	if err == nil && b.Log != l.id {
		err = &CorruptError{Revision: s.First, Reason: "it belongs to log " + b.Log.String()}
	}
	if err == nil {
		err = l.checkLevel(b)
	}
	if err == nil && open {
		err = l.open(ctx, []*Batch{b})
	}
	if err == nil {
		l.work.add(b)
	}
	return b, err
}

// meets reports whether batches of the backend, the newest first, continue what is older. If there are none up to
// revision `from`, nothing must be between that and what follows in the backend.
func (l *Log) meets(ctx context.Context, older olderBatches, from uint64, batches []*Batch) (bool, error) {
	if n := len(batches); n > 0 {
		if b := batches[n-1]; b.Previous != older.tip.Hash {
			return false, &gapError{b}
		}
		return true, nil
	}
	answer, err := l.backend.Read(ctx, older.tip.Revision+1)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	following, err := l.checkAs(ctx, older.tip, answer, false)
	return err == nil && (len(following) == 0 || following[0].First > from), err
}

// olderBatches are what is before the batches that the backend keeps without a gap.
type olderBatches struct {
	tip     Head
	archive Archive // nil: only the first batch is before
	first   *Batch
}

func (l *Log) older() olderBatches {
	if archive := l.archive.Load(); archive != nil {
		if tip := (*archive).Tip(); tip.Revision > 0 {
			return olderBatches{tip: tip, archive: *archive}
		}
	}
	return olderBatches{tip: l.first.Head(), first: l.first}
}

// batchesBack is as [Archive.Back].
func (o olderBatches) batchesBack(ctx context.Context, from uint64, max int) ([]*Batch, error) {
	if o.archive == nil {
		return []*Batch{o.first}, nil
	}
	return o.archive.Back(ctx, from, max)
}

// gapError reports that a batch does not follow a position, and that those in between may have been trimmed.
type gapError struct{ next *Batch }

func (e *gapError) Error() string {
	return fmt.Sprintf("eventlog: the batches before revision %d are missing", e.next.First)
}

// gap handles an error of reading what follows a position in the backend. It returns nil if the error is a gap
// because the batches have moved to the archive meanwhile, so that the caller reads again; else the error to
// return.
func (l *Log) gap(ctx context.Context, was olderBatches, after Head, err error) error {
	var gap *gapError
	if !errors.As(err, &gap) {
		return err
	}
	if l.older().tip != was.tip {
		return nil
	}
	missing := &MissingError{From: after.Revision + 1, To: gap.next.First - 1}
	stored, err := l.backend.ReadBack(ctx, gap.next.First-1, 1)
	if err != nil {
		return err
	}
	if len(stored) > 0 {
		b, err := l.decode(ctx, stored[0], false)
		if err != nil {
			return err
		}
		if b.Hash == gap.next.Previous { // nothing is missing: the position is not of this log
			return fmt.Errorf("%w: revision %d does not continue what was read up to %d", ErrDiverged, gap.next.First, after.Revision)
		}
		missing.From = max(missing.From, b.Last()+1)
	}
	return l.fill(ctx, was, missing)
}

// fill lets the archive get missing batches. It returns nil if it has some of them, so that the caller reads again; else
// the error to return.
func (l *Log) fill(ctx context.Context, was olderBatches, missing *MissingError) error {
	filler, ok := l.Archive().(Filler)
	if !ok {
		return missing
	}
	switch err := filler.Fill(ctx, missing.To); {
	case l.older().tip != was.tip:
		return nil
	case err == nil, errors.Is(err, errors.ErrUnsupported), errors.As(err, new(*MissingError)):
		return missing
	default:
		return fmt.Errorf("%w: revisions %d to %d are not in the log's store any more, and could not be fetched: %w", ErrUnreadable, missing.From, missing.To, err)
	}
}

// continues reports whether each batch continues the one before, and the first one a position.
func continues(after Head, batches []*Batch) bool {
	for _, b := range batches {
		if b.Previous != after.Hash {
			return false
		}
		after = b.Head()
	}
	return true
}
