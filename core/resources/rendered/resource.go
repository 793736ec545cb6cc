package rendered

import (
	"context"
	"iter"
	"net/http"
	pathpkg "path"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/objects"
)

// service answers calls about a kind.
type service struct {
	*read.Reader
	kind *Kind
}

// New returns the virtual resource of a kind. Its objects are read like stored objects. A write that would change one is refused; the
// error names the place in the policy to change.
func New(rd *read.Reader, k *Kind) *catalog.Resource {
	v := &service{rd, k}
	row := &catalog.Resource{Resource: k.Resource(), Described: k.Version, VerbsUnder: k.verbs, Route: v.route, Cost: estimate, Serve: v.serve, Write: func(c *call.Call) catalog.Write { return &write{v: v, c: c} }}
	if k.Brought != nil {
		row.Stored = v.stored
	}
	return row
}

// estimate returns the time of a call. A list or watch makes an object of each rule.
func estimate(c *call.Call) time.Duration {
	if c.Info.Verb == "list" || c.Info.Verb == "watch" {
		return 2 * time.Millisecond
	}
	return 0
}

// route checks the path and the verb. It lets writes pass, which [write] answers.
func (v *service) route(c *call.Call) error {
	i := c.Info
	if !call.Serves(i, v.kind.Version) {
		return status.NotServed(i.Verb, c.Resource())
	}
	if c.HTTP.Method == http.MethodHead {
		return status.MethodNotAllowed(i.Verb) // as for all built-in kinds
	}
	if !call.Allows(i, v.kind.Version) {
		return status.MethodNotSupported(c.Resource(), i.Verb)
	}
	c.Write = c.Write || i.Verb == "deletecollection"
	c.Kind = v.kind.Version
	return nil
}

func (v *service) serve(ctx context.Context, c *call.Call) error {
	switch c.Info.Verb {
	case "get":
		return v.get(ctx, c)
	case "list":
		return v.list(ctx, c)
	default:
		return v.WatchRendered(ctx, c, v)
	}
}

func (v *service) get(ctx context.Context, c *call.Call) error {
	version, exact, err := read.GetVersion(c)
	if err != nil {
		return err
	}
	tip, _, err := v.WorldAt(ctx, c, version, exact)
	if err != nil || c.Sent {
		return err
	}
	o := At(v.kind, tip, tip.Objects).Get(c.Key.Namespace, c.Key.Name)
	if o == nil {
		return status.NotFound(c.Resource(), c.Key.Name)
	}
	return v.AnswerObject(c, http.StatusOK, o.JSON)
}

// list answers with all objects and ignores the limit, so that there are no continue tokens.
func (v *service) list(ctx context.Context, c *call.Call) error {
	f, err := c.Format()
	if err != nil {
		return err
	}
	o, sel, err := v.ListOptions(c)
	if err != nil {
		return err
	}
	if o.Continue != "" {
		return status.BadRequestf("invalid continue token: lists of %s are not continued", c.Resource())
	}
	tip, revision, err := v.WorldAt(ctx, c, o.ResourceVersion, read.Exactly(o))
	if err != nil || c.Sent {
		return err
	}
	found := slices.Collect(v.List(tip, &sel))
	if f.As == negotiate.Table && v.kind.TableOrder != nil {
		slices.SortStableFunc(found, v.kind.TableOrder)
	}
	return v.AnswerList(c, f, metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)}, found)
}

// List implements [read.Rendered].
func (v *service) List(tip *commit.Tip, sel *objects.Selection) iter.Seq[*objects.Object] {
	return At(v.kind, tip, tip.Objects).List(sel)
}

// Watch implements [read.Rendered].
func (v *service) Watch(ctx context.Context, c *commit.Committer, tip *commit.Tip, sel objects.Selection, resumed bool) (read.Source, error) {
	return Watch(ctx, c, tip, v.kind, sel, resumed)
}

// Changes implements [read.Rendered].
func (v *service) Changes(before, after *commit.Tip, sel *objects.Selection, from uint64) []objects.Event {
	return Changes(At(v.kind, before, before.Objects), At(v.kind, after, after.Objects), sel, from)
}

// bundleFile returns the first file of the bundle's own package.
func bundleFile(tip *commit.Tip) string {
	in := tip.Policies.Active
	for _, f := range in.Sources {
		if pathpkg.Dir(f.Path) == in.Package {
			return f.Path
		}
	}
	return in.Package
}
