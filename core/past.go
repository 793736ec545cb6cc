package core

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/projections/objects"
)

// seePast is see for a request whose world has ended: nothing becomes newer.
func (r *Request) seePast(resourceVersion string) error {
	if resourceVersion == "" || resourceVersion == "0" {
		return nil
	}
	revision, err := queryRevision(resourceVersion)
	if err == nil && revision > r.past.Revision() {
		err = storage.NewTooLargeResourceVersionError(revision, r.past.Revision(), retryFuture)
	}
	return err
}

// exact is the very revision that a read asks for, if it can have that.
func (p *Pipeline) exact(ctx context.Context, r *Request, resourceVersion string) (uint64, error) {
	if err := p.see(ctx, r, resourceVersion); err != nil {
		return 0, err
	}
	revision, err := queryRevision(resourceVersion)
	if err != nil {
		return 0, err
	}
	if err := p.past.Check(ctx, r.tip, revision); err != nil {
		return 0, err
	}
	return revision, p.reaches(ctx, r, revision)
}

// objectsAt is what there was of a resource at a revision, which is at most the world's; of what
// was in a namespace, if that is not "".
func (p *Pipeline) objectsAt(ctx context.Context, r *Request, resource schema.GroupResource, namespace string, revision uint64) (*objects.State, error) {
	return p.past.Objects(ctx, r.tip, resource, namespace, revision)
}

// objectAt is the object that a get asks for, nil if it was not there.
func (p *Pipeline) objectAt(ctx context.Context, r *Request, resourceVersion string, exact bool) (*objects.Object, error) {
	revision := r.world().Revision()
	var err error
	if exact {
		revision, err = p.exact(ctx, r, resourceVersion)
	} else {
		err = p.see(ctx, r, resourceVersion)
	}
	if err != nil {
		return nil, err
	}
	return p.past.Object(ctx, r.tip, r.resource(), r.key.Namespace, r.key.Name, revision)
}

// worldAt is what a read of what the policy says is answered from: with the namespaces, and no other
// objects if it is of the past.
func (p *Pipeline) worldAt(ctx context.Context, r *Request, resourceVersion string, exact bool) (world *commit.Tip, revision uint64, err error) {
	if !exact {
		if err := p.see(ctx, r, resourceVersion); err != nil || r.past == nil {
			return r.tip, r.tip.Revision(), err
		}
		revision = r.past.Revision()
	} else if revision, err = p.exact(ctx, r, resourceVersion); err != nil {
		return nil, 0, err
	}
	if world, err = p.past.Tip(ctx, r.tip, revision); err != nil {
		return nil, 0, err
	}
	world.Objects, err = p.objectsAt(ctx, r, commit.Namespaces, "", revision)
	return world, revision, err
}
