package core

import (
	"context"
	"net/http"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/virtual"
	"stele.dev/stele/policy"
)

// policyHeader names the policy that decided the request, by its digest.
const policyHeader = "Stele-Policy"

// authorization asks the tip's policy. What is not served is only said to those who may
// ask for it.
func (p *Pipeline) authorization(ctx context.Context, r *Request) error {
	if err := p.authorized(ctx, r); err != nil || r.Tip.Policy == nil {
		return err
	}
	if r.Info.Verb == "watch" {
		r.Reauthorize = func(ctx context.Context, turn func(context.Context) (func(), error)) error {
			return p.reauthorize(ctx, r, turn)
		}
	}
	return p.arrive(ctx, r)
}

// reauthorize authorizes a watch again, under the policy now in force. Authorizers outside of the policy are asked in
// turns.
func (p *Pipeline) reauthorize(ctx context.Context, r *Request, turn func(context.Context) (func(), error)) error {
	asking := policy.InTurn(ctx, turn)
	r.Tip = p.committer.Tip()
	if err := p.impersonation(asking, r); err != nil {
		return err
	}
	if err := p.authorized(asking, r); err != nil {
		return err
	}
	return p.arrive(ctx, r)
}

// arrive finds what an authorized request is about.
func (p *Pipeline) arrive(ctx context.Context, r *Request) error {
	if err := p.reader.Enter(ctx, &r.Call); err != nil {
		return err
	}
	if err := p.find(ctx, r); err != nil {
		return err
	}
	if err := p.checkPast(ctx, r); err != nil {
		return err
	}
	// What depends on the object is decided once that is known: by a write of an object.
	if (r.Kind == nil || !r.Write) && r.Decision.Pending != nil && !r.ofCollection() {
		return status.Forbidden(&r.Access, r.Decision)
	}
	return nil
}

// checkPast refuses a request below /at that the past has no answer to: writes, and what is about the present alone.
func (p *Pipeline) checkPast(ctx context.Context, r *Request) error {
	switch {
	case r.Past.Moment == nil || r.Past.Tip == nil:
		return nil
	case r.row != nil && r.row.Past == virtual.AsToday:
		r.Past.Tip = nil
		return nil
	case r.Write || r.row != nil && r.row.Past == virtual.Refuses || r.ofCollection():
		return read.RefusePast(&r.Call)
	}
	return p.reader.CheckWindow(ctx, &r.Call, r.Past.Tip.Revision())
}

// authorized asks the tip's policy.
func (p *Pipeline) authorized(ctx context.Context, r *Request) error {
	if r.Tip.Policy == nil {
		if call.PublicPath(r.HTTP.URL.Path) {
			return nil
		}
		return status.Unavailable("no policy is in force yet")
	}
	r.W.Header().Set(policyHeader, r.Tip.Policy.DigestString())
	i := r.Info
	r.Access = policy.Request{
		User: r.User.GetName(), UID: r.User.GetUID(), Groups: r.User.GetGroups(), Extra: r.User.GetExtra(),
		Verb: i.Verb, IsResource: i.IsResourceRequest, Group: i.APIGroup, Version: i.APIVersion, Resource: i.Resource, Subresource: i.Subresource, Namespace: i.Namespace, Name: i.Name, Path: i.Path,
		Selectors: policy.ParseSelectors(i.FieldSelector, i.LabelSelector),
	}
	r.authorized = r.Tip.Policy.Authorize(ctx, &r.Access)
	if r.item != "" && (r.authorized.Allowed || r.authorized.Pending != nil) {
		// A deny may name what the collection holds.
		named := r.Access
		named.Name = r.item
		r.authorized = r.Tip.Policy.Authorize(ctx, &named)
	}
	r.Decision = r.authorized
	if !r.Decision.Allowed && r.Decision.Pending == nil {
		return status.Forbidden(&r.Access, r.Decision)
	}
	return nil
}

// find finds what is at the request's path: a virtual resource, a kind of stored objects, or neither for other paths.
func (p *Pipeline) find(ctx context.Context, r *Request) error {
	r.Kind, r.row = nil, nil
	r.ResetFormat()
	if !r.Info.IsResourceRequest {
		return nil
	}
	if row := p.table.Find(&r.Call); row != nil {
		err := row.Find(&r.Call)
		r.row, r.Write = row, r.Write && row.Write != nil
		return err
	}
	return p.reader.Absent(ctx, &r.Call, r.findKind())
}

// findKind finds the kind of stored objects at the request's path. Its errors are those of upstream: 404 where
// nothing is served, 405 where the path does not take the verb.
func (r *Request) findKind() error {
	i, gvr := r.Info, r.GVR()
	kind := r.VersionOfPath(gvr)
	if kind != nil && !kind.Kind.Builtin && i.Name != "" && kind.Kind.Namespaced == (i.Namespace != "") && !kind.Serves(i.Subresource) {
		r.WarnDeprecated(kind)
		return status.NotFound(gvr.GroupResource(), i.Name) // as upstream, which does not look for it
	}
	if kind == nil || !call.Serves(i, kind) {
		return status.NotServed(i.Verb, gvr.GroupResource())
	}
	if kind.Kind.Builtin && (!call.Allows(i, kind) || r.HTTP.Method == http.MethodHead) {
		return status.MethodNotAllowed(i.Verb) // as upstream, which has no handler there that says more
	}
	if !call.Allows(i, kind) {
		r.WarnDeprecated(kind)
		return status.MethodNotSupported(gvr.GroupResource(), i.Verb)
	}
	r.Kind = kind
	r.Key = commit.Key{GroupResource: kind.Kind.Stored().GroupResource(), Namespace: i.Namespace, Name: i.Name}
	if r.item != "" {
		r.Key.Name = r.item
	}
	if !r.Kind.Kind.Namespaced {
		r.Key.Namespace = "" // of a namespace, it is the name once more
	}
	return nil
}
