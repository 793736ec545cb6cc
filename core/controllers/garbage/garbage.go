// Package garbage is the controller that deletes objects all of whose owners are gone, as
// their owner references say, and sees those deletions through that orphan the dependents
// or wait for them. The rules are those of Kubernetes' garbage collector:
//
//   - A reference means the object of that kind and name with that uid, in the namespace of the
//     dependent or in none. One to something else, be it in another namespace, is one to
//     nothing. Only an object whose every owner is known not to be there is deleted.
//   - An object that has other owners loses the references to those that are gone.
//   - While an owner waits for its dependents (finalizer foregroundDeletion), those that have no
//     other owner are deleted, and it goes once none is left that blocks it.
//   - From the dependents of one that is to orphan them (finalizer orphan) the references to it
//     are taken, and then it goes.
//
// What is heard of objects only says where to look. Before anything is deleted the object and
// all of its owners are asked for, and it is deleted on condition that it still is what it
// was. A uid that is gone does not come back: so no object is deleted whose owner is there,
// however late this controller hears of it. As long as it has not heard of everything (it
// has just started, a kind is new, the API does not answer) it does nothing at all.
package garbage

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/controllers/clients"
)

const (
	// workers is how many objects are dealt with at once.
	workers = 4
	// discoverEvery is how often it is asked which kinds there are, beside when those
	// change that are defined; tryAgain, how soon after that has failed.
	discoverEvery = 30 * time.Second
	tryAgain      = time.Second
)

// ignored are resources whose objects are not worth following: Events come in masses, and
// go by themselves.
var ignored = []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}}

// definitions are what says which kinds there are.
var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Run runs the controller until the context ends.
func Run(ctx context.Context, set *clients.Set) error {
	c := &collector{Set: set, graph: newGraph()}
	redefined := make(chan struct{}, 1)
	var running sync.WaitGroup
	running.Go(func() { set.Follow(ctx, definitions, "", poke(redefined)) })
	running.Go(func() { c.discover(ctx, redefined) })
	c.queue.Work(ctx, workers, set.Logger, c.collect)
	running.Wait()
	return ctx.Err()
}

// poke tells that something has changed, whatever that is.
type poke chan struct{}

func (p poke) Changed(*metav1.PartialObjectMetadata) {
	select {
	case p <- struct{}{}:
	default:
	}
}
func (p poke) Gone(o *metav1.PartialObjectMetadata)          { p.Changed(o) }
func (p poke) Replace(there []*metav1.PartialObjectMetadata) { p.Changed(nil) }

// follower follows the objects of a resource.
type follower struct {
	schema.GroupVersionResource
	stop context.CancelFunc
	done chan struct{}
}

func (f *follower) follows(r schema.GroupVersionResource) bool { return f.GroupVersionResource == r }

// discover follows the objects of all kinds that there are, and keeps in step with which
// those are.
func (c *collector) discover(ctx context.Context, redefined <-chan struct{}) {
	var following sync.WaitGroup
	defer following.Wait()
	followers := map[schema.GroupResource]*follower{}
	var known map[schema.GroupVersionKind]kind
	for {
		next := time.After(discoverEvery)
		kinds, deletable, err := c.served()
		if err != nil {
			next = time.After(tryAgain)
			// What there is may be more than what is said.
			c.Logger.Warn("the kinds that there are could not be found out", "error", err)
			c.suspend()
			known = nil
		} else if !maps.Equal(kinds, known) || !maps.EqualFunc(followers, deletable, (*follower).follows) {
			var fresh []schema.GroupResource
			for r, f := range followers {
				if !f.follows(deletable[r]) {
					f.stop()
					<-f.done
					delete(followers, r)
				}
			}
			for r := range deletable {
				if followers[r] == nil {
					fresh = append(fresh, r)
				}
			}
			c.setKinds(kinds, deletable, fresh)
			for _, r := range fresh {
				ctx, stop := context.WithCancel(ctx)
				f := &follower{deletable[r], stop, make(chan struct{})}
				followers[r] = f
				following.Go(func() {
					defer close(f.done)
					c.Follow(ctx, f.GroupVersionResource, "", followed{c.graph, f.GroupVersionResource})
				})
			}
			known = kinds
		}
		select {
		case <-redefined:
		case <-next:
			if silent := c.silent(); len(silent) > 0 {
				c.Logger.Warn("nothing is collected, because not all objects are known", "of", silent)
			}
		case <-ctx.Done():
			for _, f := range followers {
				f.stop()
			}
			return
		}
	}
}

// served returns all kinds, and the resources whose objects can be deleted, each in the version
// that its group prefers. An error means that this may not be all.
func (c *collector) served() (map[schema.GroupVersionKind]kind, map[schema.GroupResource]schema.GroupVersionResource, error) {
	groups, lists, err := c.Served.ServerGroupsAndResources()
	if err != nil {
		return nil, nil, err
	}
	preferred := map[string]bool{}
	for _, g := range groups {
		preferred[g.PreferredVersion.GroupVersion] = true
	}
	kinds, deletable := map[schema.GroupVersionKind]kind{}, map[schema.GroupResource]schema.GroupVersionResource{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			resource := gv.WithResource(r.Name)
			if !slices.Contains(r.Verbs, "get") {
				continue // as reviews: nothing is there to own anything
			}
			kinds[gv.WithKind(r.Kind)] = kind{resource, r.Namespaced}
			if _, ok := deletable[resource.GroupResource()]; ok && !preferred[list.GroupVersion] || slices.Contains(ignored, resource.GroupResource()) {
				continue
			}
			if slices.Contains(r.Verbs, "delete") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") {
				deletable[resource.GroupResource()] = resource
			}
		}
	}
	return kinds, deletable, nil
}
