package read

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/status"
)

// Paths below /at/<moment> serve the API as it was at that moment, read-only. The present policy authenticates and
// authorizes the request, as without the prefix. The policy of that moment says which resources are served.

// revisionHeader is the response header with the revision of an answer below /at.
const revisionHeader = "Stele-Revision"

// CutMoment removes the prefix /at/<moment> from the path and sets Past.Moment.
func CutMoment(c *call.Call) error {
	below, found := strings.CutPrefix(c.HTTP.URL.Path, call.AtPrefix)
	if !found || below != "" && below[0] != '/' {
		return nil
	}
	text, rest, _ := strings.Cut(strings.TrimPrefix(below, "/"), "/")
	h, u := *c.HTTP, *c.HTTP.URL
	u.Path, u.RawPath = "/"+rest, ""
	h.URL = &u
	if c.HTTP, c.Past.Prefix = &h, call.AtPrefix; text != "" {
		c.Past.Prefix += "/" + url.PathEscape(text)
	}
	m, err := past.Parse(text)
	if err != nil {
		return noMoment(c, err)
	}
	c.Past.Moment = &m
	return nil
}

// noMoment returns the error of a request for a moment that does not exist. For discovery its message is also a
// warning, because client-go keeps only the code of such errors.
func noMoment(c *call.Call, err error) error {
	info, asked := call.RequestInfo(c.HTTP)
	if status := apierrors.APIStatus(nil); asked == nil && !info.IsResourceRequest && errors.As(err, &status) {
		c.Warn(status.Status().Message)
	}
	return err
}

// Enter resolves the moment of a request below /at to a revision, and sets Past.Tip to the state at that revision.
// All rounds use the same revision.
func (rd *Reader) Enter(ctx context.Context, c *call.Call) error {
	if c.Past.Moment == nil || c.Past.Tip != nil || c.Requester == authn.Anonymous && call.PublicPath(c.HTTP.URL.Path) { // who sees the present health and version only
		return nil
	}
	revision, tip, err := rd.Past.Resolve(ctx, c.Tip, *c.Past.Moment)
	if err != nil {
		return noMoment(c, err)
	}
	if err := c.Pin(tip); err != nil {
		return err
	}
	if c.Past.Tip, err = rd.Past.Tip(ctx, tip, revision); err != nil {
		return noMoment(c, err)
	}
	c.Past.AsOf = c.Past.Tip.Time
	c.W.Header().Set(revisionHeader, strconv.FormatUint(revision, 10))
	return nil
}

// RefusePast returns the error of a call below /at that only the present can answer (405).
func RefusePast(c *call.Call) error {
	return status.ReadOnlyPast(schema.GroupResource{Group: c.Info.APIGroup, Resource: c.Info.Resource}, c.Info.Name, fmt.Sprintf(
		"this is the past, as of revision %d, and read-only: %s at the present, without %s/<moment> before the path; stele revert and stele undelete bring back what was", c.Past.Tip.Revision(), c.Info.Verb, call.AtPrefix))
}

// Absent explains why a resource is not served below /at: it names the versions that were served, or the revision
// that introduced the kind. Other errors are returned as they are.
func (rd *Reader) Absent(ctx context.Context, c *call.Call, err error) error {
	if c.Past.Tip == nil || !c.Info.IsResourceRequest || !apierrors.IsNotFound(err) {
		return err
	}
	gvr := c.GVR()
	if c.VersionOfPath(gvr) != nil {
		return err // the resource is served; the rest of the path is wrong
	}
	text := fmt.Sprintf("%s of version %s was not served at revision %d", gvr.GroupResource(), gvr.Version, c.Past.Tip.Revision())
	if k := c.Past.Tip.Policy.Kind(gvr.GroupResource()); k != nil {
		var versions []string
		for _, v := range k.Versions {
			if v.Served {
				versions = append(versions, v.Name)
			}
		}
		text += ": its versions were " + strings.Join(versions, ", ")
	} else if since, findErr := rd.Past.Introduced(ctx, c.Tip, gvr.GroupResource(), c.Past.Tip.Revision()); findErr != nil {
		return findErr
	} else if since > 0 {
		text += fmt.Sprintf(": the kind is there since revision %d", since)
	}
	refused := status.NotServedNamed(c.Info.Verb, gvr.GroupResource(), c.Info.Name)
	refused.ErrStatus.Message = text
	return refused
}

// WarnPast warns of what a client below /at does not expect: a version that was not served, or a namespace that did
// not exist.
func (rd *Reader) WarnPast(ctx context.Context, c *call.Call) error {
	if c.Past.Tip == nil {
		return nil
	}
	if c.Past.Converted {
		c.Warn(fmt.Sprintf("%s was not served at revision %d: converted now", c.Kind.GroupVersionKind().GroupVersion(), c.Past.Tip.Revision()))
	}
	if c.Info.Verb == "get" {
		return nil
	}
	return rd.warnNamespace(ctx, c)
}

// warnExact warns if a read of an exact revision, without /at, names a version that was not served then. Such a read
// uses today's kinds and selectors: older objects are converted, and a missing kind has none.
func (rd *Reader) warnExact(ctx context.Context, c *call.Call) error {
	if c.Kind == nil || c.Past.Tip != nil || c.RevisionOfPast() == 0 {
		return nil
	}
	if c.Tip.Policy.Kind(c.Kind.Kind.Stored().GroupResource()) == nil {
		return nil // the server itself serves it, whatever the policy is
	}
	law, err := rd.Past.Policy(ctx, c.Tip, c.Past.Exactly)
	if err != nil {
		return err
	}
	gvr := c.GVR()
	switch {
	case law == nil || law.Kind(c.Kind.Kind.Stored().GroupResource()) == nil:
		c.Warn(fmt.Sprintf("%s was not served at revision %d: there was none", gvr.GroupResource(), c.Past.Exactly))
	case law.Version(gvr) == nil:
		c.Warn(fmt.Sprintf("%s was not served at revision %d: converted now", gvr.GroupVersion(), c.Past.Exactly))
	}
	return nil
}

// warnNamespace warns if the namespace of a list did not exist at the requested revision.
func (rd *Reader) warnNamespace(ctx context.Context, c *call.Call) error {
	why, err := rd.noNamespace(ctx, c, c.RevisionOfPast())
	if why != "" {
		c.Warn(why)
	}
	return err
}

// noNamespace returns a message if the namespace of a request did not exist at a past revision, with the revisions
// around it at which it was deleted or created; else "".
func (rd *Reader) noNamespace(ctx context.Context, c *call.Call, then uint64) (string, error) {
	if then == 0 || c.Key.Namespace == "" {
		return "", nil
	}
	ns, err := rd.Past.Object(ctx, c.Tip, commit.Namespaces, "", c.Key.Namespace, then)
	if ns != nil || err != nil {
		return "", err
	}
	went, came, err := rd.Past.Around(ctx, commit.Namespaces, "", c.Key.Namespace, then, c.Tip.Revision())
	text := fmt.Sprintf("there was no namespace %q at revision %d", c.Key.Namespace, then)
	if went > 0 {
		text += fmt.Sprintf(": it was deleted at revision %d", went)
	}
	if came > 0 {
		text += fmt.Sprintf(": it was created at revision %d", came)
	}
	return text, err
}
