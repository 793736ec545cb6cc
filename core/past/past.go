// Package past answers questions about past revisions: the revision of a moment, the policy in force at it, and the
// objects of that time. It does not check access; the policy in force now decides that.
//
// An object at a revision is the payload of its last event up to that revision. If the policy in force there has
// another form of the kind than the one that the object was written under, the object is rendered by it. The recent
// changes in memory give the same bytes. They are used where only a few of them need to be undone.
package past

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/lru"
	"stele.dev/stele/limits/memory"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas/crd/definitions"
)

const (
	// policiesKept is the number of compiled past policies in the cache.
	policiesKept = 4
	// renderedKept is the number of past activations in the cache of how long rendered objects had been as they were.
	renderedKept = 16
	// undoneForOne and undoneForAll limit how many recent changes in memory are undone to get one object, or all objects
	// of a resource. For a resource with many objects, the limit is twice their number. Beyond it, history is faster.
	undoneForOne, undoneForAll = 100, 2000
	// undoneUncounted is how many changes may be undone for a state without a share of memory, and nodeBytes the memory of a
	// node of the tree, of which each undone change may need its own.
	undoneUncounted, nodeBytes = 500, 1 << 10
	// bytesKept limits the memory of objects that were read from history.
	bytesKept = 64 << 20
	// statesKept is the number of states that are cached even if they are larger than bytesKept. Otherwise every page of
	// a list would read the whole state again.
	statesKept = 2
	// outlastWithin is how long a read of a moment waits for a later event of the log.
	outlastWithin = 3 * time.Second
	// unasked is the time after which an unused state is dropped.
	unasked = time.Minute
)

// Past answers questions about past revisions. It is safe for concurrent use.
type Past struct {
	committer *commit.Committer
	log       eventlog.Reader
	history   *history.Store
	memory    *memory.Guard
	hasten    func() // nil if no other process appends to the log
	logger    *slog.Logger

	loading *shared[policies.Form, *loadedPolicy]
	making  *shared[place, *objects.State] // states are large
	// makingDefinitions is for the states of what comes through the API. Others wait for them, because a policy needs them; they load no policy themselves.
	makingDefinitions *shared[place, *objects.State]
	loaded            *lru.Cache[policies.Form, *loadedPolicy]
	// rendered is by the revision of an activation.
	rendered *lru.Cache[uint64, *policies.Rendered]
	forms    *lru.Cache[formPair, bool]
	rights   *lru.Cache[policies.Form, *Rights]
	states   *lru.Cache[place, *objects.State]
}

// loadedPolicy is a policy and its proposal.
type loadedPolicy struct {
	policy   *policy.Policy
	proposal *policies.Proposal
}

// formPair is a resource and two policies. The cache has for it whether both give the resource the same form.
type formPair struct {
	a, b policies.Form
	schema.GroupResource
}

// place is the resource, revision and namespace of a cached state; "" means all namespaces.
type place struct {
	schema.GroupResource
	namespace string
	revision  uint64
}

// Options are the options of [New].
type Options struct {
	Committer *commit.Committer
	Log       eventlog.Reader
	History   *history.Store
	// Memory is the budget for states.
	Memory *memory.Guard
	// Hasten makes this process append an event soon, and returns at once; nil if no other process appends to the log. It must be
	// safe for concurrent use.
	Hasten func()
	Logger *slog.Logger
}

// New returns a Past.
func New(o Options) *Past {
	p := &Past{
		committer: o.Committer, log: o.Log, history: o.History, memory: o.Memory, hasten: o.Hasten, logger: o.Logger,
		loading: newShared[policies.Form, *loadedPolicy](runtime.GOMAXPROCS(0)), making: newShared[place, *objects.State](runtime.GOMAXPROCS(0)),
		makingDefinitions: newShared[place, *objects.State](runtime.GOMAXPROCS(0)),
		loaded:            lru.New[policies.Form, *loadedPolicy](policiesKept), forms: lru.New[formPair, bool](4096), states: lru.New[place, *objects.State](bytesKept),
		rights: lru.New[policies.Form, *Rights](rightsKept), rendered: lru.New[uint64, *policies.Rendered](renderedKept),
	}
	p.states.AtLeast, p.states.Idle = statesKept, unasked
	return p
}

// loadPolicy returns the policy of an activation that the tip knows, with what had come through the API at the record's revisions.
func (p *Past) loadPolicy(ctx context.Context, tip *commit.Tip, r policies.Record) (*loadedPolicy, error) {
	if in := tip.Policies.Active; in != nil && tip.Policies.Form() == r.Form() {
		return &loadedPolicy{tip.Policy, in.Proposal}, nil
	}
	if l, found := p.loaded.Get(r.Form()); found {
		return l, nil
	}
	return p.loading.do(ctx, r.Form(), func(ctx context.Context) (*loadedPolicy, error) {
		l, err := p.loadBundle(ctx, tip, r)
		if err == nil && max(r.Layer, r.Rules) > 0 {
			l, err = p.layer(ctx, tip, l, r)
		}
		if err != nil {
			return nil, err
		}
		p.loaded.Add(r.Form(), l, 1)
		return l, nil
	})
}

// loadBundle returns the policy of an activation without definitions that came through the API.
func (p *Past) loadBundle(ctx context.Context, tip *commit.Tip, r policies.Record) (l *loadedPolicy, err error) {
	if in := tip.Policies.Active; in != nil && in.Digest == r.Digest {
		return &loadedPolicy{tip.Policy.Base(), in.Proposal}, nil
	}
	alone := policies.Form{Digest: r.Digest}
	if l, found := p.loaded.Get(alone); found {
		return l, nil
	}
	l = &loadedPolicy{}
	if l.proposal, err = tip.Policies.Recall(ctx, p.log, r); err != nil {
		return nil, err
	}
	if l.policy, err = p.committer.Load(l.proposal); err == nil && max(r.Layer, r.Rules) > 0 {
		p.loaded.Add(alone, l, 1)
	}
	return l, err
}

// layer returns a policy with what had come through the API and was in force at the revisions of a record.
func (p *Past) layer(ctx context.Context, tip *commit.Tip, l *loadedPolicy, r policies.Record) (*loadedPolicy, error) {
	states := map[schema.GroupResource]*objects.State{}
	for _, of := range commit.LayerResources {
		changed, all := r.Rules, tip.Policies.Rules
		if of == definitions.Resource {
			changed, all = r.Layer, tip.Policies.Layers
		}
		if changed == 0 {
			states[of] = &objects.State{}
			continue
		}
		revision := p.stillKept(tip, of, all, changed)
		if err := p.history.Reach(ctx, revision); err != nil {
			return nil, err
		}
		o, err := p.Objects(ctx, tip, of, "", revision)
		if err != nil {
			return nil, err
		}
		states[of] = o
	}
	return &loadedPolicy{p.committer.LayeredOf(l.policy, tip.Policy, func(of schema.GroupResource) *objects.State { return states[of] }), l.proposal}, nil
}

// stillKept returns the first revision that is kept and has the same objects of a resource as the given one, which is that of a change of them; the given one
// if there is none. all has the revisions of the changes.
func (p *Past) stillKept(tip *commit.Tip, of schema.GroupResource, all []uint64, changed uint64) uint64 {
	kept := max(changed, p.history.Oldest(), p.history.OldestOf(of))
	next := sort.Search(len(all), func(i int) bool { return all[i] > changed })
	if kept > tip.Revision() || next < len(all) && kept >= all[next] {
		return changed
	}
	return kept
}

// Policy returns the policy in force at a revision, nil if there was none. The revision must not be above the tip's.
func (p *Past) Policy(ctx context.Context, tip *commit.Tip, revision uint64) (*policy.Policy, error) {
	r, found := tip.Policies.InForce(revision)
	if !found {
		return nil, nil
	}
	l, err := p.loadPolicy(ctx, tip, r)
	if err != nil {
		return nil, err
	}
	return l.policy, nil
}

// Tip returns a tip as it was at a revision, without its objects: see [Past.Objects]. The given tip must have a
// policy, and the revision must not be above the tip's. Its error is a Status if no policy was in force yet.
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
		return nil, status.Expired("no policy was in force at revision %d: the first is since revision %d", revision, tip.Policies.History[0].Revision)
	}
	l, err := p.loadPolicy(ctx, tip, r)
	if err != nil {
		return nil, err
	}
	rendered, err := p.renderedSince(ctx, tip, r.Revision)
	if err != nil {
		return nil, err
	}
	then.Policies, then.Policy = tip.Policies.At(revision, l.proposal, rendered), l.policy
	then.Activated, err = p.history.Time(ctx, r.Revision)
	return then, err
}

// renderedSince returns how long rendered objects had been as they were at an activation.
func (p *Past) renderedSince(ctx context.Context, tip *commit.Tip, activated uint64) (*policies.Rendered, error) {
	if activated == tip.ActivationRevision() {
		return tip.Policies.Active.Rendered, nil
	}
	if r, found := p.rendered.Get(activated); found {
		return r, nil
	}
	r, err := policies.RecallRendered(ctx, p.log, activated)
	if err == nil {
		p.rendered.Add(activated, r, 1)
	}
	return r, err
}

// Object returns an object as it was at a revision, nil if it did not exist. The revision must not be above the tip's.
func (p *Past) Object(ctx context.Context, tip *commit.Tip, r schema.GroupResource, namespace, name string, revision uint64) (*objects.Object, error) {
	switch s, err := p.committer.Objects().AtHand(r, revision, undoneForOne); {
	case err == nil:
		return s.Get(r, namespace, name), nil
	case !errors.Is(err, objects.ErrExpired):
		return nil, err
	}
	if err := p.retained(ctx, r, revision); err != nil {
		return nil, err
	}
	c, err := p.history.Get(ctx, r, namespace, name, revision)
	if err != nil || c == nil || c.Deleted {
		return nil, p.forgotten(r, revision, err)
	}
	s, err := p.makeState(ctx, tip, r, revision, func(yield func(*history.Change, error) bool) { yield(c, nil) }, nil)
	if err != nil {
		return nil, err
	}
	return s.state.Get(r, namespace, name), nil
}

// Objects returns the state of a resource at a revision, of one namespace or of all if it is "". The state may contain
// more. The revision must not be above the tip's.
func (p *Past) Objects(ctx context.Context, tip *commit.Tip, r schema.GroupResource, namespace string, revision uint64) (*objects.State, error) {
	most := max(undoneForAll, 2*tip.Objects.CountAfter(r, namespace, "", ""))
	if s, err := p.recent(ctx, tip, r, revision, most); !errors.Is(err, objects.ErrExpired) {
		return s, err
	}
	if err := p.retained(ctx, r, revision); err != nil {
		return nil, err // also if the state is still in memory: what is gone stays gone
	}
	for _, in := range []string{"", namespace} {
		if s, found := p.states.Get(place{r, in, revision}); found {
			return s, nil
		}
	}
	at := place{r, namespace, revision}
	return p.makers(r).do(ctx, at, func(ctx context.Context) (*objects.State, error) {
		m, err := p.makeCounted(ctx, tip, at)
		if err != nil {
			return nil, p.forgotten(r, revision, err)
		}
		p.states.Add(at, m.state, m.bytes)
		return m.state, nil
	})
}

// recent returns a state from the recent changes in memory, or [objects.ErrExpired] if more than most had to be undone. A
// state with many undone changes has nodes of its own: it takes a share of memory, and requests for it share it.
func (p *Past) recent(ctx context.Context, tip *commit.Tip, r schema.GroupResource, revision uint64, most int) (*objects.State, error) {
	n, known := p.committer.Objects().Undone(r, revision)
	if !known || n <= undoneUncounted {
		return p.committer.Objects().AtHand(r, revision, most)
	}
	if n > most {
		return nil, objects.ErrExpired
	}
	at := place{r, "", revision}
	if s, found := p.states.Get(at); found {
		return s, nil
	}
	return p.makers(r).do(ctx, at, func(ctx context.Context) (*objects.State, error) {
		bytes := min(nodeBytes*int64(n), 2*pointers*int64(tip.Objects.Len(r)+n))
		done, err := p.memory.Take(ctx, memory.Past, bytes)
		if err != nil {
			return nil, err
		}
		s, err := p.committer.Objects().AtHand(r, revision, most)
		if err != nil {
			done()
			return nil, err
		}
		runtime.AddCleanup(s, func(done func()) { done() }, done)
		p.states.Add(at, s, int(bytes))
		return s, nil
	})
}

// makers limits how many states of a resource are made at once.
func (p *Past) makers(r schema.GroupResource) *shared[place, *objects.State] {
	if commit.OfLayer(r) {
		return p.makingDefinitions
	}
	return p.making
}

// DropCached drops the cached states. Requests that use them keep them.
func (p *Past) DropCached() { p.states.Clear() }

// Introduced returns the revision of the first activation after a revision whose policy has a resource. It returns 0 if
// none of the next few activations has it.
func (p *Past) Introduced(ctx context.Context, tip *commit.Tip, r schema.GroupResource, after uint64) (uint64, error) {
	const few = 16
	tried := 0
	for _, revision := range tip.Policies.ChangesAfter(after) {
		record, found := tip.Policies.InForce(revision)
		if !found {
			continue
		}
		if tried++; tried > few {
			break
		}
		l, err := p.loadPolicy(ctx, tip, record)
		if err != nil {
			return 0, err
		}
		if l.policy.Kind(r) != nil {
			return revision, nil
		}
	}
	return 0, nil
}

// Around is for an object that did not exist at a revision. It returns the revision of the object's last deletion
// before that, and of its first creation after that, up to another revision. 0 means none.
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
