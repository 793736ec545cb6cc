package past

import (
	"context"
	"iter"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/shown"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

// overhead is the approximate memory of an object besides its JSON, in bytes.
const overhead = 256

// sizedState is a state and the memory it takes.
type sizedState struct {
	state *objects.State
	bytes int
}

// makeState returns the state of a resource, made from the last change of each object.
func (p *Past) makeState(ctx context.Context, tip *commit.Tip, r schema.GroupResource, revision uint64, changes iter.Seq2[*history.Change, error]) (*sizedState, error) {
	render, err := p.rendererAt(ctx, tip, r, revision)
	if err != nil {
		return nil, err
	}
	m := &sizedState{bytes: overhead}
	var versions []objects.Version
	for c, err := range changes {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		payload, err := render.payload(ctx, c)
		if err != nil {
			return nil, err
		}
		versions = append(versions, objects.Version{Payload: payload, Revision: c.Revision})
		m.bytes += len(payload) + overhead
	}
	m.state, err = objects.StateOf(render.kind, revision, versions)
	return m, err
}

// renderer renders the objects of a resource as the policy in force at a revision defines them. It is for one goroutine.
type renderer struct {
	p      *Past
	tip    *commit.Tip
	kind   objects.Kind
	policy *policy.Kind // nil if the policy does not have the resource
	digest policies.Digest
	stored func([]byte) ([]byte, error)
}

func (p *Past) rendererAt(ctx context.Context, tip *commit.Tip, r schema.GroupResource, revision uint64) (*renderer, error) {
	l := &renderer{p: p, tip: tip, kind: objects.Kind{GroupResource: r}}
	record, found := tip.Policies.InForce(revision)
	if !found {
		return l, nil
	}
	loaded, err := p.loadPolicy(ctx, tip, record)
	if err != nil {
		return nil, err
	}
	l.digest = record.Digest
	if l.policy = loaded.policy.Kind(r); l.policy != nil {
		l.kind, l.stored = commit.KindOf(l.policy), shown.Stored(l.policy)
	}
	return l, nil
}

// payload returns the rendered object of a change.
func (l *renderer) payload(ctx context.Context, c *history.Change) ([]byte, error) {
	if c.Payload == nil {
		return nil, status.Expired("what %s %q was at revision %d is not in the log any more", c.Object.GetResource(), c.Object.GetName(), c.Revision)
	}
	same, err := l.sameForm(ctx, c.Revision)
	if err != nil || same {
		return c.Payload, err
	}
	payload, err := l.stored(c.Written())
	if err != nil { // show it as it was written, as an activation does
		l.p.logger.Error("a stored object cannot be shown as its schema wants it", "kind", l.policy.Resource(), "error", err)
		return c.Payload, nil
	}
	return payload, nil
}

// sameForm reports whether an object that was written at a revision is shown as it was written.
func (l *renderer) sameForm(ctx context.Context, written uint64) (bool, error) {
	record, found := l.tip.Policies.InForce(written)
	if l.policy == nil || !found || record.Digest == l.digest {
		return true, nil
	}
	pair := formPair{record.Digest, l.digest, l.kind.GroupResource}
	if same, found := l.p.forms.Get(pair); found {
		return same, nil
	}
	loaded, err := l.p.loadPolicy(ctx, l.tip, record)
	if err != nil {
		return false, err
	}
	was := loaded.policy.Kind(l.kind.GroupResource)
	same := was != nil && was.SameForm(l.policy.Kind)
	l.p.forms.Add(pair, same, 1)
	return same, nil
}
