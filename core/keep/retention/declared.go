package retention

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/segment"
)

// declareWithin bounds the time in which the log has to take an event.
const declareWithin = 30 * time.Second

// ErrOtherPast reports segments that are not those of which the log has recorded the hashes, before a part of them was erased.
var ErrOtherPast = errors.New("segments of the log were changed before a gap")

// CheckPast compares segments, which are those of a log from its beginning, with what the log has recorded before a part of them was
// erased. Without a gap there is nothing to compare: the hash chain binds them. bound reports that nothing is left that could not
// be compared. The error is [ErrOtherPast], or that of reading the log.
func CheckPast(ctx context.Context, log eventlog.Reader, segments []segment.Info) (bound bool, err error) {
	_, bound, err = checkPast(ctx, log, segments)
	return bound, err
}

// checkPast is [CheckPast], and returns the newest record that is about these segments. Others may have recorded less since: each replica
// with segments of its own erases at its own time.
func checkPast(ctx context.Context, log eventlog.Reader, segments []segment.Info) (newest *logpb.PastErased, bound bool, err error) {
	at := lastGap(segments)
	if at < 0 {
		return nil, true, nil
	}
	roots := segment.Roots(segments)
	var other error
	err = commit.VisitErased(ctx, log, func(is *logpb.PastErased) (more bool) {
		root, known := roots[is.GetBatches()]
		if !known || root == (eventlog.Hash{}) {
			return true
		}
		if !bytes.Equal(root[:], is.GetRoot()) {
			other = fmt.Errorf("%w: the log has recorded the root %x of its first %d batches, that of the segments is %v", ErrOtherPast, is.GetRoot(), is.GetBatches(), root)
			return false
		}
		newest, bound = cmp.Or(newest, is), is.GetBatches() >= segments[at].Ordinal+segments[at].Batches
		return !bound
	})
	if err = errors.Join(err, other); err != nil {
		return nil, false, err
	}
	return newest, bound, nil
}

// lastGap returns the last segment that lacks batches; -1 if none does.
func lastGap(segments []segment.Info) int {
	for i := range slices.Backward(segments) {
		if segments[i].Gaps() {
			return i
		}
	}
	return -1
}

// Verify reads all segments, and compares them with their hashes, and these with what the log has recorded. It calls pause between
// segments. It is safe for concurrent use, and for a nil Eraser.
func (e *Eraser) Verify(ctx context.Context, pause func() error) error {
	if e == nil {
		return nil
	}
	if err := e.Archive.Scrub(ctx, pause); err != nil {
		return err
	}
	bound, err := CheckPast(ctx, e.Log, e.Archive.Segments())
	if err == nil && !bound && len(e.Archive.Damaged()) == 0 {
		err = errors.New("batches before a gap cannot be compared: the log has no record of what was erased there")
	}
	return errors.Join(append(e.Archive.Damaged(), err)...)
}

// compare compares the segments with what the log has recorded, until that was possible. It is called before the first read of the
// past, and before the log is told anything new of them.
func (e *Eraser) compare(ctx context.Context) error {
	if e.bound || len(e.Archive.Damaged()) > 0 { // their hashes are not known
		return nil
	}
	is, bound, err := checkPast(ctx, e.Log, e.Archive.Segments())
	if errors.Is(err, ErrOtherPast) {
		return fmt.Errorf("%s: %w; find out who can write there, and restore the folder from a backup", e.Archive.Dir(), err)
	}
	if err != nil {
		return err
	}
	for _, f := range is.GetFloors() {
		e.declared[f.GetKind()] = Reached{f.GetContents(), f.GetRecords()}
	}
	if e.bound = bound; !bound {
		e.Logger.Warn("batches before a gap cannot be compared with the log: a former version has erased what was there, and recorded nothing; what they are now is recorded before anything else is erased")
	}
	return nil
}

// declare lets the log say what may be erased from now on, and what the past is before. It says so only if that is new. A log that
// is full erases without it, because erasing is what makes room: then the next pass says it.
func (e *Eraser) declare(ctx context.Context, reached map[string]Reached) error {
	if err := e.compare(ctx); err != nil || e.Record == nil {
		return err
	}
	reached = maps.Clone(reached)
	maps.DeleteFunc(reached, func(_ string, f Reached) bool { return f.Contents == 0 })
	is := &logpb.PastErased{}
	segments := e.Archive.Segments()
	if last := lastErased(segments, reached); last >= 0 && len(e.Archive.Damaged()) == 0 {
		is.Batches = segments[last].Ordinal + segments[last].Batches
		root := segment.Roots(segments)[is.Batches]
		is.Root = root[:]
	}
	if maps.Equal(reached, e.declared) && (e.bound || is.Batches == 0) {
		return nil
	}
	for _, kind := range slices.Sorted(maps.Keys(reached)) {
		is.Floors = append(is.Floors, &logpb.Floor{Kind: kind, Contents: reached[kind].Contents, Records: reached[kind].Records})
	}
	within, cancel := context.WithTimeout(ctx, declareWithin)
	defer cancel()
	err := e.Record(within, is)
	if errors.Is(err, eventlog.ErrFull) {
		e.Logger.Warn("the log has no room to record what is erased: until it has, what is before can be compared with nothing", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("record what is erased: %w", err)
	}
	e.bound, e.declared = is.Batches > 0 || lastGap(segments) < 0, reached
	return nil
}

// lastErased returns the last segment of which a part may be erased; -1 if there is none. A segment is written again once a floor has
// passed it as a whole.
func lastErased(segments []segment.Info, reached map[string]Reached) int {
	floor := uint64(0)
	for _, f := range reached {
		floor = max(floor, f.Contents)
	}
	last := lastGap(segments)
	for i := range segments {
		if segments[i].Last <= floor {
			last = max(last, i)
		}
	}
	return last
}
