package commit

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/projections/quotas"
)

// round is a group of proposals that are decided together.
type round struct {
	*Committer
	group []*pending
}

// nextRound takes as many proposals as fit into a batch.
func (c *Committer) nextRound() *round {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &round{Committer: c}
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

// putBack makes proposals the next ones to be decided.
func (c *Committer) putBack(group []*pending) {
	if len(group) == 0 {
		return
	}
	err := c.enqueue(c.wake, func() { c.queue = append(group[:len(group):len(group)], c.queue...) })
	if err != nil {
		for _, p := range group {
			p.refuse(fmt.Errorf("%w: %w", status.ErrNotSent, err))
		}
	}
}

// run decides proposals: it evaluates the group against the tip and appends those that pass. If another replica has
// written in the meantime, it applies those events, and puts undecided proposals back. After an error this replica
// must stop.
func (r *round) run(ctx context.Context) error {
	err := r.attempt(ctx)
	if err == nil {
		return nil
	}
	for _, p := range r.group {
		if p.state.CompareAndSwap(waiting, withdrawn) {
			r.decide(p, outcome{err: fmt.Errorf("%w: %w", status.ErrNotSent, err)})
		} else { // the failed append may have brought new events
			r.decide(p, outcome{err: fmt.Errorf("%w: %w", status.ErrUndecided, err)})
		}
	}
	return err
}

func (r *round) attempt(ctx context.Context) error {
	if r.clockTold == "" { // otherwise move checks at intervals
		if err := r.checkClock(ctx); err != nil {
			return err
		}
	}
	scratch := r.begin()
	accepted, refused := r.evaluate(scratch)
	if len(accepted) == 0 {
		r.confirmRefusals(refused)
		return nil
	}
	entries := make([]*eventlog.Entry, len(accepted))
	for i, p := range accepted {
		entries[i] = p.Entry
	}
	begun := time.Now()
	won, newer, err := r.log.Append(ctx, r.Tip().Head, eventlog.NewDraft(entries))
	switch {
	case errors.Is(err, eventlog.ErrFull):
		// What frees space is not refused because of the others: it is sent again without them.
		frees, rest := partition(accepted, func(p *pending) bool { return p.Entry.Frees })
		if len(rest) == 0 { // all were refused although they free space
			frees, rest = nil, frees
		}
		r.refuse(rest, err)
		r.putBack(append(r.unsend(frees), pendings(refused)...))
		return nil
	case eventlog.Refused(err) && len(accepted) > 0: // a read is tried again after a pause
		r.refuse(accepted, err)
		r.putBack(pendings(refused))
		return nil
	case err != nil:
		return err
	case won != nil:
		r.publish(scratch, won)
		r.noteConfirmed(begun)
		for i, p := range accepted {
			r.decide(p, outcome{tip: r.Tip(), revision: won.Events[i].Revision})
		}
		for _, x := range refused { // on a tip that was the log's newest when the append was applied
			x.refuse(x.reason)
		}
		r.group = nil
		return r.apply(newer)
	default: // the decisions were made on an old state
		r.putBack(append(r.unsend(accepted), pendings(refused)...))
		r.group = nil
		return r.apply(newer)
	}
}

// confirmRefusals refuses proposals if the tip was confirmed after they were made. The others wait for that.
func (r *round) confirmRefusals(refused []refusal) {
	for _, x := range refused {
		if x.confirmed || r.log.Exclusive() {
			x.refuse(x.reason)
		} else if err := r.askAgain(x.pending); err != nil {
			x.refuse(fmt.Errorf("%w: %w", status.ErrNotSent, err))
		}
	}
}

// unsend returns the proposals of those who still wait. They are not in the log, and may be withdrawn until they are
// sent again.
func (r *round) unsend(group []*pending) []*pending {
	return slices.DeleteFunc(group, func(p *pending) bool {
		gone := !p.state.CompareAndSwap(sent, waiting)
		if gone {
			r.decide(p, outcome{err: status.ErrNotSent})
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
		if exceeded := s.checkQuota(p.Proposal); exceeded != nil {
			refused = append(refused, refusal{p, exceeded})
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
	quotas   *quotas.State
	measured *quotas.Write // what the next event to apply is measured as; nil if that is not known
	revision uint64        // of the last event
}

func (c *Committer) begin() *scratch {
	tip := c.Tip()
	return &scratch{Committer: c, tx: c.objects.Begin(), policies: tip.Policies, policy: tip.Policy, quotas: tip.Quotas, revision: tip.Revision()}
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
	if next.Activated() != s.policies.Activated() {
		if active, ahead, err = s.ready(next.Active.Proposal); err != nil {
			return fmt.Errorf("commit: the policy activated at revision %d cannot be loaded: %w", revision, err)
		}
	}
	changed := len(s.tx.Changes())
	if err := s.tx.Apply(e, revision); err != nil {
		return err
	}
	kinds, rules := changesLayer(s.tx.Changes()[changed:])
	if kinds {
		next = next.ChangeLayer(revision)
	}
	if rules {
		next = next.ChangeRules(revision)
	}
	if kinds || rules || active != s.policy {
		active = s.Layered(active, s.policy, s.tx.State())
	}
	if active != s.policy && (s.policy == nil || !slices.Equal(s.policy.Kinds(), active.Kinds())) {
		s.tx.SetKinds(s.kinds(s.policy, active), ahead)
	}
	s.count(active, s.tx.Changes()[changed:])
	s.policies, s.policy, s.revision = next, active, revision+e.Span()-1
	return nil
}

// checkQuota returns why the object of a proposal does not fit into the resource quotas of its namespace; nil if it does.
func (s *scratch) checkQuota(p *Proposal) (exceeded *quotas.Exceeded) {
	s.measured = nil
	k := p.Checks.Object
	if !p.Checks.Quota || k == nil || len(s.quotas.Quotas(k.Namespace)) == 0 {
		return nil
	}
	before := s.tx.State().Get(k.GroupResource, k.Namespace, k.Name)
	exceeded, s.measured = s.quotas.Fits(k.GroupResource, k.Namespace, before, p.Entry.Event().Content(logpb.Role_ROLE_OBJECT))
	return exceeded
}

// count makes the usage of quotas that of the scratch state, after changes under a policy.
func (s *scratch) count(active *policy.Policy, changes []*objects.Change) {
	if active != nil && !active.Quotas().Same(s.quotas.Rules()) {
		s.quotas = quotas.New(active.Quotas(), s.tx.State())
	} else if len(changes) > 0 {
		s.quotas = s.quotas.Apply(changes, s.tx.State(), s.measured)
	}
	s.measured = nil
}

// publish makes the scratch state the tip, before watchers hear of its changes: a request of a client that has heard of one is decided
// with it.
func (c *Committer) publish(s *scratch, b *eventlog.Batch) {
	before := c.tip.Load()
	after := &Tip{Head: b.Head(), Time: b.Time, Policies: s.policies, Policy: s.policy, Quotas: s.quotas, ClockSets: before.ClockSets.After(b)}
	other := before.PolicyRevision() != after.PolicyRevision()
	if after.Activated = before.Activated; before.Policies.Activated() != after.Policies.Activated() {
		after.Activated = b.Time
	}
	if after.EpochStart = before.EpochStart; b.Epoch != before.Head.Epoch {
		after.EpochStart = b.First
	}
	c.objects.PublishAfter(s.tx, b.Last(), func(state *objects.State) {
		after.Objects = state
		c.tip.Store(after)
	})
	c.folded.Add(int64(b.Size))
	grown := make(chan struct{})
	close(*c.grown.Swap(&grown))
	if other {
		next := make(chan struct{})
		close(*c.policyChanged.Swap(&next))
	}
}

// applyNew folds those of several batches of the log that are after the tip.
func (c *Committer) applyNew(batches []*eventlog.Batch) error {
	tip := c.Tip().Revision()
	return c.apply(slices.DeleteFunc(slices.Clone(batches), func(b *eventlog.Batch) bool { return b.Last() <= tip }))
}

// apply folds batches that follow the tip.
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
