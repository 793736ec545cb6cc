package read

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/objects"
)

// seePast is See for a read below /at. Its revision is fixed; only the tip, whose policy authorizes the read, can
// become newer.
func (rd *Reader) seePast(ctx context.Context, c *call.Call, resourceVersion string) error {
	if resourceVersion == "" && !c.Confirmed {
		tip, err := rd.Committer.Confirm(ctx)
		if err != nil {
			return err
		}
		return c.Pin(tip)
	}
	if err := rd.confirmFresh(ctx, c); err != nil || resourceVersion == "" || resourceVersion == "0" {
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

// confirmFresh confirms the tip if it has been unconfirmed for too long, so that a revoked permission does not go on
// granting reads of the past.
func (rd *Reader) confirmFresh(ctx context.Context, c *call.Call) error {
	tip, err := rd.fresh(ctx, c.Tip)
	if err != nil {
		return err
	}
	return c.Pin(tip)
}

// checkLost returns an error if a revision was lost in a restore: it was issued before, and is not part of the
// history any more. The tip is not older than the revision.
func (rd *Reader) checkLost(ctx context.Context, tip *commit.Tip, revision uint64) error {
	if revision >= tip.EpochStart {
		return nil
	}
	return rd.Past.NotLost(ctx, revision)
}

// Exact returns the revision of a read that asks for exactly one, if the user may read it and the log still has it.
func (rd *Reader) Exact(ctx context.Context, c *call.Call, resourceVersion string) (uint64, error) {
	if err := rd.See(ctx, c, resourceVersion); err != nil {
		return 0, err
	}
	if err := rd.confirmFresh(ctx, c); err != nil {
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

// objectAt returns the object at the revision that a get asks for; nil if it did not exist, or if the client was told
// that its copy is fresh.
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
	if ofView(c) {
		then, err := rd.Views.At(ctx, c.Tip, c.Kind, c.Key.Namespace, revision)
		if err != nil {
			return nil, err
		}
		return then.Get(c.Resource(), c.Key.Namespace, c.Key.Name), nil
	}
	return rd.Past.Object(ctx, c.Tip, c.Resource(), c.Key.Namespace, c.Key.Name, revision)
}

// notFound returns the error of a get of an object that does not exist at the requested revision.
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

// Fix prepares the answer of a fixed revision: ages are relative to that revision, and the answer has an ETag. fresh
// reports that the client has this answer already, and was told so (304).
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
		law = c.Tip.Policy.DigestString() // today's policy decides how past objects are shown
	}
	// The ETag is a hash of all that the answer depends on.
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

// WorldAt returns the state from which a read of the policy is answered. A past state has the objects of policyAt only.
// The state is nil if the client was told that its copy is fresh.
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
	world, err = rd.policyAt(ctx, c.Tip, c.Resource(), revision)
	return world, revision, err
}
