package plans

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/core/resources/decisionsapi"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/limits/batches"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/projections/history"
)

// Decided are recorded decisions about requests that left no event in the log of record. They are safe for concurrent use.
type Decided interface {
	// Decisions returns events of a decision log, in any order.
	Decisions(context.Context) iter.Seq2[*eventlog.Event, error]
	// Before returns an object as it was at a revision; nil if there was none. known is false if it cannot be told.
	Before(ctx context.Context, o *logpb.Object, revision uint64) (before *history.Change, known bool, err error)
	// Collection returns the objects of the resource and the namespace of an object, as they were at a revision. It ends with
	// [history.ErrForgotten] if they cannot be told.
	Collection(ctx context.Context, o *logpb.Object, revision uint64) iter.Seq2[*history.Change, error]
}

// decided has the decisions of a server since a moment.
type decided struct {
	log     decisionsapi.Log
	history *history.Store
	since   time.Time
}

func (d *decided) Decisions(ctx context.Context) iter.Seq2[*eventlog.Event, error] {
	return func(yield func(*eventlog.Event, error) bool) {
		const batchesAtOnce = 16
		head, err := d.log.ReadHead(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for from := head.Revision; from > 0; {
			batches, err := d.log.Back(ctx, from, batchesAtOnce)
			if errors.As(err, new(*eventlog.ForgottenError)) || err == nil && len(batches) == 0 {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, b := range batches {
				if b.Time.Before(d.since) {
					return
				}
				for _, e := range b.Events {
					if !yield(e, nil) {
						return
					}
				}
				from = b.First - 1
			}
		}
	}
}

func (d *decided) Before(ctx context.Context, o *logpb.Object, revision uint64) (*history.Change, bool, error) {
	c, err := d.history.Get(ctx, schema.GroupResource{Group: o.GetGroup(), Resource: o.GetResource()}, o.GetNamespace(), o.GetName(), revision)
	if errors.Is(err, history.ErrForgotten) {
		return nil, false, nil
	}
	if err != nil || c == nil || c.Deleted {
		return nil, err == nil, err
	}
	return c, true, nil
}

func (d *decided) Collection(ctx context.Context, o *logpb.Object, revision uint64) iter.Seq2[*history.Change, error] {
	return d.history.List(ctx, schema.GroupResource{Group: o.GetGroup(), Resource: o.GetResource()}, o.GetNamespace(), revision)
}

// ofPolicy are the stages in which rules of the policy refuse.
var ofPolicy = map[string]bool{"authorization": true, "mutation": true, "conditions": true, "schema": true, "validation": true}

// replayDecided decides recorded refusals and reads again: which of the refusals the new policy would allow, and which of
// the reads it would refuse. It returns the refusals that depend on stored objects, in the order of their revisions.
func (c *contrasts) replayDecided(ctx context.Context, o *Options) (all *flips, waiting []*eventlog.Event, err error) {
	parts, err := batches.Do(ctx, o.Decided.Decisions(ctx), newFlips, func(ctx context.Context, batch []*eventlog.Event, into *flips) error {
		for _, e := range batch {
			if err := c.decideRequest(ctx, e, into, o); err != nil {
				return fmt.Errorf("record %d: %w", e.Revision, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("recorded decisions cannot be decided again: %w", err)
	}
	all = newFlips()
	for _, part := range parts {
		all.add(part)
		waiting = append(waiting, part.waiting...)
	}
	slices.SortFunc(waiting, func(a, b *eventlog.Event) int { return cmp.Compare(decidedAt(a), decidedAt(b)) })
	return all, waiting, nil
}

// decideRequest decides one recorded refusal or read again, unless it is a refusal that waits for the stored objects of then.
func (c *contrasts) decideRequest(ctx context.Context, e *eventlog.Event, f *flips, o *Options) error {
	d := e.Meta.GetDecision()
	if c := e.Meta.GetDecisionsCounted(); c != nil && c.GetLike().GetOutcome() == logpb.Outcome_OUTCOME_REFUSED {
		f.undecided[isCounted] += int(min(c.GetCount(), 1<<31))
	}
	outcome := d.GetOutcome()
	if outcome != logpb.Outcome_OUTCOME_REFUSED && outcome != logpb.Outcome_OUTCOME_READ || d.GetAuditStage() == 2 { // a watch has a second record
		return nil
	}
	if outcome == logpb.Outcome_OUTCOME_REFUSED && !ofPolicy[d.GetStage()] {
		return nil // for lack of seats, for instance: no rule of a policy refused it
	}
	if target, err := url.ParseRequestURI(e.Meta.GetRequest().GetUri()); err == nil && target.Query().Has("dryRun") {
		return nil
	}
	if why, err := c.unread(ctx, placeOf(e.Meta.GetObject()).GroupResource, o); err != nil || why != "" {
		f.undecided[why]++
		return err
	}
	is, was, err := c.verdicts(ctx, &Record{Change: undone(e), refusal: e}, o)
	if err != nil {
		return err
	}
	if is.unknown == decide.Unread && len(c.read) > 0 {
		if c.keeps(e) {
			f.waiting = append(f.waiting, e)
			return nil
		}
		is.unknown = isTooMuch
	}
	f.countAgain(e, is, was, o)
	return nil
}

// decideRefusal decides a refusal again that waited for the stored objects of then.
func (c *contrasts) decideRefusal(ctx context.Context, r *Record, f *flips, o *Options) error {
	is, was, err := c.verdicts(ctx, r, o)
	if err == nil {
		f.countAgain(r.refusal, is, was, o)
	}
	return err
}

// verdicts decides a recorded refusal or read under the new policy, and under the older one if it flips; otherwise was is empty.
func (c *contrasts) verdicts(ctx context.Context, r *Record, o *Options) (is, was verdict, err error) {
	q := r.question()
	is, err = c.to.decide(ctx, r, q)
	refused := wasRefused(r.refusal)
	if err != nil || is.unknown != "" || (is.stage != "") == refused {
		return is, verdict{}, err
	}
	was, err = c.from.decide(ctx, r, q)
	if err != nil {
		return is, was, err
	}
	made := c.from.policy.Digest()
	switch like := bytes.Equal(r.Meta.GetPolicyDigest(), made[:]); {
	case was.unknown != "":
		is.unknown = was.unknown
	case (was.stage != "") != refused && like && refused:
		is.unknown = wasUnlike
	case (was.stage != "") != refused && like:
		is.unknown = isUnlike
	case (was.stage != "") != refused:
		is = was // the change does not introduce it
	}
	return is, was, nil
}

func wasRefused(e *eventlog.Event) bool {
	return e.Meta.GetDecision().GetOutcome() == logpb.Outcome_OUTCOME_REFUSED
}

// countAgain counts a refusal or a read that was decided again.
func (f *flips) countAgain(e *eventlog.Event, is, was verdict, o *Options) {
	refused := wasRefused(e)
	switch {
	case is.unknown != "":
		f.undecided[is.unknown]++
		return
	case refused:
		f.refusals++
	default:
		f.reads++
	}
	if (is.stage != "") != refused {
		f.countRequest(e, is, was, o)
	}
}

// bytesWaiting limits the memory of refusals that wait for the stored objects of then.
const bytesWaiting = 64 << 20

// keeps reports whether there is room for a refusal that waits.
func (c *contrasts) keeps(e *eventlog.Event) bool {
	return c.waiting.Add(int64(2*proto.Size(e.Meta)+len(e.Content(logpb.Role_ROLE_REQUEST)))) <= bytesWaiting
}

// countRequest adds a request that would be decided otherwise.
func (f *flips) countRequest(e *eventlog.Event, is, was verdict, o *Options) {
	refused := is.stage != ""
	by, message := is, "the new policy refuses it"
	if !refused {
		by, message = was, "the new policy allows it"
	}
	q, r := e.Meta.GetRequest(), e.Meta.GetDecision().GetRevision()
	path, _, _ := strings.Cut(q.GetUri(), "?")
	resource := path
	if e.Meta.GetObject().GetResource() != "" {
		if resource = placeOf(e.Meta.GetObject()).String(); q.GetSubresource() != "" {
			resource += "/" + q.GetSubresource()
		}
	}
	k := flipKey{e.Meta.GetActor().GetUser(), q.GetVerb(), resource, by.stage, by.rule, by.path, refused}
	g := &plan.Flip{
		Refused: refused, User: k.user, Verb: k.verb, Resource: resource, Stage: by.stage, Rule: by.rule, Path: by.path, Source: by.source,
		Count: 1, First: r, Last: r, Message: message,
	}
	if at := placeOf(e.Meta.GetObject()).GroupResource; refused && !o.secret(at) {
		g.Message = by.message
	}
	if id := q.GetAuditId(); id != "" {
		g.AuditIDs = []string{id}
	}
	f.ask(k, e.Meta)
	f.merge(k, g, by.failure)
}
