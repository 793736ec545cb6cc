package garbage

import (
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/run/controllers/clients"
)

// kind is what discovery says about a kind in one version.
type kind struct {
	schema.GroupVersionResource
	namespaced bool
}

// object is what the graph knows of an object. It is immutable: a change makes a new one. So it can be read without
// the lock of the graph.
type object struct {
	resource        schema.GroupVersionResource
	namespace, name string
	uid             types.UID
	owners          []metav1.OwnerReference
	deleting        bool // and what it waits for:
	orphan          bool // orphaning its dependents
	foreground      bool // deletion of its dependents
}

func newObject(r schema.GroupVersionResource, o *metav1.PartialObjectMetadata) *object {
	return &object{
		resource: r, namespace: o.Namespace, name: o.Name, uid: o.UID, owners: o.OwnerReferences,
		deleting: o.DeletionTimestamp != nil, orphan: slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents),
		foreground: slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents),
	}
}

// awaitsDependents reports whether the deletion waits for the object's dependents.
func (o *object) awaitsDependents() bool { return o.deleting && o.foreground }

// matters reports whether there may be work for the object.
func (o *object) matters() bool { return len(o.owners) > 0 || o.deleting && (o.orphan || o.foreground) }

// blocks reports whether the object blocks the deletion of an owner. A reference to an owner in a wrong namespace does
// not count.
func (o *object) blocks(owner *object) bool {
	if o.uid == owner.uid || owner.namespace != "" && owner.namespace != o.namespace {
		return false
	}
	return slices.ContainsFunc(o.owners, func(r metav1.OwnerReference) bool {
		return r.UID == owner.uid && r.Name == owner.name && r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
	})
}

// graph is what watch events have told about objects and their owners. Events arrive late, so the graph tells what may
// need work, and never that an object does not exist. It is safe for concurrent use.
type graph struct {
	queue clients.Queue[types.UID] // objects that may need work

	mu         sync.Mutex
	kinds      map[schema.GroupVersionKind]kind
	objects    map[types.UID]*object
	dependents map[types.UID]map[types.UID]bool // by owner, which may not exist
	// unheard are resources whose objects were not all received yet.
	unheard map[schema.GroupResource]bool
	// reported are dependents with an Event: see [collector.report].
	reported map[types.UID]bool
}

func newGraph() *graph {
	return &graph{
		queue: clients.NewQueue[types.UID]("garbage_collector"), objects: map[types.UID]*object{}, dependents: map[types.UID]map[types.UID]bool{},
		reported: map[types.UID]bool{},
	}
}

// setKinds sets the kinds, and the resources that are followed. It drops objects of other resources, and queues all
// objects that may need work.
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

// suspend drops the kinds until setKinds is called again.
func (g *graph) suspend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kinds = nil
}

// review queues all objects that may need work, if all objects have been received.
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

// silent returns the resources whose objects were not all received yet.
func (g *graph) silent() []schema.GroupResource {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.unheard))
}

// complete reports whether the graph knows all kinds, and has received all objects.
func (g *graph) complete() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.kinds != nil && len(g.unheard) == 0
}

// find returns an object, nil if it is unknown.
func (g *graph) find(uid types.UID) *object {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.objects[uid]
}

// dependentsOf returns the objects that refer to an owner.
func (g *graph) dependentsOf(uid types.UID) []*object {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*object, 0, len(g.dependents[uid]))
	for d := range g.dependents[uid] {
		all = append(all, g.objects[d])
	}
	return all
}

// kind returns the kind of an owner, false if it is unknown.
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

// kept reports whether every owner of an object is known, matches its reference, and does not wait for its dependents.
// Then there is no work.
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

// elsewhere reports whether an owner is known to be in another namespace than its dependent.
func (g *graph) elsewhere(r metav1.OwnerReference, namespace string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	owner := g.objects[r.UID]
	return owner != nil && owner.namespace != "" && owner.namespace != namespace
}

// firstReport reports whether there is no report about an object yet.
func (g *graph) firstReport(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.objects[uid] == nil || g.reported[uid] {
		return false
	}
	g.reported[uid] = true
	return true
}

// followed receives the objects of one resource for the graph.
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

// observe records the state of an object.
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
		return // a review will queue all objects
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

// forget records the deletion of an object, and queues its dependents.
func (g *graph) forget(o *object) {
	g.unlink(o)
	delete(g.objects, o.uid)
	delete(g.reported, o.uid)
	for d := range g.dependents[o.uid] {
		g.queue.Add(d)
	}
}

// unlink removes an object from its owners, and queues owners that may have waited for it.
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
