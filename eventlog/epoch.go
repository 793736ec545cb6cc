package eventlog

import (
	"context"
	"fmt"

	"stele.dev/stele/eventlog/logpb"
)

// StartEpoch declares that history was lost: the log was restored from a backup and ends at `after`, but
// clients have seen later revisions. lostFrom is the first lost revision. The epoch begins at revision
// next, with the event that declares it. next MUST be above every revision that was ever issued, so that
// no revision is issued twice. The revisions from lostFrom up to next are in no history any more.
//
// Like [Log.Append] it is conditional on `after` being the tip. If it is not, another process writes to
// the log: the batch is nil, and newer holds some or all of what follows. StartEpoch is safe for
// concurrent use. Errors are those of Append.
func (l *Log) StartEpoch(ctx context.Context, after Head, lostFrom, next uint64) (started *Batch, newer []*Batch, err error) {
	switch {
	case after.Log != l.id || after.Revision == 0:
		return nil, nil, fmt.Errorf("eventlog: an epoch follows a position of log %v, not %v", l.id, after)
	case next <= after.Revision:
		return nil, nil, fmt.Errorf("eventlog: an epoch cannot start at revision %d, the log ends at %d", next, after.Revision)
	case lostFrom <= after.Revision || lostFrom > next:
		return nil, nil, fmt.Errorf("eventlog: lost revisions before %d cannot begin at %d, the log ends at %d", next, lostFrom, after.Revision)
	}
	draft, err := draftOf(&logpb.Metadata{
		Type:   logpb.Type_TYPE_EPOCH_STARTED,
		Detail: &logpb.Metadata_EpochStarted{EpochStarted: &logpb.EpochStarted{LostFrom: lostFrom, Next: next}},
	})
	if err != nil {
		return nil, nil, err
	}
	before := after
	before.Epoch, before.Revision = after.Epoch+1, next-1
	if err := l.learnLevel(ctx); err != nil {
		return nil, nil, err
	}
	draft.level = l.Level()
	batch, value := draft.place(before, l.writer, newID(), l.logTime(), l.clock.read())
	answer, err := l.settle(ctx, Proposal{From: after.Encode(), To: batch.Head().Encode(), At: next, Value: value, Frees: draft.frees})
	if err != nil {
		return nil, nil, err
	}
	if !answer.Applied && !holds(answer, batch) {
		newer, err = l.CatchUp(ctx, after)
		if err != nil || len(newer) == 0 || newer[0].Nonce != batch.Nonce {
			return nil, newer, err
		}
		newer = newer[1:] // an earlier attempt was applied, and its batch has moved to the archive since
	}
	draft.won(batch)
	l.remember(after, []*Batch{batch})
	return batch, newer, nil
}

// holds reports whether the answer to a proposal has its batch: an earlier attempt was applied.
func holds(answer Answer, b *Batch) bool {
	if len(answer.Batches) == 0 || answer.Batches[0].First != b.First {
		return false
	}
	stored, err := DecodeBatch(b.First, answer.Batches[0].Value)
	return err == nil && stored.Nonce == b.Nonce
}
