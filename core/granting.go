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
	i := r.Info
	r.Key = commit.Key{GroupResource: kind.Version.Kind.GroupResource(), Namespace: i.Namespace, Name: i.Name}
	if !call.Serves(i, kind.Version) {
		return status.NotServed(i.Verb, r.Resource())
	}
	if r.HTTP.Method == http.MethodHead {
		return status.MethodNotAllowed(i.Verb) // as of all built-in kinds
	}
	if !call.Allows(i, kind.Version) {
		return apierrors.NewMethodNotSupported(r.Resource(), i.Verb)
	}
	r.Write = r.Write || i.Verb == "deletecollection"
	r.Kind, r.rendered = kind.Version, kind
	return nil
}

func (p *Pipeline) getRendered(ctx context.Context, r *Request) error {
	version, exact, err := r.getVersion()
	if err != nil {
		return err
	}
	world, _, err := p.WorldAt(ctx, r, version, exact)
	if err != nil {
		return err
	}
	if r.Sent {
		return nil
	}
	o := rendered.At(r.rendered, world, world.Objects).Get(r.Key.Namespace, r.Key.Name)
	if o == nil {
		return apierrors.NewNotFound(r.Resource(), r.Key.Name)
	}
	return p.AnswerObject(r, 200, o.JSON)
}

// listRendered answers with everything at once, whatever the limit, so that no client has a
// token to go on with.
func (p *Pipeline) listRendered(ctx context.Context, r *Request) error {
	f, err := r.Format()
	if err != nil {
		return err
	}
	o, sel, err := p.ListOptions(r)
	if err != nil {
		return err
	}
	if o.Continue != "" {
		return apierrors.NewBadRequest("invalid continue token: lists of " + r.Resource().String() + " are not continued")
	}
	world, revision, err := p.WorldAt(ctx, r, o.ResourceVersion, read.Exactly(o))
	if err != nil {
		return err
	}
	if r.Sent {
		return nil
	}
	found := slices.Collect(rendered.At(r.rendered, world, world.Objects).List(&sel))
	return p.AnswerList(r, f, metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)}, found)
}

// refuseRendered is the stage decode of a write, and its end: it says where the policy says
// what the client wants to change. What is not there is not found, so that who cleans up can
// go on; but for a write that would create it.
func (r *Request) refuseRendered() error {
	name, creates := r.Key.Name, false
	switch r.Info.Verb {
	case "create":
		if r.Body == nil {
			var err error
			if r.Body, err = r.ReadJSON(r.Kind.GroupVersionKind()); err != nil {
				return err
			}
		}
		name, creates = gjson.GetBytes(r.Body.Raw, "metadata.name").String(), true
	case "update":
		creates = r.CreatesOnUpdate()
	case "patch":
		patchType, err := r.PatchType()
		if err != nil {
			return err
		}
		creates = types.PatchType(patchType) == types.ApplyYAMLPatchType
	}
	id, source := r.rendered.Rule(r.Tip.Policy.Form(), name)
	switch {
	case strings.HasPrefix(id, policy.BuiltinTeam+"/"):
		return apierrors.NewForbidden(r.Resource(), name, errors.New(r.rendered.Says+" defined by the policy, and this is a part of every policy"))
	case id == "" && creates:
		return apierrors.NewForbidden(r.Resource(), name, errors.New(r.rendered.Says+" defined by the policy, not through the API: add it to "+r.rendered.Part+" of a team in the bundle, and push that"))
	case id == "" && r.Info.Verb != "deletecollection":
		return apierrors.NewNotFound(r.Resource(), name)
	}
	where := source.String()
	if where == "" {
		where = "the package of " + r.bundleFile()
	}
	return apierrors.NewForbidden(r.Resource(), name, errors.New(r.rendered.Says+" defined by the policy: change "+where+" and push it"))
}

// bundleFile is the first file of the bundle's own package.
func (r *Request) bundleFile() string {
	in := r.Tip.Policies.Active
	for _, f := range in.Sources {
		if pathpkg.Dir(f.Path) == in.Package {
			return f.Path
		}
	}
	return in.Package
}
