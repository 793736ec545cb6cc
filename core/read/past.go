package read

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/objects"
)

// seePast is see for a request whose world has ended: nothing becomes newer but the policy that
// says who may read it.
func (rd *Reader) seePast(ctx context.Context, c *call.Call, resourceVersion string) error {
	if resourceVersion == "" && !c.Confirmed {
		tip, err := rd.Committer.Confirm(ctx)
		if err != nil {
			return err
		}
		return c.Pin(tip)
	}
	if err := rd.heard(ctx, c); err != nil || resourceVersion == "" || resourceVersion == "0" {
		return err
	}
	revision, err := call.QueryRevision(resourceVersion)
	if err != nil {
		return err
	}
	if end := c.Past.Tip.Revision(); revision > end {
		return past.NotYet(revision, end)
	}
	return rd.checkLost(ctx, c.Tip, revision)
}

// heard makes sure that what was is not read for long by whom a policy lets do so that is not in
// force any more: a replica that has not heard from the log asks it.
func (rd *Reader) heard(ctx context.Context, c *call.Call) error {
	if rd.Committer.Unconfirmed() <= commit.MaxUnconfirmed {
		return nil
	}
	tip, err := rd.Committer.Confirm(ctx)
	if err != nil {
		return err
	}
	return c.Pin(tip)
}

// exact is the very revision that a read asks for, if it can have that.
func (rd *Reader) Exact(ctx context.Context, c *call.Call, resourceVersion string) (uint64, error) {
	if err := rd.See(ctx, c, resourceVersion); err != nil {
		return 0, err
	}
	if err := rd.heard(ctx, c); err != nil {
		return 0, err
	}
	revision, err := call.QueryRevision(resourceVersion)
	if err != nil {
		return 0, err
	}
	if err := rd.Past.Check(ctx, c.Tip, revision); err != nil {
		return 0, err
	}
	if err := rd.CheckWindow(ctx, c, revision); err != nil {
		return 0, err
	}
	c.Past.Exactly = revision
	return revision, rd.warnExact(ctx, c)
}

// objectsAt is what there was of a resource at a revision, which is at most the world's; of what
// was in a namespace, if that is not "".
func (rd *Reader) ObjectsAt(ctx context.Context, c *call.Call, resource schema.GroupResource, namespace string, revision uint64) (*objects.State, error) {
	return rd.Past.Objects(ctx, c.Tip, resource, namespace, revision)
}

// objectAt is the object that a get asks for, nil if it was not there.
func (rd *Reader) objectAt(ctx context.Context, c *call.Call, resourceVersion string, exact bool) (*objects.Object, error) {
	revision := c.World().Revision()
	var err error
	if exact {
		revision, err = rd.Exact(ctx, c, resourceVersion)
	} else {
		err = rd.See(ctx, c, resourceVersion)
	}
	if err != nil {
		return nil, err
	}
	if fresh, err := rd.Fix(ctx, c, revision); fresh || err != nil {
		return nil, err
	}
	return rd.Past.Object(ctx, c.Tip, c.Resource(), c.Key.Namespace, c.Key.Name, revision)
}

// notFound is the answer to a get of an object that is not there, or was not.
func (rd *Reader) notFound(ctx context.Context, c *call.Call) error {
	err := status.NotFound(c.Resource(), c.Key.Name)
	why, failed := rd.noNamespace(ctx, c, c.RevisionOfPast())
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
func (rd *Reader) Fix(ctx context.Context, c *call.Call, revision uint64) (fresh bool, err error) {
	f, err := c.Format()
	if err != nil {
		return false, err
	}
	if f.As == negotiate.Table {
		if c.Past.AsOf, err = rd.Past.Time(ctx, revision); err != nil {
			return false, err
		}
	}
	law := ""
	if c.Past.Tip == nil || c.Past.Converted {
		law = c.Tip.Policy.DigestString() // it decides how what was is shown
	}
	// All that the answer depends on.
	sum := sha256.Sum256(fmt.Appendf(nil, "%x %d %q %q %+v %t %q %q", c.Tip.Head.Log, revision, c.HTTP.URL.Path, c.HTTP.URL.RawQuery, f, negotiate.Gzip(c.HTTP), rd.Version, law))
	tag := `"` + hex.EncodeToString(sum[:]) + `"`
	h := c.W.Header()
	h.Set("ETag", tag)
	h.Set("Vary", "Accept, Accept-Encoding")
	if !slices.ContainsFunc(c.HTTP.Header.Values("If-None-Match"), func(list string) bool {
		return slices.ContainsFunc(strings.Split(list, ","), func(had string) bool { return strings.TrimPrefix(strings.TrimSpace(had), "W/") == tag })
	}) {
		return false, nil
	}
	c.Sent = true
	c.W.WriteHeader(http.StatusNotModified)
	return true, nil
}

// worldAt is what a read of what the policy says is answered from: with the namespaces, and no other
// objects if it is of the past. Nothing, if the client has been told that it has the answer.
func (rd *Reader) WorldAt(ctx context.Context, c *call.Call, resourceVersion string, exact bool) (world *commit.Tip, revision uint64, err error) {
	if !exact {
		if err := rd.See(ctx, c, resourceVersion); err != nil || c.Past.Tip == nil {
			return c.Tip, c.Tip.Revision(), err
		}
		revision = c.Past.Tip.Revision()
	} else if revision, err = rd.Exact(ctx, c, resourceVersion); err != nil {
		return nil, 0, err
	}
	if fresh, err := rd.Fix(ctx, c, revision); fresh || err != nil {
		return nil, 0, err
	}
	if world, err = rd.Past.Tip(ctx, c.Tip, revision); err != nil {
		return nil, 0, err
	}
	world.Objects, err = rd.ObjectsAt(ctx, c, commit.Namespaces, "", revision)
	return world, revision, err
}
