// Package garbage is the controller that deletes objects after all their owners, and handles deletions that orphan
// dependents or wait for them. The rules are those of Kubernetes' garbage collector:
//
//   - An owner reference means the object with that kind, name and UID, in the namespace of the dependent
//     or cluster-scoped. A reference to anything else, such as an object in another namespace, refers to
//     nothing. An object is deleted only if it is certain that none of its owners exists.
//   - An object that still has other owners loses the references to deleted ones.
//   - While an owner waits for its dependents (finalizer foregroundDeletion), dependents without another
//     owner are deleted. The owner is deleted when no dependent blocks it.
//   - If an owner orphans its dependents (finalizer orphan), their references to it are removed, and then
//     the owner is deleted.
//
// Watch events only tell where to look. Before a deletion, the controller reads the object and all of its owners, and
// it deletes the object on condition that it is unchanged. A deleted UID never returns. So no object is deleted whose
// owner exists, even if events arrive late. Until the controller has received all objects (it has just started, a kind
// is new, the API does not answer), it does nothing.
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
	"stele.dev/stele/core/run/controllers/clients"
)

const (
	// workers is how many objects are processed at once.
	workers = 4
	// discoverEvery is how often the kinds are read, besides when definitions change. tryAgain is the pause after that
	// has failed.
	discoverEvery = 30 * time.Second
	tryAgain      = time.Second
)

// ignored are resources that are not followed: there are very many Events, and they expire.
var ignored = []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}}

// definitions is the resource of definitions of kinds.
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

// poke signals any change.
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

// discover follows the objects of all kinds, and updates the set of kinds.
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
			// The error may mean that there are more kinds.
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

// served returns all kinds, and the resources whose objects can be deleted, each in the preferred version of its
// group. With an error they may be incomplete.
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
				continue // such as reviews: they have no objects
			}
			kinds[gv.WithKind(r.Kind)] = kind{resource, r.Namespaced}
			if _, ok := deletable[resource.GroupResource()]; ok && !preferred[list.GroupVersion] || slices.Contains(ignored, resource.GroupResource()) {
				continue
			}
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") && clients.Deletable(resource.GroupResource(), r.Verbs) {
				deletable[resource.GroupResource()] = resource
			}
		}
	}
	return kinds, deletable, nil
}
