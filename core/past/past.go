// Package past answers for what was: which revision a moment is, which policy was in force
// then, and what objects there were. It does not say who may ask: that is decided today.
//
// What is shown of an object at a revision is the payload of its last event up to there,
// rendered by the policy in force there if the form of its kind was another one than that under
// which it was written. That is also what the recent changes in memory lead to, which are asked
// first where few of them are to be undone; both give the same bytes.
package past

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

const (
	// policiesKept is how many policies that are not in force any more are kept compiled.
	policiesKept = 4
	// So many of the recent changes in memory are undone for one object, or for all of a resource, for
	// which it is twice as many as there are objects if these are more; from there on history is
	// quicker, and what was made of it is kept.
	undoneForOne, undoneForAll = 100, 2000
	// bytesKept bounds the objects in memory that were made from history, for as long as somebody asks.
	bytesKept = 64 << 20
	// statesKept are kept however large they are: a page of a list, or a part of what an activation
	// changed, must not take the making of all there was.
	statesKept = 2
	// unasked is after how long they are dropped all the same.
	unasked = time.Minute
)

// Past is safe for concurrent use.
type Past struct {
	committer *commit.Committer
	log       eventlog.Reader
	history   *history.Store
	logger    *slog.Logger

	loading *sharing // policies
	making  *sharing // states, which are large
	laws    *cache[policies.Digest, *law]
	forms   *cache[formPair, bool]
	rights  *cache[policies.Digest, *Rights]
	states  *cache[place, *objects.State]
}

// law is a policy with what it was proposed with.
type law struct {
	policy   *policy.Policy
	proposal *policies.Proposal
}

// formPair asks whether a resource has the same form under two policies.
type formPair struct {
	a, b policies.Digest
	schema.GroupResource
}

// place is what a state was made of; all namespaces if that is "".
type place struct {
	schema.GroupResource
	namespace string
	revision  uint64
}

// Options for [New].
type Options struct {
	Committer *commit.Committer
	Log       eventlog.Reader
	History   *history.Store
	Logger    *slog.Logger
}

// New makes a Past.
func New(o Options) *Past {
	p := &Past{
		committer: o.Committer, log: o.Log, history: o.History, logger: o.Logger,
		loading: newSharing(runtime.GOMAXPROCS(0)), making: newSharing(runtime.GOMAXPROCS(0)),
		laws: newCache[policies.Digest, *law](policiesKept), forms: newCache[formPair, bool](4096), states: newCache[place, *objects.State](bytesKept),
		rights: newCache[policies.Digest, *Rights](rightsKept),
	}
	p.states.always, p.states.idle = statesKept, unasked
	return p
}

// lawOf is the policy of an activation that a tip knows of.
func (p *Past) lawOf(ctx context.Context, tip *commit.Tip, r policies.Record) (*law, error) {
	if in := tip.Policies.Active; in != nil && in.Digest == r.Digest {
		return &law{tip.Policy, in.Proposal}, nil
	}
	if l, found := p.laws.get(r.Digest); found {
		return l, nil
	}
	return once(ctx, p.loading, r.Digest.String(), func(ctx context.Context) (*law, error) {
		proposal, err := tip.Policies.Recall(ctx, p.log, r)
		if err != nil {
			return nil, err
		}
		l := &law{proposal: proposal}
		if l.policy, err = p.committer.Load(proposal); err != nil {
			return nil, err
		}
		p.laws.add(r.Digest, l, 1)
		return l, nil
	})
}

// Policy is the one that was in force at a revision that is not above a tip's; nil if there was none.
func (p *Past) Policy(ctx context.Context, tip *commit.Tip, revision uint64) (*policy.Policy, error) {
	r, found := tip.Policies.InForce(revision)
	if !found {
		return nil, nil
	}
	l, err := p.lawOf(ctx, tip, r)
	if err != nil {
		return nil, err
	}
	return l.policy, nil
}

// Tip is what a tip with a policy was at a revision that is not above it, but for its objects: see
// [Past.Objects]. Its error is a Status if no policy was in force yet.
func (p *Past) Tip(ctx context.Context, tip *commit.Tip, revision uint64) (*commit.Tip, error) {
	if err := p.history.Reach(ctx, revision); err != nil {
		return nil, err
	}
	at, err := p.history.Time(ctx, revision)
	if err != nil {
		return nil, err
	}
	then := &commit.Tip{Head: eventlog.Head{Log: tip.Head.Log, Revision: revision}, Time: at}
	r, found := tip.Policies.InForce(revision)
	if !found {
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("no policy was in force at revision %d: the first is since revision %d", revision, tip.Policies.History[0].Revision))
	}
	l, err := p.lawOf(ctx, tip, r)
	if err != nil {
		return nil, err
	}
	then.Policies, then.Policy = tip.Policies.At(revision, l.proposal), l.policy
	then.Activated, err = p.history.Time(ctx, r.Revision)
	return then, err
}

// Object returns an object as it was at a revision that is not above the tip's; nil if it was
// not there.
func (p *Past) Object(ctx context.Context, tip *commit.Tip, r schema.GroupResource, namespace, name string, revision uint64) (*objects.Object, error) {
	switch s, err := p.committer.Objects().AtHand(r, revision, undoneForOne); {
	case err == nil:
		return s.Get(r, namespace, name), nil
	case !errors.Is(err, objects.ErrExpired):
		return nil, err
	}
	if err := p.retained(ctx, revision); err != nil {
		return nil, err
	}
	c, err := p.history.Get(ctx, r, namespace, name, revision)
	if err != nil || c == nil || c.Deleted {
		return nil, err
	}
	s, err := p.made(ctx, tip, r, revision, func(yield func(*history.Change, error) bool) { yield(c, nil) })
	if err != nil {
		return nil, err
	}
	return s.state.Get(r, namespace, name), nil
}

// Objects returns the state of a resource at a revision that is not above the tip's; of what is
// in a namespace only, if that is not "". It may have more than that.
func (p *Past) Objects(ctx context.Context, tip *commit.Tip, r schema.GroupResource, namespace string, revision uint64) (*objects.State, error) {
	switch s, err := p.committer.Objects().AtHand(r, revision, max(undoneForAll, 2*tip.Objects.CountAfter(r, namespace, "", ""))); {
	case err == nil:
		return s, nil
	case !errors.Is(err, objects.ErrExpired):
		return nil, err
	}
	for _, in := range []string{"", namespace} {
		if s, found := p.states.get(place{r, in, revision}); found {
			return s, nil
		}
	}
	if err := p.retained(ctx, revision); err != nil {
		return nil, err
	}
	at := place{r, namespace, revision}
	return once(ctx, p.making, at.String(), func(ctx context.Context) (*objects.State, error) {
		m, err := p.made(ctx, tip, r, revision, p.history.List(ctx, r, namespace, revision))
		if err != nil {
			return nil, err
		}
		p.states.add(at, m.state, m.bytes)
		return m.state, nil
	})
}

// Introduced is the revision behind another one at which the first policy that has a resource came in
// force, 0 if none did, or none of the next few.
func (p *Past) Introduced(ctx context.Context, tip *commit.Tip, r schema.GroupResource, after uint64) (uint64, error) {
	const few = 16
	tried := 0
	for _, record := range tip.Policies.History {
		if record.Revision <= after {
			continue
		}
		if tried++; tried > few {
			break
		}
		l, err := p.lawOf(ctx, tip, record)
		if err != nil {
			return 0, err
		}
		if l.policy.Kind(r) != nil {
			return record.Revision, nil
		}
	}
	return 0, nil
}

// Around tells, of an object that was not there at a revision, at which revisions it was deleted before
// and created after that, up to another one; 0 if it was not.
func (p *Past) Around(ctx context.Context, r schema.GroupResource, namespace, name string, at, upto uint64) (went, came uint64, err error) {
	if err := p.history.Reach(ctx, upto); err != nil {
		return 0, 0, err
	}
	for c, err := range p.history.Versions(ctx, r, namespace, name, upto) {
		if err != nil {
			return 0, 0, err
		}
		if c.Revision <= at {
			went = c.Revision
			break
		}
		came = c.Revision
	}
	return went, came, nil
}
