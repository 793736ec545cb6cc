package decisions

import (
	"context"
	"errors"
	"time"

	"stele.dev/stele/eventlog"
)

// maxFound bounds how many decisions with one audit ID are found: clients choose these IDs.
const maxFound = 64

// settleWithin bounds how long Find waits for decisions to be written.
const settleWithin = 2 * time.Second

// settle waits until the decisions that were taken before the call are written, or for some time.
func (r *Recorder) settle(ctx context.Context) {
	r.mu.Lock()
	idle := len(r.waiting) == 0 && !r.writing
	r.mu.Unlock()
	if idle {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	p := &pending{done: make(chan error, 1)}
	if !r.enqueue(p, true) {
		return
	}
	select {
	case <-p.done:
	case <-ctx.Done():
	}
}

// Find returns the decisions with an audit ID, the newest first, at most 64. A Recorder that is nil finds nothing.
func (r *Recorder) Find(ctx context.Context, auditID string) (found []*eventlog.Event, err error) {
	if r == nil || auditID == "" {
		return nil, nil
	}
	r.settle(ctx)
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
