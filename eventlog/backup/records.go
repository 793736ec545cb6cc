package backup

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"

	"stele.dev/stele/eventlog"
)

// FoldOf reads the file of a checkpoint, which it closes, and returns the hash of the fold that is in it.
type FoldOf func(ctx context.Context, file io.ReadCloser) (fold [32]byte, err error)

// UnrecordedError reports a checkpoint that cannot be compared: the log of the backup has no record of it. A former version
// made it, or somebody who can write to the place.
type UnrecordedError struct{ Revision uint64 }

func (e *UnrecordedError) Error() string {
	return fmt.Sprintf("the checkpoint of revision %d cannot be compared: the log has no record of it", e.Revision)
}

// revision returns the revision of the checkpoint; 0 for nil.
func (e *UnrecordedError) revision() uint64 {
	if e == nil {
		return 0
	}
	return e.Revision
}

// records are the folds that a log has recorded, by their revisions. Its checksum in the manifest says nothing of who wrote a
// checkpoint; an event of the log, which the hash chain binds to the head, does.
type records map[uint64][][]byte

// note looks at the events of a batch.
func (r records) note(b *eventlog.Batch) {
	for _, e := range b.Events {
		if is := e.Meta.GetCheckpointRecorded(); is != nil {
			r[is.GetRevision()] = append(r[is.GetRevision()], is.GetFold())
		}
	}
}

// check returns an [*UnrecordedError], or a [*brokenError] if the log has recorded another fold for the revision.
func (r records) check(c *Checkpoint, fold [32]byte) error {
	for _, recorded := range r[c.Revision] {
		if bytes.Equal(recorded, fold[:]) {
			return nil
		}
	}
	if len(r[c.Revision]) == 0 {
		return &UnrecordedError{c.Revision}
	}
	return &brokenError{c.File.Stored, fmt.Errorf("it is not the checkpoint that the log has recorded for revision %d: it was changed after it was made", c.Revision)}
}

// checkpointRevision returns the revision of the oldest checkpoint; the end of the backup if it has none. Records come later.
func (m *Manifest) checkpointRevision() uint64 {
	oldest := m.Head.Revision
	for _, c := range m.Checkpoints {
		oldest = min(oldest, c.Revision)
	}
	return oldest
}

// newChain returns what follows the batches of a backup from its beginning, and notes records.
func (m *Manifest) newChain() *chain {
	return &chain{head: eventlog.Head{Log: m.LogID()}, records: records{}, recordsFrom: m.checkpointRevision()}
}

// checkCheckpoint compares a checkpoint, whose file is in a store, with the records.
func (f *fetcher) checkCheckpoint(ctx context.Context, c *Checkpoint, r records, foldOf FoldOf, temporary string) error {
	s, err := f.spooled(ctx, c.File, temporary)
	if err != nil {
		return err
	}
	defer s.discard()
	return c.compare(ctx, s, r, foldOf)
}

// compare compares the content of a checkpoint's file with the records.
func (c *Checkpoint) compare(ctx context.Context, s *spool, r records, foldOf FoldOf) error {
	fold, err := foldOf(ctx, io.NopCloser(s.reader()))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return &brokenError{path.Base(c.File.Name), err}
	}
	return r.check(c, fold)
}
