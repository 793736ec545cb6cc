package decisions

import (
	"context"
	"errors"

	"stele.dev/stele/eventlog"
)

// maxFound bounds how many decisions with one audit ID are found: clients choose these IDs.
const maxFound = 64

// Find returns the decisions with an audit ID, the newest first, at most 64. Those that were taken a moment ago may be
// missing. A Recorder that is nil finds nothing.
func (r *Recorder) Find(ctx context.Context, auditID string) (found []*eventlog.Event, err error) {
	if r == nil || auditID == "" {
		return nil, nil
	}
	for _, revision := range r.index.find(auditID) {
		batches, err := r.log.Back(ctx, revision, 1)
		if errors.As(err, new(*eventlog.ForgottenError)) {
			continue
		}
		if err != nil {
			return found, err
		}
		for _, b := range batches {
			for i := len(b.Events) - 1; i >= 0; i-- {
				if e := b.Events[i]; e.Meta.GetRequest().GetAuditId() == auditID {
					if found = append(found, e); len(found) == maxFound {
						return found, nil
					}
				}
			}
		}
	}
	return found, nil
}
