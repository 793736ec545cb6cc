package decisions

import (
	"context"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// Anchor returns the event that records a head of a replica's log of decisions in the log of record, and how far the sinks
// of the audit log are that this replica feeds for all. A reader that does not know its type skips it.
func Anchor(replica string, head eventlog.Head, sinks []*logpb.SinkCursor) (*eventlog.Entry, error) {
	return eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{
		Type: logpb.Type_TYPE_DECISIONS_ANCHORED, Skippable: true,
		Detail: &logpb.Metadata_DecisionsAnchored{DecisionsAnchored: &logpb.DecisionsAnchored{
			Replica: replica, LogId: head.Log[:], Revision: head.Revision, Hash: head.Hash[:], Sinks: sinks,
		}},
	}})
}

// anchor records the head in the log of record, if it has changed.
func (r *Recorder) anchor(ctx context.Context) {
	if r.o.Anchor == nil || r.tip == r.anchored {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, every/2)
	defer cancel()
	if err := r.o.Anchor(ctx, r.tip); err != nil {
		r.o.Logger.Warn("the head of the log of decisions is not recorded in the log; the next minute tries again", "error", err)
		return
	}
	r.anchored = r.tip
}
