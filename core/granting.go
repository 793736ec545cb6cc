package core

import (
	"context"
	"errors"
	pathpkg "path"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/rbac"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

// allowedRBAC tells whether there is a role or binding at the request's path, and whether
// it takes the method. Writes are let through to be refused with a reason.
func (r *Request) allowedRBAC(kind *rbac.Kind) error {
	i := r.info
	r.key = commit.Key{GroupResource: kind.Version.Kind.GroupResource(), Namespace: i.Namespace, Name: i.Name}
	if !served(i, kind.Version) {
		return status.NotServed(i.Verb, r.resource())
	}
	if i.Verb == "deletecollection" {
		r.write = true
	} else if !allowed(i, kind.Version) {
		return apierrors.NewMethodNotSupported(r.resource(), i.Verb)
	}
	r.kind, r.rbac = kind.Version, kind
	return nil
}

// grants are the objects of the tip's policy, in the namespaces of a state that it is in
// force for.
func (r *Request) grants(in *objects.State) *rbac.State {
	return rbac.At(r.rbac, r.tip.Policy, r.tip.PolicyRevision(), in)
}

func (p *Pipeline) getRBAC(ctx context.Context, r *Request) error {
	if err := p.see(ctx, r, r.http.URL.Query().Get("resourceVersion")); err != nil {
		return err
	}
	o := r.grants(r.tip.Objects).Get(r.key.Namespace, r.key.Name)
	if o == nil {
		return apierrors.NewNotFound(r.resource(), r.key.Name)
	}
	return p.answerObject(r, 200, o.JSON)
}

// listRBAC answers with everything at once, whatever the limit, so that no client has a
// token to go on with.
func (p *Pipeline) listRBAC(ctx context.Context, r *Request) error {
	o, sel, err := p.listOptions(r)
	if err != nil {
		return err
	}
	f, err := negotiate.Object(r.http)
	if err != nil {
		return err
	}
	if o.Continue != "" {
		return apierrors.NewBadRequest("invalid continue token: lists of " + r.resource().String() + " are not continued")
	}
	if err := p.see(ctx, r, o.ResourceVersion); err != nil {
		return err
	}
	revision, present := r.tip.Revision(), r.present(&sel)
	if exactly(o) {
		if revision, err = parseRevision(o.ResourceVersion); err != nil {
			return err
		}
		if revision < r.tip.PolicyRevision() {
			return objects.ErrExpired
		}
		then, err := p.committer.Objects().At(commit.Namespaces, revision)
		if err != nil {
			return err
		}
		present = r.grants(then).List(&sel)
	}
	var found []*objects.Object
	for x := range present {
		found = append(found, x)
	}
	return p.answerList(r, f, metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)}, found)
}

// refuseRBAC is the stage decode of a write, and its end: it says where the policy says
// what the client wants to change.
func (r *Request) refuseRBAC() error {
	name := r.key.Name
	if r.info.Verb == "create" {
		if r.body == nil {
			var err error
			if r.body, err = r.readJSON(r.kind.GroupVersionKind()); err != nil {
				return err
			}
		}
		name = gjson.GetBytes(r.body.raw, "metadata.name").String()
	}
	id, source := r.rbac.Rule(r.tip.Policy.Form(), name)
	if strings.HasPrefix(id, policy.BuiltinTeam+"/") {
		return apierrors.NewForbidden(r.resource(), name, errors.New("access is defined by the policy, and this is a part of every policy"))
	}
	if id == "" && !strings.HasPrefix(r.info.Verb, "delete") {
		part := "bindings"
		if kind := r.kind.Kind.Kind.Kind; kind == "ClusterRole" || kind == "Role" {
			part = "clusterRoles"
		}
		return apierrors.NewForbidden(r.resource(), name, errors.New("access is defined by the policy, not through the API: add it to rbac."+part+" of a team in the bundle, and push that"))
	}
	where := source.String()
	if where == "" {
		where = "the package of " + r.bundleFile()
	}
	return apierrors.NewForbidden(r.resource(), name, errors.New("access is defined by the policy: change "+where+" and push it"))
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
