package garbage

import (
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/controllers/clients"
)

// kind is what discovery says of a kind in one of its versions.
type kind struct {
	schema.GroupVersionResource
	namespaced bool
}

// object is what the graph has of an object. It never changes: what becomes of it is another
// one. So what was taken from the graph can be looked at without its lock.
type object struct {
	resource        schema.GroupVersionResource
	namespace, name string
	uid             types.UID
	owners          []metav1.OwnerReference
	deleting        bool // and what it waits for then:
	orphan          bool // that its dependents are orphaned
	foreground      bool // that its dependents are gone
}

func newObject(r schema.GroupVersionResource, o *metav1.PartialObjectMetadata) *object {
	return &object{
		resource: r, namespace: o.Namespace, name: o.Name, uid: o.UID, owners: o.OwnerReferences,
		deleting: o.DeletionTimestamp != nil, orphan: slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents),
		foreground: slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents),
	}
}

// awaitsDependents tells whether its deletion waits for that of its dependents.
func (o *object) awaitsDependents() bool { return o.deleting && o.foreground }

// matters tells whether something may have to be done of it.
func (o *object) matters() bool { return len(o.owners) > 0 || o.deleting && (o.orphan || o.foreground) }

// blocks tells whether it keeps an owner from being deleted before it is. What is named as an
// owner where it cannot be is none, and waits for nothing.
func (o *object) blocks(owner *object) bool {
	if o.uid == owner.uid || owner.namespace != "" && owner.namespace != o.namespace {
		return false
	}
	return slices.ContainsFunc(o.owners, func(r metav1.OwnerReference) bool {
		return r.UID == owner.uid && r.Name == owner.name && r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
	})
}

// graph is what has been heard of objects and whose they are. It is only told what was, some
// time ago: it says what may have to be done, and never that something is not there. It is
// safe for concurrent use.
type graph struct {
	queue clients.Queue[types.UID] // objects of which something may have to be done

	mu         sync.Mutex
	kinds      map[schema.GroupVersionKind]kind
	objects    map[types.UID]*object
	dependents map[types.UID]map[types.UID]bool // by owner, whether that is there or not
	// unheard are resources of which not all objects have been heard of yet.
	unheard map[schema.GroupResource]bool
	// reported are dependents that an event was written about: see [collector.report].
	reported map[types.UID]bool
}

func newGraph() *graph {
	return &graph{
		queue: clients.NewQueue[types.UID](), objects: map[types.UID]*object{}, dependents: map[types.UID]map[types.UID]bool{},
		reported: map[types.UID]bool{},
	}
}

// setKinds says which kinds there are, and which resources are followed from now on. Objects of
// others are forgotten, and what owns what is judged anew.
func (g *graph) setKinds(kinds map[schema.GroupVersionKind]kind, followed map[schema.GroupResource]schema.GroupVersionResource, fresh []schema.GroupResource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kinds = kinds
	if g.unheard == nil {
		g.unheard = map[schema.GroupResource]bool{}
	}
	for r := range g.unheard {
		if _, ok := followed[r]; !ok {
			delete(g.unheard, r)
		}
	}
	for _, r := range fresh {
		g.unheard[r] = true
	}
	for _, o := range g.objects {
		if _, ok := followed[o.resource.GroupResource()]; !ok {
			g.forget(o)
		}
	}
	g.review()
}

// suspend forgets which kinds there are, until that is said again.
func (g *graph) suspend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kinds = nil
}

// review queues all of which something may have to be done, once everything has been heard of.
func (g *graph) review() {
	if len(g.unheard) > 0 {
		return
	}
	for _, o := range g.objects {
		if o.matters() {
			g.queue.Add(o.uid)
		}
	}
}

// silent are the resources of which not all objects have been heard of yet.
func (g *graph) silent() []schema.GroupResource {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.unheard))
}

// complete tells whether the graph knows all kinds, and has heard of all objects as they were
// at some time.
func (g *graph) complete() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.kinds != nil && len(g.unheard) == 0
}

// find returns an object, nil if nothing has been heard of it.
func (g *graph) find(uid types.UID) *object {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.objects[uid]
}

// dependentsOf returns the objects that name an owner.
func (g *graph) dependentsOf(uid types.UID) []*object {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*object, 0, len(g.dependents[uid]))
	for d := range g.dependents[uid] {
		all = append(all, g.objects[d])
	}
	return all
}

// kind returns what the kind of an owner is; false if it is not known.
func (g *graph) kind(r metav1.OwnerReference) (kind, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.kindOf(r)
}

func (g *graph) kindOf(r metav1.OwnerReference) (kind, bool) {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		return kind{}, false
	}
	k, ok := g.kinds[gv.WithKind(r.Kind)]
	return k, ok
}

// kindNamed returns the kind of a resource.
func (g *graph) kindNamed(r schema.GroupVersionResource) schema.GroupVersionKind {
	g.mu.Lock()
	defer g.mu.Unlock()
	for gvk, k := range g.kinds {
		if k.GroupVersionResource == r {
			return gvk
		}
	}
	return schema.GroupVersionKind{}
}

// kept tells whether each owner of an object has been heard of, is what the reference says,
// and does not wait for its dependents to go. Then there is nothing to do.
func (g *graph) kept(o *object) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range o.owners {
		owner := g.objects[r.UID]
		if owner == nil || owner.awaitsDependents() || owner.name != r.Name || owner.namespace != "" && owner.namespace != o.namespace {
			return false
		}
		if k, ok := g.kindOf(r); !ok || k.GroupResource() != owner.resource.GroupResource() {
			return false
		}
	}
	return true
}

// elsewhere tells whether an owner has been heard of in another namespace than that of its
// dependent.
func (g *graph) elsewhere(r metav1.OwnerReference, namespace string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	owner := g.objects[r.UID]
	return owner != nil && owner.namespace != "" && owner.namespace != namespace
}

// firstReport tells whether nothing has been reported of an object yet.
func (g *graph) firstReport(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.objects[uid] == nil || g.reported[uid] {
		return false
	}
	g.reported[uid] = true
	return true
}

// followed is what a graph hears of one resource.
type followed struct {
	*graph
	resource schema.GroupVersionResource
}

func (f followed) Changed(o *metav1.PartialObjectMetadata) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observe(newObject(f.resource, o))
}

func (f followed) Gone(o *metav1.PartialObjectMetadata) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.objects[o.UID]; known != nil {
		f.forget(known)
	}
}

func (f followed) Replace(there []*metav1.PartialObjectMetadata) {
	f.mu.Lock()
	defer f.mu.Unlock()
	is := make(map[types.UID]bool, len(there))
	for _, o := range there {
		is[o.UID] = true
		f.observe(newObject(f.resource, o))
	}
	for uid, o := range f.objects {
		if o.resource.GroupResource() == f.resource.GroupResource() && !is[uid] {
			f.forget(o)
		}
	}
	if r := f.resource.GroupResource(); f.unheard[r] {
		delete(f.unheard, r)
		f.review()
	}
}

// observe takes in what an object is like now.
func (g *graph) observe(o *object) {
	if was := g.objects[o.uid]; was != nil {
		g.unlink(was)
	}
	g.objects[o.uid] = o
	for _, r := range o.owners {
		d := g.dependents[r.UID]
		if d == nil {
			d = map[types.UID]bool{}
			g.dependents[r.UID] = d
		}
		d[o.uid] = true
	}
	if len(g.unheard) > 0 {
		return // all will be reviewed
	}
	if o.matters() {
		g.queue.Add(o.uid)
	}
	if o.awaitsDependents() {
		for d := range g.dependents[o.uid] {
			g.queue.Add(d)
		}
	}
}

// forget takes note that an object is gone: its dependents may have to go as well.
func (g *graph) forget(o *object) {
	g.unlink(o)
	delete(g.objects, o.uid)
	delete(g.reported, o.uid)
	for d := range g.dependents[o.uid] {
		g.queue.Add(d)
	}
}

// unlink takes an object from its owners. Those that wait for their dependents may have waited
// for this one.
func (g *graph) unlink(o *object) {
	for _, r := range o.owners {
		delete(g.dependents[r.UID], o.uid)
		if len(g.dependents[r.UID]) == 0 {
			delete(g.dependents, r.UID)
		}
		if owner := g.objects[r.UID]; owner != nil && owner.awaitsDependents() {
			g.queue.Add(owner.uid)
		}
	}
}
