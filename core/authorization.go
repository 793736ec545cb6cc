package core

import (
	"context"
	"net/http"
	"time"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// policyHeader is the response header with the digest of the policy that decided the request.
const policyHeader = "Stele-Policy"

// authorization asks the tip's policy whether the user may make the request, then finds the resource at its path. A
// user without permission gets 403, not 404, for a resource that does not exist.
func (p *Pipeline) authorization(ctx context.Context, r *Request) error {
	if err := p.authorized(ctx, r); err != nil || r.Tip.Policy == nil {
		return err
	}
	if r.Info.Verb == "watch" {
		r.Reauthorize = func(ctx context.Context, turn func(context.Context) (func(), error)) error {
			return p.reauthorize(ctx, r, turn)
		}
	}
	err := p.arrive(ctx, r)
	if err == nil && r.Info.Verb == "watch" && r.Mode.OfClient() && p.shadows.Active() {
		p.offer(r, nil) // it is answered for as long as the client watches
	}
	return err
}

// reauthorize authorizes a watch again, under the policy now in force. Each question to an external authorizer waits
// for a turn.
func (p *Pipeline) reauthorize(ctx context.Context, r *Request, turn func(context.Context) (func(), error)) error {
	asking := policy.InTurn(ctx, turn)
	r.Tip = p.committer.Tip()
	err := p.impersonation(asking, r)
	if err == nil {
		err = p.authorized(asking, r)
	}
	if ctx.Err() != nil {
		return read.ErrGone // the stream ended before there was a decision
	}
	if err != nil {
		return err
	}
	return p.arrive(ctx, r)
}

// arrive resolves an authorized request: its past revision, its resource and its key.
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
	// Only writes of stored objects reach the stage that decides by the object.
	if (r.Kind == nil || !r.Write) && r.Decision.Pending != nil && !r.ofCollection() {
		r.denied = r.Decision
		return status.Forbidden(&r.Access, r.Decision)
	}
	return nil
}

// checkPast refuses a request below /at that the past cannot answer: a write, or a read of a resource that has no
// past. It checks the history window of other requests.
func (p *Pipeline) checkPast(ctx context.Context, r *Request) error {
	switch {
	case r.Past.Moment == nil || r.Past.Tip == nil:
		return nil
	case r.row != nil && r.row.Past == catalog.AsToday:
		r.Past.Tip = nil
		return nil
	case r.Write || r.row != nil && r.row.Past == catalog.Refuses || r.ofCollection():
		return read.RefusePast(&r.Call)
	}
	return p.reader.CheckWindow(ctx, &r.Call, r.Past.Tip.Revision())
}

// authorized asks the tip's policy, and sets Access and Decision.
func (p *Pipeline) authorized(ctx context.Context, r *Request) error {
	if r.Tip.Policy == nil {
		if call.PublicPath(r.HTTP.URL.Path) {
			return nil
		}
		return status.Unavailable("no policy is in force yet")
	}
	r.W.Header().Set(policyHeader, r.Tip.Policy.DigestString())
	r.Access = r.access()
	began := time.Now()
	r.authorized = r.Tip.Policy.Authorize(ctx, &r.Access)
	if r.Mode.OfClient() && !r.Mode.IsPart() {
		p.metrics.authorization(r.authorized, time.Since(began))
	}
	if r.Mode.IsPart() && (r.authorized.Allowed || r.authorized.Pending != nil) {
		// A deny rule may name this object of the collection.
		named := r.Access
		named.Name = r.item
		r.authorized = r.Tip.Policy.Authorize(ctx, &named)
	}
	r.Decision = r.authorized
	if !r.Decision.Allowed && r.Decision.Pending == nil {
		r.denied = r.Decision
		return status.Forbidden(&r.Access, r.Decision)
	}
	return nil
}

// access returns what the policy is asked for a request.
func (r *Request) access() policy.Request {
	i := r.Info
	return policy.Request{
		User: r.User.GetName(), UID: r.User.GetUID(), Groups: r.User.GetGroups(), Extra: r.User.GetExtra(),
		Verb: i.Verb, IsResource: i.IsResourceRequest, Group: i.APIGroup, Version: i.APIVersion, Resource: i.Resource, Subresource: i.Subresource, Namespace: i.Namespace, Name: i.Name, Path: i.Path,
		Selectors: policy.ParseSelectors(i.FieldSelector, i.LabelSelector),
	}
}

// find finds the resource at the request's path: a virtual resource, a kind of stored objects, or none for other
// paths.
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

// findKind sets the kind and the key of stored objects from the request's path. Its errors are kube-apiserver's: 404
// if nothing is served there, 405 if the path does not support the verb.
func (r *Request) findKind() error {
	i, gvr := r.Info, r.GVR()
	kind := r.VersionOfPath(gvr)
	if kind != nil && !kind.Kind.Builtin && i.Name != "" && kind.Kind.Namespaced == (i.Namespace != "") && !kind.Serves(i.Subresource) {
		r.WarnDeprecated(kind)
		return status.NotFound(gvr.GroupResource(), i.Name) // as upstream
	}
	if kind == nil || !call.Serves(i, kind) {
		return status.NotServed(i.Verb, gvr.GroupResource())
	}
	if kind.Kind.Builtin && (!call.Allows(i, kind) || r.HTTP.Method == http.MethodHead) {
		return status.MethodNotAllowed(i.Verb) // as upstream
	}
	if !call.Allows(i, kind) {
		r.WarnDeprecated(kind)
		return status.MethodNotSupported(gvr.GroupResource(), i.Verb)
	}
	r.Kind = kind
	r.Key = commit.Key{GroupResource: kind.Kind.Stored().GroupResource(), Namespace: i.Namespace, Name: i.Name}
	if r.Mode.IsPart() {
		r.Key.Name = r.item
	}
	if !r.Kind.Kind.Namespaced {
		r.Key.Namespace = "" // the path of a namespace sets it to the name
	}
	return nil
}
