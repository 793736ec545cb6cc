package views

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/views"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas"
)

// Snapshot is the state of the log at one revision: the objects, and the policy in force.
type Snapshot struct {
	Revision uint64
	Objects  *objects.State
	Policy   *policy.Policy
}

// Options for [New].
type Options struct {
	// Objects is the store of the objects that views are of.
	Objects *objects.Store
	// Newest returns the newest snapshot. It may be a moment behind Objects.
	Newest func() Snapshot
	// PolicyChanged returns a channel that is closed when another policy comes into force.
	PolicyChanged func() <-chan struct{}
	// Show returns a function that converts the JSON of a stored object to a version.
	Show func(*policy.Version) func(json []byte) []byte
	// Logger gets what could not be computed.
	Logger *slog.Logger
	// Bytes is the memory for recent changes of rows; 0 for the default.
	Bytes int
}

const (
	// defaultBytes is the default memory for recent changes of rows.
	defaultBytes = 8 << 20
	// changesAtOnce is about how many changes are applied before the rows are published.
	changesAtOnce = 512
	// undone limits how many changes of rows are undone to get an earlier state of them.
	undone = 2000
	// soon is how long changes wait, so that several are applied at once, if nobody watches rows.
	soon = 50 * time.Millisecond
	// patience is how long a read waits for a view that is being computed.
	patience = 10 * time.Second
)

// ErrNotReady reports that a view is still being computed.
var ErrNotReady = errors.New("views: the view is being computed")

// Projection keeps the rows of all views of the policy in force. It is safe for concurrent use.
type Projection struct {
	Options
	rows     *objects.Store
	notified chan struct{} // capacity 1

	// mu is held while changes are applied; never during I/O.
	mu sync.Mutex
	// latest is the newest snapshot that was seen. The rows of all views that are ready are those of its revision. It has its
	// objects only while views are being computed, because it would keep all that is deleted in memory.
	latest   Snapshot
	kept     map[string]*kept // by name
	sources  []*source
	unnotify func()
	building bool
	rebuilds uint64
}

// kept is a view and its rows.
type kept struct {
	*views.View
	kind   *objects.Kind
	groups *views.Groups // nil if rows are not groups
	// since is the revision from which on rows has its rows; 0 if they are not there yet.
	since uint64
	ready chan struct{} // closed when they are, or when the view is dropped
	life  *life
}

// life is shared by a view and its watchers, also after other policies that have the same view.
type life struct {
	over   atomic.Bool // the rows were computed anew, or the view is gone
	failed atomic.Uint64
}

// source is a version of a kind that views read.
type source struct {
	resource schema.GroupResource // of the stored objects
	version  *policy.Version
	show     func([]byte) []byte
	reader   *views.Reader
	views    []*kept
}

// New returns a projection without views. The first snapshot adds them.
func New(o Options) *Projection {
	o.Bytes = cmp.Or(o.Bytes, defaultBytes)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Projection{Options: o, rows: objects.New(o.Bytes), notified: make(chan struct{}, 1), kept: map[string]*kept{}}
}

// KindOf returns the kind of a view's rows, as stores of objects need it.
func KindOf(v *views.View) *objects.Kind {
	return objects.NewKind(objects.Kind{GroupResource: v.Resource, Fields: v.Kind.SelectableFields(), Sorted: v.Sorted()})
}

// Run follows the changes of objects until the context ends. Reads do not need it, but watches of rows do.
func (p *Projection) Run(ctx context.Context) error {
	offering := make(chan error, 1)
	go func() { offering <- p.rows.Run(ctx) }()
	defer func() { <-offering }()
	timer := time.NewTimer(soon)
	defer timer.Stop()
	for {
		changed := p.PolicyChanged()
		s := p.Newest()
		p.Advance(s)
		wait := soon
		if p.Objects.State().Revision > s.Revision {
			wait = time.Millisecond // the snapshot is about to be published
			p.notify()
		}
		select {
		case <-p.notified:
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		if wait == soon && p.rows.Watched() {
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// notify makes Run go on.
func (p *Projection) notify() {
	select {
	case p.notified <- struct{}{}:
	default:
	}
}

// Advance brings the rows to a snapshot. An older one than the last changes nothing.
func (p *Projection) Advance(s Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(s)
}

// advance is Advance for a caller that holds mu.
func (p *Projection) advance(s Snapshot) {
	if s.Revision < p.latest.Revision || s.Revision == p.latest.Revision && s.Policy == p.latest.Policy {
		return
	}
	before := p.latest.Revision
	if s.Policy != p.latest.Policy {
		p.adopt(s)
	}
	p.latest = s
	if err := p.follow(before, s.Revision); err != nil {
		p.Logger.Warn("the changes of objects are not in memory any more, so views are computed anew", "after", before, "revision", s.Revision)
		for _, k := range p.kept {
			p.discard(k)
		}
	}
	p.build()
}

// adopt replaces the views by those of a snapshot's policy. Views with the same rows stay. The caller holds mu.
func (p *Projection) adopt(s Snapshot) {
	next := map[string]*kept{}
	if s.Policy != nil {
		for _, rows := range s.Policy.Views() {
			v, err := views.Of(rows.Versions[0])
			if err != nil { // the form was checked
				p.Logger.Error("a view cannot be loaded", "view", rows.Plural, "error", err)
				continue
			}
			k := &kept{View: v, kind: KindOf(v), ready: make(chan struct{}), life: &life{}}
			if was := p.kept[v.Form.Name]; was != nil && was.since > 0 && was.Form.Same(v.Form) && sameSource(was.Kind.Reads, v.Kind.Reads) {
				k.kind, k.groups, k.since, k.ready, k.life = was.kind, was.groups, was.since, was.ready, was.life
				if k.groups != nil {
					k.groups.Use(v)
				}
			}
			next[v.Form.Name] = k
		}
	}
	for name, was := range p.kept {
		if is := next[name]; is == nil || is.life != was.life {
			p.drop(was)
		}
	}
	p.kept = next
	p.sources = p.sourcesOf()
	if p.unnotify != nil {
		p.unnotify()
	}
	p.unnotify = p.Objects.Notify(p.resources(false), p.notified)
}

// sameSource reports whether expressions read the same of stored objects under both policies.
func sameSource(a, b *policy.Version) bool {
	x, y := a.Kind.Stored(), b.Kind.Stored()
	return a.Name == b.Name && schemas.Same(a.Schema, b.Schema) && x.SameForm(y.Kind) && len(x.Versions) == len(y.Versions)
}

// drop forgets the rows of a view, and ends its watches. The caller holds mu.
func (p *Projection) drop(k *kept) {
	k.life.over.Store(true)
	if k.since == 0 {
		close(k.ready) // who waits looks for the view of the new policy
		return
	}
	tx := p.rows.Begin()
	tx.Drop(k.Resource)
	p.rows.Publish(tx, p.latest.Revision)
	p.rows.Cut(k.Resource)
}

// discard makes a view one whose rows must be computed. The caller holds mu.
func (p *Projection) discard(k *kept) {
	if k.since == 0 {
		return
	}
	p.drop(k)
	failed := k.life.failed.Load()
	k.groups, k.since, k.ready, k.life = nil, 0, make(chan struct{}), &life{}
	k.life.failed.Store(failed)
}

// sourcesOf returns what the views read. The caller holds mu.
func (p *Projection) sourcesOf() (sources []*source) {
	for _, k := range p.kept {
		i := slices.IndexFunc(sources, func(s *source) bool { return s.version == k.Kind.Reads })
		if i < 0 {
			i = len(sources)
			sources = append(sources, &source{resource: k.Source, version: k.Kind.Reads, show: p.Show(k.Kind.Reads)})
		}
		sources[i].views = append(sources[i].views, k)
	}
	for _, s := range sources {
		slices.SortFunc(s.views, func(a, b *kept) int { return strings.Compare(a.Form.Name, b.Form.Name) })
		var all []*views.View
		for _, k := range s.views {
			all = append(all, k.View)
		}
		s.reader = views.NewReader(all)
	}
	slices.SortFunc(sources, func(a, b *source) int { return strings.Compare(a.views[0].Form.Name, b.views[0].Form.Name) })
	return sources
}

// resources returns the resources of the objects of views; only of those that have rows, if ready is set.
func (p *Projection) resources(ready bool) (all []schema.GroupResource) {
	for _, s := range p.sources {
		if ready && !slices.ContainsFunc(s.views, func(k *kept) bool { return k.since > 0 }) {
			continue
		}
		if !slices.Contains(all, s.resource) {
			all = append(all, s.resource)
		}
	}
	return all
}

// follow applies the changes after a revision up to another one. The caller holds mu.
func (p *Projection) follow(after, upTo uint64) error {
	resources := p.resources(true)
	for after < upTo {
		changes, last := []*objects.Change(nil), upTo
		if len(resources) > 0 {
			var err error
			if changes, last, err = p.Objects.Since(resources, after, upTo, changesAtOnce); err != nil {
				return err
			}
		}
		tx := p.rows.Begin()
		for i, c := range changes {
			for _, s := range p.sources {
				if s.resource == c.Object.Resource() {
					s.apply(c, tx)
				}
			}
			if i+1 == len(changes) || changes[i+1].Revision != c.Revision {
				p.applyGroups(tx, c.Revision)
			}
		}
		p.rows.Publish(tx, last)
		after = last
	}
	return nil
}

// apply changes the rows by a change of an object.
func (s *source) apply(c *objects.Change, to target) {
	var o *views.Object
	if !c.Deleted {
		o = s.reader.Read(s.show(c.Object.JSON))
	}
	for _, k := range s.views {
		if k.since > 0 {
			k.set(c.Object, o, c.Revision, to)
		}
	}
}

// target is where rows are put.
type target interface {
	Put(o *objects.Object, revision uint64)
	Remove(r schema.GroupResource, namespace, name string, revision uint64)
	Get(r schema.GroupResource, namespace, name string) *objects.Object
}

// set makes the rows follow from an object, which is decoded as o; o is nil if it was deleted.
func (k *kept) set(of *objects.Object, o *views.Object, revision uint64, to target) {
	var row views.Row
	in := false
	if o != nil {
		row, in = k.Row(o)
		if row.Failed > 0 {
			k.life.failed.Add(uint64(row.Failed))
		}
	}
	switch {
	case k.groups != nil && in:
		k.groups.Set(views.Key{Namespace: of.Namespace, Name: of.Name}, &row)
		return
	case k.groups != nil:
		k.groups.Set(views.Key{Namespace: of.Namespace, Name: of.Name}, nil)
		return
	case in:
		s := k.RowOf(o, &row, of.Revision)
		to.Put(k.kind.DeriveFrom(of, objects.Derived{JSON: s.JSON, At: s.At, N: s.N, Fields: s.Fields, SortKey: s.SortKey}), revision)
		return
	}
	to.Remove(k.Resource, of.Namespace, of.Name, revision)
}

// applyGroups changes the rows of the groups that a revision changed.
func (p *Projection) applyGroups(to target, revision uint64) {
	for _, s := range p.sources {
		for _, k := range s.views {
			if k.groups != nil && k.since > 0 {
				k.putGroups(to, revision)
			}
		}
	}
}

func (k *kept) putGroups(to target, revision uint64) {
	for _, c := range k.groups.Changes() {
		if c.Payload != nil {
			if was := to.Get(k.Resource, "", c.Name); was != nil && was.SamePayload(c.Payload) {
				continue // what has changed of its objects changes nothing of the group
			}
			made, err := k.kind.Derive(c.Payload, revision, c.SortKey)
			if err == nil {
				to.Put(made, revision)
				continue
			}
		}
		to.Remove(k.Resource, "", c.Name, revision)
	}
}

// build computes the rows of views that have none, in the background. The caller holds mu.
func (p *Projection) build() {
	if !slices.ContainsFunc(p.sources, (*source).unready) {
		p.latest.Objects = nil
		return
	}
	if p.building {
		return
	}
	p.building = true
	go func() {
		for p.buildNext() {
		}
	}()
}

func (s *source) unready() bool {
	return slices.ContainsFunc(s.views, func(k *kept) bool { return k.since == 0 })
}

// buildNext computes the views of one source that have no rows, and reports whether there may be more of them.
func (p *Projection) buildNext() (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.sources, (*source).unready)
	if i < 0 {
		p.building, p.latest.Objects = false, nil
		return false
	}
	from, s := p.latest, p.sources[i]
	making := &source{resource: s.resource, version: s.version, show: s.show, reader: s.reader}
	for _, k := range s.views {
		if k.since == 0 {
			making.views = append(making.views, k.scratch())
		}
	}
	p.mu.Unlock()
	rows := private{}
	i = 0
	for o := range from.Objects.List(s.resource, &objects.Selection{}, "", "") {
		making.apply(&objects.Change{Revision: from.Revision, Object: o}, rows)
		if i++; i%64 == 0 {
			runtime.Gosched() // requests run between the parts
		}
	}
	p.mu.Lock()
	if !slices.Contains(p.sources, s) {
		return true // another policy came into force
	}
	changes, _, err := p.Objects.Since([]schema.GroupResource{s.resource}, from.Revision, p.latest.Revision, math.MaxInt)
	if err != nil {
		return true // again, from a newer state
	}
	for _, c := range changes {
		making.apply(c, rows)
	}
	tx := p.rows.Begin()
	for _, k := range making.views {
		if k.groups != nil {
			k.putGroups(rows, p.latest.Revision)
		}
		all := make([]*objects.Object, 0, len(rows[k.Resource]))
		for _, o := range rows[k.Resource] {
			all = append(all, o)
		}
		tx.Replace(k.kind, all)
	}
	p.rows.Publish(tx, p.latest.Revision)
	for _, made := range making.views {
		k := p.kept[made.Form.Name]
		if k == nil || k.View != made.View || k.since > 0 {
			continue
		}
		p.rows.Cut(k.Resource)
		k.groups, k.since = made.groups, max(1, p.latest.Revision)
		k.life.failed.Add(made.life.failed.Load())
		p.rebuilds++
		close(k.ready)
	}
	return true
}

// scratch returns a copy of a view without rows, in which they are computed.
func (k *kept) scratch() *kept {
	made := &kept{View: k.View, kind: k.kind, since: 1, life: &life{}}
	if k.Grouped() {
		made.groups = views.NewGroups(k.View)
	}
	return made
}

// private are rows that are being computed.
type private map[schema.GroupResource]map[views.Key]*objects.Object

// Put implements target.
func (p private) Put(o *objects.Object, _ uint64) {
	r := o.Resource()
	if p[r] == nil {
		p[r] = map[views.Key]*objects.Object{}
	}
	p[r][views.Key{Namespace: o.Namespace, Name: o.Name}] = o
}

// Remove implements target.
func (p private) Remove(r schema.GroupResource, namespace, name string, _ uint64) {
	delete(p[r], views.Key{Namespace: namespace, Name: name})
}

// Get implements target.
func (p private) Get(r schema.GroupResource, namespace, name string) *objects.Object {
	return p[r][views.Key{Namespace: namespace, Name: name}]
}

// Compute makes the rows of a view of all objects of a state, which show converts to the version that the view reads. If
// namespace is not "", the rows may be of that namespace only.
func Compute(ctx context.Context, v *views.View, of *objects.State, show func([]byte) []byte, namespace string) (*objects.State, error) {
	if v.Grouped() {
		namespace = ""
	}
	k := (&kept{View: v, kind: KindOf(v)}).scratch()
	s := &source{resource: v.Source, show: show, reader: views.NewReader([]*views.View{v}), views: []*kept{k}}
	rows, n := private{}, 0
	for o := range of.List(v.Source, &objects.Selection{Namespace: namespace}, "", "") {
		s.apply(&objects.Change{Revision: of.Revision, Object: o}, rows)
		if n++; n%64 == 0 {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			runtime.Gosched()
		}
	}
	if k.groups != nil {
		k.putGroups(rows, of.Revision)
	}
	all := make([]*objects.Object, 0, len(rows[v.Resource]))
	for _, o := range rows[v.Resource] {
		all = append(all, o)
	}
	return objects.DerivedState(k.kind, of.Revision, all), nil
}

// State returns the rows of a view at a snapshot, whose policy has the view. It waits for a view that is being computed; the
// error is then ErrNotReady, or the context's.
func (p *Projection) State(ctx context.Context, s Snapshot, v *views.View) (*objects.State, error) {
	since, err := p.wait(ctx, s, v)
	if err != nil {
		return nil, err
	}
	if since > 0 && s.Revision >= since {
		if state, err := p.rows.AtHand(v.Resource, s.Revision, undone); err == nil {
			return state, nil
		}
	}
	return Compute(ctx, v, s.Objects, p.Show(v.Kind.Reads), "")
}

// Wait waits until the rows of a view are there, or another policy than the snapshot's is in force. Its error is that of
// [Projection.State].
func (p *Projection) Wait(ctx context.Context, s Snapshot, v *views.View) error {
	_, err := p.wait(ctx, s, v)
	return err
}

// wait is Wait. It returns the revision from which on there are rows; 0 if another policy came into force.
func (p *Projection) wait(ctx context.Context, s Snapshot, v *views.View) (since uint64, err error) {
	var limit context.Context
	for {
		p.mu.Lock()
		p.advance(s)
		k := p.kept[v.Form.Name]
		if p.latest.Policy != s.Policy || k == nil {
			p.mu.Unlock()
			return 0, nil
		}
		since, ready := k.since, k.ready
		p.mu.Unlock()
		if since > 0 {
			return since, nil
		}
		if limit == nil {
			var cancel context.CancelFunc
			limit, cancel = context.WithTimeoutCause(ctx, patience, ErrNotReady)
			defer cancel()
		}
		select {
		case <-ready:
		case <-limit.Done():
			return 0, context.Cause(limit)
		}
	}
}

// Recent returns the rows of a view at a revision that is not after the snapshot's, if they are in memory.
func (p *Projection) Recent(s Snapshot, v *views.View, revision uint64) (*objects.State, bool) {
	p.mu.Lock()
	p.advance(s)
	k := p.kept[v.Form.Name]
	recent := p.latest.Policy == s.Policy && k != nil && k.since > 0 && revision >= k.since
	p.mu.Unlock()
	if !recent {
		return nil, false
	}
	state, err := p.rows.AtHand(v.Resource, revision, undone)
	return state, err == nil
}

// Pin keeps a state that State returned for the next pages of a list.
func (p *Projection) Pin(state *objects.State) { p.rows.Pin(state) }

// Watch registers a watcher for the changes of the rows of a view after a revision, which is not after the snapshot's. If resumed
// is set, the client may have seen a part of what that revision changed: it sees changes of groups again. The error is
// [objects.ExpiredError] if the changes are not in memory.
func (p *Projection) Watch(s Snapshot, v *views.View, sel objects.Selection, after uint64, resumed bool) (*Watcher, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(s)
	k := p.kept[v.Form.Name]
	if p.latest.Policy != s.Policy || k == nil || k.since == 0 || after < k.since {
		return nil, &objects.ExpiredError{Oldest: p.latest.Revision}
	}
	if resumed && v.Grouped() && after > k.since {
		after--
	}
	w, err := p.rows.Watch(v.Resource, sel, after)
	if err != nil {
		return nil, err
	}
	return &Watcher{w, k.life}, nil
}

// Total returns the number and the size of the rows of a view in a namespace, or in all if that is "". ok is false if they are not
// there. It does not wait.
func (p *Projection) Total(resource schema.GroupResource, namespace string) (total objects.Total, ok bool) {
	state := p.rows.State()
	return state.Total(resource, namespace), state.Has(resource)
}

// Undone returns how many changes of rows [Projection.Recent] would undo. ok is false if it has no rows of the revision.
func (p *Projection) Undone(resource schema.GroupResource, revision uint64) (n int, ok bool) {
	n, ok = p.rows.Undone(resource, revision)
	return n, ok && n <= undone && p.rows.State().Has(resource)
}

// ChangesAfter returns about how many changes of rows there are after a revision, and whether all of them are in memory.
func (p *Projection) ChangesAfter(resource schema.GroupResource, revision uint64) (n int, inMemory bool) {
	return p.rows.ChangesAfter(resource, revision)
}

// Watcher is a watcher of rows. It ends with [objects.ErrExpired] when the view changes.
type Watcher struct {
	*objects.Watcher
	life *life
}

// Take is that of [objects.Watcher].
func (w *Watcher) Take() (events []objects.Event, bookmark uint64, more bool, err error) {
	events, bookmark, more, err = w.Watcher.Take()
	if w.life.over.Load() {
		return nil, 0, false, objects.ErrExpired
	}
	return events, bookmark, more, err
}

// Stat is the state of a view.
type Stat struct {
	Name  string
	Ready bool
	Rows  objects.Total
	// Failed is the number of expressions that failed since the start.
	Failed uint64
}

// Stats returns the states of all views, by name, and how often rows were computed of all objects.
func (p *Projection) Stats() (stats []Stat, computed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := p.rows.State()
	for name, k := range p.kept {
		stats = append(stats, Stat{name, k.since > 0, state.Total(k.Resource, ""), k.life.failed.Load()})
	}
	slices.SortFunc(stats, func(a, b Stat) int { return strings.Compare(a.Name, b.Name) })
	return stats, p.rebuilds
}
