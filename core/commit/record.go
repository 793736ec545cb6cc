package commit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/checkpoint"
)

// Record commits an event about the log itself, under whatever policy is in force, and returns its revision. Errors are those
// of [Committer.Commit].
func (c *Committer) Record(ctx context.Context, entry *eventlog.Entry) (uint64, error) {
	for {
		_, revision, err := c.Commit(ctx, &Proposal{Entry: entry, Checks: Checks{PolicyRevision: c.Tip().PolicyRevision()}})
		if !errors.As(err, new(*Stale)) || ctx.Err() != nil {
			return revision, err
		}
		if _, err := c.Confirm(ctx); err != nil { // another policy was activated
			return 0, err
		}
	}
}

// RecordHead commits an event that is never forgotten, so that the tree head that ends with it stays comparable.
func (c *Committer) RecordHead(ctx context.Context) (uint64, error) {
	entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_TREE_HEAD_TAKEN, Skippable: true}})
	if err != nil {
		return 0, err
	}
	return c.Record(ctx, entry)
}

// RecordCheckpoint commits an event that says what the fold of the log is at an earlier revision. By it others believe the
// file of that checkpoint. A reader that does not know the event's type skips it.
func (c *Committer) RecordCheckpoint(ctx context.Context, revision uint64, fold checkpoint.Hash) (uint64, error) {
	entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{
		Type: logpb.Type_TYPE_CHECKPOINT_RECORDED, Skippable: true,
		Detail: &logpb.Metadata_CheckpointRecorded{CheckpointRecorded: &logpb.CheckpointRecorded{Revision: revision, Fold: fold[:]}},
	}})
	if err != nil {
		return 0, err
	}
	return c.Record(ctx, entry)
}

// RecordErased commits an event that says what the past is before a part of it is erased, and what may be.
func (c *Committer) RecordErased(ctx context.Context, erased *logpb.PastErased) error {
	entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{
		Type: logpb.Type_TYPE_PAST_ERASED, Skippable: true, Detail: &logpb.Metadata_PastErased{PastErased: erased},
	}})
	if err != nil {
		return err
	}
	_, err = c.Record(ctx, entry)
	return err
}

var (
	// ErrUnrecorded reports a checkpoint of which the log has no record: it is of an earlier version of the program, it was
	// made just before a crash, or it is forged.
	ErrUnrecorded = errors.New("the log has no record of this checkpoint")
	// ErrForged reports a checkpoint that is not the one that the log has recorded for its revision.
	ErrForged = errors.New("the checkpoint is not the one that the log has recorded for its revision: it was changed after it was made")
)

// record says what the log's records are about the fold of a revision.
type record struct {
	revision uint64
	fold     checkpoint.Hash
	same     bool // the log has recorded it
	other    bool // it has recorded another one; a replica of another version may fold otherwise
}

// note looks at the events of a batch.
func (r *record) note(b *eventlog.Batch) {
	for _, e := range b.Events {
		if is := e.Meta.GetCheckpointRecorded(); is != nil && is.GetRevision() == r.revision {
			same := bytes.Equal(is.GetFold(), r.fold[:])
			r.same, r.other = r.same || same, r.other || !same
		}
	}
}

// verdict returns nil, [ErrUnrecorded] or [ErrForged].
func (r *record) verdict() error {
	switch {
	case r.same:
		return nil
	case r.other:
		return ErrForged
	}
	return ErrUnrecorded
}

// CheckRecorded returns an error unless the log has recorded a checkpoint: [ErrUnrecorded], [ErrForged], or that of reading
// the log. It goes back from the newest batch, and believes a record only if every batch behind it continues the one
// before: so it is bound to the log's store, wherever the older batches come from. Nothing behind the older one of two checkpoints
// is ever erased.
func CheckRecorded(ctx context.Context, log eventlog.Reader, revision uint64, fold checkpoint.Hash) error {
	r := &record{revision: revision, fold: fold}
	var next *eventlog.Batch // the one behind
	for from := uint64(math.MaxInt64); from > revision && !r.same; {
		batches, err := log.Back(ctx, from, 256)
		if errors.As(err, new(*eventlog.ForgottenError)) || err == nil && len(batches) == 0 {
			break
		}
		if err != nil {
			return err
		}
		for _, b := range batches {
			if next != nil && next.Previous != b.Hash {
				return fmt.Errorf("%w: what is before revision %d is forgotten", r.verdict(), next.First)
			}
			if b.Last() <= revision || r.same {
				return r.verdict()
			}
			r.note(b)
			next = b
		}
		from = next.First - 1
	}
	return r.verdict()
}

// recorded says whether the log has recorded the fold at a position. It reads on from there, and ends at the record.
func recorded(ctx context.Context, log eventlog.Reader, at eventlog.Head, fold checkpoint.Hash) error {
	r := &record{revision: at.Revision, fold: fold}
	for !r.same {
		batches, err := log.CatchUp(ctx, at)
		if err != nil {
			return err
		}
		if len(batches) == 0 {
			break
		}
		for _, b := range batches {
			r.note(b)
		}
		at = batches[len(batches)-1].Head()
	}
	return r.verdict()
}

// checkActivation returns an error if a policy is not the one that the log has activated at its revision.
func checkActivation(ctx context.Context, log eventlog.Reader, tip *Tip) error {
	active := tip.Policies.Active
	if active == nil {
		return nil
	}
	batches, err := log.Back(ctx, active.Revision, 1)
	if errors.As(err, new(*eventlog.ForgottenError)) {
		return nil // only the checkpoint has it: the segments of that time are gone
	}
	if err != nil {
		return err
	}
	activates := func(e *eventlog.Event) bool {
		return e.Revision == active.Revision && bytes.Equal(e.Meta.GetPolicyActivated().GetDigest(), active.Digest[:])
	}
	if len(batches) == 0 || !slices.ContainsFunc(batches[0].Events, activates) {
		return fmt.Errorf("%w: policy %v was not activated at revision %d", ErrForged, active.Digest, active.Revision)
	}
	return nil
}

// CheckRecorded is [CheckRecorded] for the committer's log.
func (c *Committer) CheckRecorded(ctx context.Context, revision uint64, fold checkpoint.Hash) error {
	return CheckRecorded(ctx, c.log, revision, fold)
}

// VisitErased visits the records of the past before parts of it were erased, the newest first, until visit returns false. Those before
// the newest gap are not visited. It goes back from the newest batch as [CheckRecorded] does.
func VisitErased(ctx context.Context, log eventlog.Reader, visit func(*logpb.PastErased) (more bool)) error {
	var next *eventlog.Batch // the one behind
	for from := uint64(math.MaxInt64); ; from = next.First - 1 {
		batches, err := log.Back(ctx, from, 256)
		if errors.As(err, new(*eventlog.ForgottenError)) || err == nil && len(batches) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		for _, b := range batches {
			if next != nil && next.Previous != b.Hash {
				return nil
			}
			for _, e := range slices.Backward(b.Events) {
				if is := e.Meta.GetPastErased(); is != nil && !visit(is) {
					return nil
				}
			}
			next = b
		}
	}
}
