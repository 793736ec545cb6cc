package past

import (
	"context"
	"errors"
	"iter"
	"runtime"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/core/status"
	"stele.dev/stele/limits/memory"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

const (
	// overhead is the approximate memory of an object besides its JSON, in bytes.
	overhead = 256
	// pointers is the approximate memory of an object in a state, if the present has it as well.
	pointers = 80
)

// sizedState is a state and the memory it takes.
type sizedState struct {
	state *objects.State
	bytes int
}

// errGrown reports that a state needs more memory than it has a share of.
var errGrown = errors.New("past: the state is larger than its share of memory")

// makeCounted makes a state with a share of memory, which is given back when the state is collected. How much it needs is
// known only when it is made. If it needs more, and there is no room, it begins again once it has a larger share: to wait
// with the share that it has could be a deadlock.
func (p *Past) makeCounted(ctx context.Context, tip *commit.Tip, at place) (*sizedState, error) {
	// The policy in force is loaded first: it may need the definitions of then, which have a share of their own.
	if _, err := p.rendererAt(ctx, tip, at.GroupResource, at.revision); err != nil {
		return nil, err
	}
	for share := int64(leastShare); ; {
		m, err := p.makeWithin(ctx, tip, at, &share)
		if !errors.Is(err, errGrown) {
			return m, err
		}
		// Twice as much, or all that there is: the error for a larger share would say that the state never fits.
		share = max(min(2*share, p.memory.Most(memory.Past)), share+leastShare)
	}
}

// makeWithin makes a state with a share of memory to begin with, which it makes larger while there is room. It returns errGrown
// if the state needs more.
func (p *Past) makeWithin(ctx context.Context, tip *commit.Tip, at place, share *int64) (m *sizedState, err error) {
	taken, err := p.memory.Share(ctx, memory.Past, *share)
	if err != nil {
		return nil, err
	}
	defer func() {
		if m == nil { // also after a panic
			*share = taken.Size()
			taken.Free()
		}
	}()
	made, err := p.makeState(ctx, tip, at.GroupResource, at.revision, p.history.List(ctx, at.GroupResource, at.namespace, at.revision), func(bytes int) bool {
		for int64(bytes) > taken.Size() {
			if !taken.Grow(leastShare) {
				return false
			}
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	runtime.AddCleanup(made.state, func(s *memory.Share) { s.Free() }, taken)
	return made, nil
}

// leastShare is the least share of memory of a state, and by how much a share grows.
const leastShare = 4 << 20

// makeState returns the state of a resource, made from the last change of each object. If grow is not nil, it is told how
// much memory the state has, and returns false if it may not have that much.
func (p *Past) makeState(ctx context.Context, tip *commit.Tip, r schema.GroupResource, revision uint64, changes iter.Seq2[*history.Change, error], grow func(bytes int) bool) (*sizedState, error) {
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
		v := objects.Version{Object: render.present(c)}
		if v.Object == nil {
			if v.Payload, err = render.payload(ctx, c); err != nil {
				return nil, err
			}
			v.Revision = c.Revision
			m.bytes += len(v.Payload) + overhead
		}
		m.bytes += pointers
		versions = append(versions, v)
		if grow != nil && !grow(m.bytes) {
			return nil, errGrown
		}
	}
	m.state, err = objects.StateOf(render.kind, revision, versions)
	return m, err
}

// present returns the object of a change as it is now, if the change is its last one and the policy in force shows it as the
// past one did. States of the past share it with the present.
func (l *renderer) present(c *history.Change) *objects.Object {
	if in := l.tip.Policies.Active; in == nil || l.tip.Policies.Form().Kinds() != l.form.Kinds() || l.policy == nil {
		return nil
	}
	o := l.tip.Objects.Get(l.kind.GroupResource, c.Object.GetNamespace(), c.Object.GetName())
	if o == nil || o.Revision != c.Revision {
		return nil
	}
	return o
}

// renderer renders the objects of a resource as the policy in force at a revision defines them. It is for one goroutine.
type renderer struct {
	p      *Past
	tip    *commit.Tip
	kind   objects.Kind
	policy *policy.Kind // nil if the policy does not have the resource
	form   policies.Form
	stored func([]byte) ([]byte, error)
}

func (p *Past) rendererAt(ctx context.Context, tip *commit.Tip, r schema.GroupResource, revision uint64) (*renderer, error) {
	l := &renderer{p: p, tip: tip, kind: objects.Kind{GroupResource: r}}
	record, found := tip.Policies.InForce(revision)
	if !found || commit.OfLayer(r) { // they are shown as they were written, whatever is in force
		return l, nil
	}
	loaded, err := p.loadPolicy(ctx, tip, record)
	if err != nil {
		return nil, err
	}
	l.form = record.Form()
	if l.policy = loaded.policy.Kind(r); l.policy != nil {
		l.kind, l.stored = commit.KindOf(l.policy), versions.Stored(l.policy)
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
	if l.policy == nil || !found || record.Form().Kinds() == l.form.Kinds() {
		return true, nil
	}
	pair := formPair{record.Form().Kinds(), l.form.Kinds(), l.kind.GroupResource}
	if same, found := l.p.forms.Get(pair); found {
		return same, nil
	}
	record.Rules = 0 // kinds do not depend on them
	loaded, err := l.p.loadPolicy(ctx, l.tip, record)
	if apierrors.IsResourceExpired(err) || errors.Is(err, history.ErrForgotten) {
		return false, nil // its definitions are not kept any more: to render what has the same form changes nothing
	}
	if err != nil {
		return false, err
	}
	was := loaded.policy.Kind(l.kind.GroupResource)
	same := was != nil && was.SameForm(l.policy.Kind)
	l.p.forms.Add(pair, same, 1)
	return same, nil
}
