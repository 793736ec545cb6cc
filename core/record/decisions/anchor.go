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

// anchors records the heads that it is given in the log of record, until the context ends. Then done is closed. It has a
// goroutine of its own, because that log may hang, and decisions are recorded all the same.
func (r *Recorder) anchors(ctx context.Context) (heads chan eventlog.Head, done <-chan struct{}) {
	heads = make(chan eventlog.Head, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var newest eventlog.Head // in the log of record
		for {
			select {
			case head := <-heads:
				if head != newest && r.anchor(ctx, head) {
					newest = head
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return heads, ended
}

// offer gives a head to the goroutine that records heads. It replaces one that still waits. Only one goroutine offers.
func offer(heads chan eventlog.Head, head eventlog.Head) {
	select {
	case <-heads:
	default:
	}
	heads <- head
}

// anchor records a head in the log of record, and reports whether that succeeded.
func (r *Recorder) anchor(ctx context.Context, head eventlog.Head) bool {
	if r.o.Anchor == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, every/2)
	defer cancel()
	if err := r.o.Anchor(ctx, head); err != nil {
		r.o.Logger.Warn("the head of the log of decisions is not recorded in the log; the next minute tries again", "error", err)
		return false
	}
	return true
}
