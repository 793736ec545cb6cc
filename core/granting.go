package core

import (
	"context"
	"errors"
	"net/http"
	pathpkg "path"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/definitions"
	"stele.dev/stele/core/rbac"
	"stele.dev/stele/core/rendered"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// renderedKinds are those of what the policy says.
var renderedKinds = append(slices.Clone(rbac.Kinds), definitions.Kind)

// findRendered returns the kind that is served as a resource, or nil.
func findRendered(gvr schema.GroupVersionResource) *rendered.Kind {
	i := slices.IndexFunc(renderedKinds, func(k *rendered.Kind) bool { return k.GroupVersionResource() == gvr })
	if i < 0 {
		return nil
	}
	return renderedKinds[i]
}

// allowedRendered tells whether there is what the policy says at the request's path, and whether
// it takes the method. Writes are let through to be refused with a reason.
func (r *Request) allowedRendered(kind *rendered.Kind) error {
	i := r.info
	r.key = commit.Key{GroupResource: kind.Version.Kind.GroupResource(), Namespace: i.Namespace, Name: i.Name}
	if !served(i, kind.Version) {
		return status.NotServed(i.Verb, r.resource())
	}
	if r.http.Method == http.MethodHead {
		return methodNotAllowed(i.Verb) // as of all built-in kinds
	}
	if !allowed(i, kind.Version) {
		return apierrors.NewMethodNotSupported(r.resource(), i.Verb)
	}
	r.write = r.write || i.Verb == "deletecollection"
	r.kind, r.rendered = kind.Version, kind
	return nil
}

func (p *Pipeline) getRendered(ctx context.Context, r *Request) error {
	version, exact, err := r.getVersion()
	if err != nil {
		return err
	}
	world, _, err := p.worldAt(ctx, r, version, exact)
	if err != nil {
		return err
	}
	if r.sent {
		return nil
	}
	o := rendered.At(r.rendered, world, world.Objects).Get(r.key.Namespace, r.key.Name)
	if o == nil {
		return apierrors.NewNotFound(r.resource(), r.key.Name)
	}
	return p.answerObject(r, 200, o.JSON)
}

// listRendered answers with everything at once, whatever the limit, so that no client has a
// token to go on with.
func (p *Pipeline) listRendered(ctx context.Context, r *Request) error {
	f, err := r.format()
	if err != nil {
		return err
	}
	o, sel, err := p.listOptions(r)
	if err != nil {
		return err
	}
	if o.Continue != "" {
		return apierrors.NewBadRequest("invalid continue token: lists of " + r.resource().String() + " are not continued")
	}
	world, revision, err := p.worldAt(ctx, r, o.ResourceVersion, exactly(o))
	if err != nil {
		return err
	}
	if r.sent {
		return nil
	}
	found := slices.Collect(rendered.At(r.rendered, world, world.Objects).List(&sel))
	return p.answerList(r, f, metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)}, found)
}

// refuseRendered is the stage decode of a write, and its end: it says where the policy says
// what the client wants to change. What is not there is not found, so that who cleans up can
// go on; but for a write that would create it.
func (r *Request) refuseRendered() error {
	name, creates := r.key.Name, false
	switch r.info.Verb {
	case "create":
		if r.body == nil {
			var err error
			if r.body, err = r.readJSON(r.kind.GroupVersionKind()); err != nil {
				return err
			}
		}
		name, creates = gjson.GetBytes(r.body.raw, "metadata.name").String(), true
	case "update":
		creates = r.createsOnUpdate()
	case "patch":
		patchType, err := r.patchType()
		if err != nil {
			return err
		}
		creates = types.PatchType(patchType) == types.ApplyYAMLPatchType
	}
	id, source := r.rendered.Rule(r.tip.Policy.Form(), name)
	switch {
	case strings.HasPrefix(id, policy.BuiltinTeam+"/"):
		return apierrors.NewForbidden(r.resource(), name, errors.New(r.rendered.Says+" defined by the policy, and this is a part of every policy"))
	case id == "" && creates:
		return apierrors.NewForbidden(r.resource(), name, errors.New(r.rendered.Says+" defined by the policy, not through the API: add it to "+r.rendered.Part+" of a team in the bundle, and push that"))
	case id == "" && r.info.Verb != "deletecollection":
		return apierrors.NewNotFound(r.resource(), name)
	}
	where := source.String()
	if where == "" {
		where = "the package of " + r.bundleFile()
	}
	return apierrors.NewForbidden(r.resource(), name, errors.New(r.rendered.Says+" defined by the policy: change "+where+" and push it"))
}

// bundleFile is the first file of the bundle's own package.
func (r *Request) bundleFile() string {
	in := r.tip.Policies.Active
	for _, f := range in.Sources {
		if pathpkg.Dir(f.Path) == in.Package {
			return f.Path
		}
	}
	return in.Package
}
