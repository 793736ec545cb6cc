package eventlog

import (
	"context"
	"fmt"

	"stele.dev/stele/eventlog/logpb"
)

// StartEpoch declares that history was lost: the log has been restored, and ends at `after`,
// but clients have seen revisions behind that. lostFrom is the first of those; the epoch
// begins at revision next, with the event that says so, and next MUST be above every
// revision that was ever issued, so that none is issued twice. Revisions between are in
// no history any more.
//
// Like [Log.Append] it is conditional on `after` being the tip. If it is not, the batch is nil
// and newer holds what follows, some or all of it: whoever writes there is no restore. It
// is safe for concurrent use. Errors are those of Append.
func (l *Log) StartEpoch(ctx context.Context, after Head, lostFrom, next uint64) (started *Batch, newer []*Batch, err error) {
	switch {
	case after.Log != l.id || after.Revision == 0:
		return nil, nil, fmt.Errorf("eventlog: an epoch follows a position of log %v, not %v", l.id, after)
	case next <= after.Revision:
		return nil, nil, fmt.Errorf("eventlog: an epoch cannot start at revision %d, the log ends at %d", next, after.Revision)
	case lostFrom <= after.Revision || lostFrom > next:
		return nil, nil, fmt.Errorf("eventlog: what was lost before revision %d cannot begin at %d, the log ends at %d", next, lostFrom, after.Revision)
	}
	entry, err := Encode(&Event{Meta: &logpb.Metadata{
		Type:   logpb.Type_TYPE_EPOCH_STARTED,
		Detail: &logpb.Metadata_EpochStarted{EpochStarted: &logpb.EpochStarted{LostFrom: lostFrom, Next: next}},
	}})
	if err != nil {
		return nil, nil, err
	}
	draft := NewDraft([]*Entry{entry})
	before := after
	before.Epoch, before.Revision = after.Epoch+1, next-1
	batch, value := draft.place(before, l.writer, newID(), l.logTime(), l.clock.read())
	answer, err := l.settle(ctx, Proposal{From: after.Encode(), To: batch.Head().Encode(), At: next, Value: value})
	if err != nil {
		return nil, nil, err
	}
	if !answer.Applied && !holds(answer, batch) {
		newer, err = l.CatchUp(ctx, after)
		return nil, newer, err
	}
	draft.won(batch)
	l.remember(after, []*Batch{batch})
	return batch, nil, nil
}

// holds tells whether a batch was applied by an earlier try than the one that is answered.
func holds(answer Answer, b *Batch) bool {
	if len(answer.Batches) == 0 || answer.Batches[0].First != b.First {
		return false
	}
	stored, err := DecodeBatch(b.First, answer.Batches[0].Value)
	return err == nil && stored.Nonce == b.Nonce
}
