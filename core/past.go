package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/past"
	"stele.dev/stele/projections/objects"
)

// seePast is see for a request whose world has ended: nothing becomes newer but the policy that
// says who may read it.
func (p *Pipeline) seePast(ctx context.Context, r *Request, resourceVersion string) error {
	if resourceVersion == "" && !r.confirmed {
		tip, err := p.committer.Confirm(ctx)
		if err != nil {
			return err
		}
		return r.pin(tip)
	}
	if err := p.heard(ctx, r); err != nil || resourceVersion == "" || resourceVersion == "0" {
		return err
	}
	revision, err := queryRevision(resourceVersion)
	if err != nil {
		return err
	}
	if end := r.past.Revision(); revision > end {
		return past.NotYet(revision, end)
	}
	return p.checkLost(ctx, r.tip, revision)
}

// heard makes sure that what was is not read for long by whom a policy lets do so that is not in
// force any more: a replica that has not heard from the log asks it.
func (p *Pipeline) heard(ctx context.Context, r *Request) error {
	if p.committer.Unconfirmed() <= maxUnconfirmed {
		return nil
	}
	tip, err := p.committer.Confirm(ctx)
	if err != nil {
		return err
	}
	return r.pin(tip)
}

// exact is the very revision that a read asks for, if it can have that.
func (p *Pipeline) exact(ctx context.Context, r *Request, resourceVersion string) (uint64, error) {
	if err := p.see(ctx, r, resourceVersion); err != nil {
		return 0, err
	}
	if err := p.heard(ctx, r); err != nil {
		return 0, err
	}
	revision, err := queryRevision(resourceVersion)
	if err != nil {
		return 0, err
	}
	if err := p.past.Check(ctx, r.tip, revision); err != nil {
		return 0, err
	}
	if err := p.reaches(ctx, r, revision); err != nil {
		return 0, err
	}
	r.exactly = revision
	return revision, p.warnExact(ctx, r)
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
	if fresh, err := p.fix(ctx, r, revision); fresh || err != nil {
		return nil, err
	}
	return p.past.Object(ctx, r.tip, r.resource(), r.key.Namespace, r.key.Name, revision)
}

// notFound is the answer to a get of an object that is not there, or was not.
func (p *Pipeline) notFound(ctx context.Context, r *Request) error {
	err := apierrors.NewNotFound(r.resource(), r.key.Name)
	why, failed := p.noNamespace(ctx, r, r.then())
	if failed != nil {
		return failed
	}
	if why != "" {
		err.ErrStatus.Message += "; " + why
	}
	return err
}

// fix is for an answer that is of one revision for ever: ages are relative to that, and it has an
// ETag. fresh: that is the one which the client has already, and it has been told so.
func (p *Pipeline) fix(ctx context.Context, r *Request, revision uint64) (fresh bool, err error) {
	f, err := r.format()
	if err != nil {
		return false, err
	}
	if f.As == negotiate.Table {
		if r.asOf, err = p.past.Time(ctx, revision); err != nil {
			return false, err
		}
	}
	law := ""
	if r.past == nil || r.converted {
		law = r.tip.Policy.DigestString() // it decides how what was is shown
	}
	// All that the answer depends on.
	sum := sha256.Sum256(fmt.Appendf(nil, "%x %d %q %q %+v %t %q %q", r.tip.Head.Log, revision, r.http.URL.Path, r.http.URL.RawQuery, f, negotiate.Gzip(r.http), p.version.GitVersion, law))
	tag := `"` + hex.EncodeToString(sum[:]) + `"`
	h := r.w.Header()
	h.Set("ETag", tag)
	h.Set("Vary", "Accept, Accept-Encoding")
	if !slices.ContainsFunc(r.http.Header.Values("If-None-Match"), func(list string) bool {
		return slices.ContainsFunc(strings.Split(list, ","), func(had string) bool { return strings.TrimPrefix(strings.TrimSpace(had), "W/") == tag })
	}) {
		return false, nil
	}
	r.sent = true
	r.w.WriteHeader(http.StatusNotModified)
	return true, nil
}

// worldAt is what a read of what the policy says is answered from: with the namespaces, and no other
// objects if it is of the past. Nothing, if the client has been told that it has the answer.
func (p *Pipeline) worldAt(ctx context.Context, r *Request, resourceVersion string, exact bool) (world *commit.Tip, revision uint64, err error) {
	if !exact {
		if err := p.see(ctx, r, resourceVersion); err != nil || r.past == nil {
			return r.tip, r.tip.Revision(), err
		}
		revision = r.past.Revision()
	} else if revision, err = p.exact(ctx, r, resourceVersion); err != nil {
		return nil, 0, err
	}
	if fresh, err := p.fix(ctx, r, revision); fresh || err != nil {
		return nil, 0, err
	}
	if world, err = p.past.Tip(ctx, r.tip, revision); err != nil {
		return nil, 0, err
	}
	world.Objects, err = p.objectsAt(ctx, r, commit.Namespaces, "", revision)
	return world, revision, err
}
