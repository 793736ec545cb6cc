package core

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/reviews"
	"stele.dev/stele/core/status"
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
	return p.arrive(ctx, r)
}

// arrive finds what an authorized request is about.
func (p *Pipeline) arrive(ctx context.Context, r *Request) error {
	if err := p.Enter(ctx, r); err != nil {
		return err
	}
	if err := r.find(); err != nil {
		return p.Absent(ctx, r, err)
	}
	if err := p.read(ctx, r); err != nil {
		return err
	}
	// What depends on the object is decided once that is known: by a write of an object.
	if (r.Kind == nil || !r.Write) && r.Decision.Pending != nil && !r.ofCollection() {
		return status.Forbidden(&r.Access, r.Decision)
	}
	return nil
}

// authorized asks the tip's policy.
func (p *Pipeline) authorized(ctx context.Context, r *Request) error {
	if r.Tip.Policy == nil {
		if public(r.HTTP.URL.Path) {
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

// find tells what is at the request's path.
func (r *Request) find() error {
	i := r.Info
	r.Kind, r.wanted, r.review, r.rendered, r.law, r.explains, r.issues, r.question = nil, nil, nil, nil, false, false, false, nil
	if !i.IsResourceRequest {
		return nil
	}
	gvr := schema.GroupVersionResource{Group: i.APIGroup, Version: i.APIVersion, Resource: i.Resource}
	if r.isChanges() {
		return r.allowedChanges()
	}
	if isPolicies(gvr) {
		return r.allowedPolicies()
	}
	if isExplanations(gvr) {
		return r.allowedExplanations()
	}
	if isTokens(i) {
		return r.allowedTokens()
	}
	if question := findQuestion(gvr); question != nil {
		return r.allowedQuestion(question)
	}
	if review := reviews.Find(gvr); review != nil {
		return r.allowedReview(review)
	}
	if kind := findRendered(gvr); kind != nil {
		return r.allowedRendered(kind)
	}
	kind := r.VersionOfPath(gvr)
	if kind != nil && !kind.Kind.Builtin && i.Name != "" && kind.Kind.Namespaced == (i.Namespace != "") && !kind.Serves(i.Subresource) {
		r.WarnDeprecated(kind)
		return apierrors.NewNotFound(gvr.GroupResource(), i.Name) // as upstream, which does not look for it
	}
	if kind == nil || !call.Serves(i, kind) {
		return status.NotServed(i.Verb, gvr.GroupResource())
	}
	if kind.Kind.Builtin && (!call.Allows(i, kind) || r.HTTP.Method == http.MethodHead) {
		return status.MethodNotAllowed(i.Verb) // as upstream, which has no handler there that says more
	}
	if !call.Allows(i, kind) {
		r.WarnDeprecated(kind)
		return apierrors.NewMethodNotSupported(gvr.GroupResource(), i.Verb)
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

