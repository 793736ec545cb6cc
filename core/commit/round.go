package commit

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

// round is a group of proposals and of callers that want a confirmation. It runs until all of them have their outcome.
type round struct {
	*Committer
	group   []*pending
	waiters []chan struct{}
}

// next returns all callers that want a confirmation, and as many proposals as fit into a batch; nil if there are none.
func (c *Committer) next() *round {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue)+len(c.waiters) == 0 {
		return nil
	}
	r := &round{Committer: c, waiters: c.waiters}
	c.waiters = nil
	size, n := 0, 0
	for _, p := range c.queue {
		const overhead = 16 // of an entry in a batch
		if size += p.Entry.Size() + overhead; n > 0 && size > c.log.BatchLimit() {
			break
		}
		n++
		if p.Entry.Event().Meta.GetType() == logpb.Type_TYPE_POLICY_ACTIVATED {
			break // later proposals must be checked under the new policy
		}
	}
	r.group = c.queue[:n:n]
	if c.queue = c.queue[n:]; len(c.queue) == 0 {
		c.queue = nil
	}
	return r
}

// run repeats until every proposal has its outcome and every caller its confirmation. After an error this replica must
// stop.
func (r *round) run(ctx context.Context) error {
	pause := time.Millisecond
	for len(r.group)+len(r.waiters) > 0 {
		err := r.attempt(ctx)
		switch {
		case err == nil:
			pause = time.Millisecond
		case eventlog.IsFatal(err) || ctx.Err() != nil:
			for _, p := range r.group {
				if p.state.CompareAndSwap(waiting, withdrawn) {
					r.decide(p, outcome{err: fmt.Errorf("%w: %w", ErrNotSent, err)})
				} else { // the failed append may have brought new events
					r.decide(p, outcome{err: fmt.Errorf("%w: %w", ErrUndecided, err)})
				}
			}
			return err
		default: // the backend does not answer
			r.logger.Warn("the log cannot be read", "error", err)
			select {
			case <-time.After(pause):
				pause = min(2*pause, time.Second)
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// attempt evaluates the group against the tip and appends those that pass. If another replica has written in the meantime,
// it applies those events, and undecided proposals stay in the group.
func (r *round) attempt(ctx context.Context) error {
	if r.clockTold == "" { // otherwise Run checks at intervals
		if err := r.checkClock(ctx); err != nil {
			return err
		}
	}
	scratch := r.begin()
	accepted, refused := r.evaluate(scratch)
	var won *eventlog.Batch
	var newer []*eventlog.Batch
	var err error
	if len(accepted) > 0 {
		entries := make([]*eventlog.Entry, len(accepted))
		for i, p := range accepted {
			entries[i] = p.Entry
		}
		won, newer, err = r.log.Append(ctx, r.Tip().Head, eventlog.NewDraft(entries))
	} else if !r.log.Exclusive() {
		newer, err = r.log.CatchUp(ctx, r.Tip().Head)
	}
	switch {
	case errors.Is(err, eventlog.ErrUnknownOutcome):
		r.refuse(accepted, fmt.Errorf("%w: %w", ErrUndecided, err))
		r.group = pendings(refused)
		return err
	case errors.Is(err, eventlog.ErrFull):
		// What frees space is not refused because of the others: it is sent again without them.
		frees, rest := partition(accepted, func(p *pending) bool { return p.Entry.Frees })
		if len(rest) == 0 { // all were refused although they free space
			frees, rest = nil, frees
		}
		r.refuse(rest, err)
		r.group = append(r.unsend(frees), pendings(refused)...)
		return nil
	case eventlog.Refused(err) && len(accepted) > 0: // a read is tried again after a pause
		r.refuse(accepted, err)
		r.group = pendings(refused)
		return nil
	case err != nil:
		return err
	case won != nil:
		r.publish(scratch, won)
		for i, p := range accepted {
			r.decide(p, outcome{tip: r.Tip(), revision: won.Events[i].Revision})
		}
		r.confirm(refused)
	case len(newer) == 0:
		r.confirm(refused)
	default:
		// The decisions were made on an old state.
		r.group = append(r.unsend(accepted), pendings(refused)...)
	}
	return r.apply(newer)
}

// unsend returns the proposals of those who still wait. They are not in the log, and may be withdrawn until they are
// sent again.
func (r *round) unsend(group []*pending) []*pending {
	return slices.DeleteFunc(group, func(p *pending) bool {
		gone := !p.state.CompareAndSwap(sent, waiting)
		if gone {
			r.decide(p, outcome{err: ErrNotSent})
		}
		return gone
	})
}

// partition splits a group.
func partition(group []*pending, is func(*pending) bool) (those, others []*pending) {
	for _, p := range group {
		if is(p) {
			those = append(those, p)
		} else {
			others = append(others, p)
		}
	}
	return those, others
}

// confirm records that the tip was the log's newest state after the round began.
func (r *round) confirm(refused []refusal) {
	r.confirmed.Store(time.Now().UnixNano())
	for _, w := range r.waiters {
		close(w)
	}
	for _, x := range refused {
		x.refuse(x.reason)
	}
	r.group, r.waiters = nil, nil
}

type refusal struct {
	*pending
	reason error
}

func pendings(refused []refusal) (group []*pending) {
	for _, x := range refused {
		group = append(group, x.pending)
	}
	return group
}

// evaluate splits the group into proposals that can be appended together, which are marked as sent and applied to the
// scratch state, and proposals that are refused.
func (r *round) evaluate(s *scratch) (accepted []*pending, refused []refusal) {
	for _, p := range r.group {
		if stale := p.Checks.Evaluate(s.tx.State(), s.policies); stale != nil {
			refused = append(refused, refusal{p, stale})
			continue
		}
		if !p.state.CompareAndSwap(waiting, sent) {
			continue // it was withdrawn
		}
		if err := s.apply(p.Entry.Event(), s.revision+1); err != nil {
			p.state.Store(waiting)
			refused = append(refused, refusal{p, err})
			continue
		}
		accepted = append(accepted, p)
	}
	return accepted, refused
}

// decide sends the outcome to the proposer, if it still waits.
func (r *round) decide(p *pending, o outcome) {
	p.outcome <- o
	if p.state.Load() == abandoned {
		r.logger.Info("a write whose caller had gone is settled",
			"auditID", p.Entry.Event().Meta.GetRequest().GetAuditId(), "revision", o.revision, "error", o.err)
	}
}

func (r *round) refuse(group []*pending, err error) {
	for _, p := range group {
		r.decide(p, outcome{err: err})
	}
}

func (p *pending) refuse(err error) { p.outcome <- outcome{err: err} }

// scratch is the state after a batch that is being built.
type scratch struct {
	*Committer
	tx       *objects.Tx
	policies *policies.State
	policy   *policy.Policy
	revision uint64 // of the last event
}

func (c *Committer) begin() *scratch {
	tip := c.Tip()
	return &scratch{Committer: c, tx: c.objects.Begin(), policies: tip.Policies, policy: tip.Policy, revision: tip.Revision()}
}

// apply folds an event at a revision. On an error the scratch state does not change.
func (s *scratch) apply(e *eventlog.Event, revision uint64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("commit: applying the event at revision %d panicked: %v\n%s", revision, p, debug.Stack())
		}
	}()
	next, err := s.policies.Apply(e, revision)
	if err != nil {
		return err
	}
	active, ahead := s.policy, objects.Rendered(nil)
	if next.ActiveRevision() != s.policies.ActiveRevision() {
		if active, ahead, err = s.ready(next.Active.Proposal); err != nil {
			return fmt.Errorf("commit: the policy activated at revision %d cannot be loaded: %w", revision, err)
		}
	}
	if err := s.tx.Apply(e, revision); err != nil {
		return err
	}
	if active != s.policy {
		s.tx.SetKinds(s.kinds(s.policy, active), ahead)
	}
	s.policies, s.policy, s.revision = next, active, revision+e.Span()-1
	return nil
}

// publish makes the scratch state the tip.
func (c *Committer) publish(s *scratch, b *eventlog.Batch) {
	state := c.objects.Publish(s.tx, b.Last())
	before := c.tip.Load()
	after := &Tip{Head: b.Head(), Time: b.Time, Objects: state, Policies: s.policies, Policy: s.policy, ClockSets: before.ClockSets.After(b)}
	other := before.PolicyRevision() != after.PolicyRevision()
	if after.Activated = before.Activated; other {
		after.Activated = b.Time
	}
	if after.EpochStart = before.EpochStart; b.Epoch != before.Head.Epoch {
		after.EpochStart = b.First
	}
	c.tip.Store(after)
	c.folded.Add(int64(b.Size))
	if other {
		next := make(chan struct{})
		close(*c.policyChanged.Swap(&next))
	}
}

// apply folds batches that are in the log.
func (c *Committer) apply(batches []*eventlog.Batch) error {
	for _, b := range batches {
		s := c.begin()
		for _, e := range b.Events {
			if err := s.apply(e, e.Revision); err != nil {
				return &eventlog.CorruptError{Revision: b.First, Reason: "it cannot be applied: " + err.Error()}
			}
		}
		c.publish(s, b)
	}
	return nil
}
