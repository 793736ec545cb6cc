package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/verify"
)

// FoldOf reads the file of a checkpoint, which it closes, and returns the hash of the fold that is in it.
type FoldOf func(ctx context.Context, file io.ReadCloser) (fold [32]byte, err error)

// UnrecordedError reports a checkpoint that cannot be compared: the log of the backup has no record of it. A former version
// made it, or somebody who can write to the place.
type UnrecordedError struct{ Revision uint64 }

func (e *UnrecordedError) Error() string {
	return fmt.Sprintf("the checkpoint of revision %d cannot be compared: the log has no record of it", e.Revision)
}

// SealedError reports a checkpoint that cannot be compared with the record that the log has of it, because a part of it is
// encrypted. The server that starts from it has the keys, and compares them.
type SealedError struct {
	Revision uint64
	Err      *eventlog.KeyError

	recorded uint64 // revision of the record
}

func (e *SealedError) Error() string {
	return fmt.Sprintf("the checkpoint of revision %d cannot be compared: a part of it is encrypted under %q, whose key is not given here (--encryption-provider-config)", e.Revision, e.Err.KeyID)
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
type records map[uint64][]recordedFold

// recordedFold is a fold, and the revision of the event that has it.
type recordedFold struct {
	fold []byte
	at   uint64
}

// note looks at the events of a batch.
func (r records) note(b *eventlog.Batch) {
	for _, e := range b.Events {
		if is := e.Meta.GetCheckpointRecorded(); is != nil {
			r[is.GetRevision()] = append(r[is.GetRevision()], recordedFold{is.GetFold(), e.Revision})
		}
	}
}

// check returns an [*UnrecordedError], or a [*brokenError] if the log has recorded another fold for the revision.
func (r records) check(c *Checkpoint, fold [32]byte) error {
	for _, recorded := range r[c.Revision] {
		if bytes.Equal(recorded.fold, fold[:]) {
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
	return &chain{head: eventlog.Head{Log: m.LogID()}, records: records{}, recordsFrom: m.checkpointRevision(), past: past{binding: verify.NewBinding()}}
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
	if key := (*eventlog.KeyError)(nil); errors.As(err, &key) {
		if len(r[c.Revision]) == 0 {
			return &UnrecordedError{c.Revision}
		}
		return &SealedError{c.Revision, key, r[c.Revision][0].at}
	}
	if err != nil {
		return &brokenError{path.Base(c.File.Name), err}
	}
	return r.check(c, fold)
}
