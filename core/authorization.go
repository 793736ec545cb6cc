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
	if err := p.authorized(ctx, r); err != nil || r.tip.Policy == nil {
		return err
	}
	return p.arrive(ctx, r)
}

// arrive finds what an authorized request is about.
func (p *Pipeline) arrive(ctx context.Context, r *Request) error {
	if err := p.enter(ctx, r); err != nil {
		return err
	}
	if err := r.find(); err != nil {
		return p.absent(ctx, r, err)
	}
	if err := p.read(ctx, r); err != nil {
		return err
	}
	// What depends on the object is decided once that is known: by a write of an object.
	if (r.kind == nil || !r.write) && r.decision.Pending != nil && !r.ofCollection() {
		return status.Forbidden(&r.access, r.decision)
	}
	return nil
}

// authorized asks the tip's policy.
func (p *Pipeline) authorized(ctx context.Context, r *Request) error {
	if r.tip.Policy == nil {
		if public(r.http.URL.Path) {
			return nil
		}
		return status.Unavailable("no policy is in force yet")
	}
	r.w.Header().Set(policyHeader, r.tip.Policy.DigestString())
	i := r.info
	r.access = policy.Request{
		User: r.user.GetName(), UID: r.user.GetUID(), Groups: r.user.GetGroups(), Extra: r.user.GetExtra(),
		Verb: i.Verb, IsResource: i.IsResourceRequest, Group: i.APIGroup, Version: i.APIVersion, Resource: i.Resource, Subresource: i.Subresource, Namespace: i.Namespace, Name: i.Name, Path: i.Path,
		Selectors: policy.ParseSelectors(i.FieldSelector, i.LabelSelector),
	}
	r.authorized = r.tip.Policy.Authorize(ctx, &r.access)
	if r.item != "" && (r.authorized.Allowed || r.authorized.Pending != nil) {
		// A deny may name what the collection holds.
		named := r.access
		named.Name = r.item
		r.authorized = r.tip.Policy.Authorize(ctx, &named)
	}
	r.decision = r.authorized
	if !r.decision.Allowed && r.decision.Pending == nil {
		return status.Forbidden(&r.access, r.decision)
	}
	return nil
}

// find tells what is at the request's path.
func (r *Request) find() error {
	i := r.info
	r.kind, r.wanted, r.review, r.rendered, r.law, r.explains, r.issues, r.question = nil, nil, nil, nil, false, false, false, nil
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
	kind := r.versionThen(gvr)
	if kind != nil && !kind.Kind.Builtin && i.Name != "" && kind.Kind.Namespaced == (i.Namespace != "") && !kind.Serves(i.Subresource) {
		r.warnDeprecated(kind)
		return apierrors.NewNotFound(gvr.GroupResource(), i.Name) // as upstream, which does not look for it
	}
	if kind == nil || !served(i, kind) {
		return status.NotServed(i.Verb, gvr.GroupResource())
	}
	if kind.Kind.Builtin && (!allowed(i, kind) || r.http.Method == http.MethodHead) {
		return methodNotAllowed(i.Verb) // as upstream, which has no handler there that says more
	}
	if !allowed(i, kind) {
		r.warnDeprecated(kind)
		return apierrors.NewMethodNotSupported(gvr.GroupResource(), i.Verb)
	}
	r.kind = kind
	r.key = commit.Key{GroupResource: kind.Kind.Stored().GroupResource(), Namespace: i.Namespace, Name: i.Name}
	if r.item != "" {
		r.key.Name = r.item
	}
	if !r.kind.Kind.Namespaced {
		r.key.Namespace = "" // of a namespace, it is the name once more
	}
	return nil
}

// served tells whether the kind has a place at the request's path. What a request was
// authorized in a namespace for must not reach out of it: for a namespace itself, that
// is its own name.
func served(i *request.RequestInfo, kind *policy.Version) bool {
	switch {
	case len(i.Parts) > 3:
		return false
	case kind.Serves(i.Subresource):
	case i.Subresource == finalize && i.APIGroup == "" && i.Resource == commit.Namespaces.Resource:
	default:
		return false
	}
	if !kind.Kind.Namespaced {
		return i.Namespace == "" || i.APIGroup == "" && i.Resource == "namespaces" && i.Namespace == i.Name
	}
	// Across all namespaces there are lists and watches; a field selector can have
	// given them a name.
	return i.Namespace != "" || i.Verb == "list" || i.Verb == "watch" || (i.Verb == "create" || i.Verb == "deletecollection") && kind.Kind.Builtin
}

// allowed tells whether what is at the request's path takes its method.
func allowed(i *request.RequestInfo, kind *policy.Version) bool {
	if i.Subresource == finalize {
		return i.Verb == "update"
	}
	switch i.Verb {
	case "get":
		return i.Name != ""
	case "list", "watch":
		return i.Subresource == ""
	case "deletecollection":
		return i.Subresource == "" && !kind.NoDeleteCollection && (i.Namespace != "" || !kind.Kind.Namespaced)
	case "create":
		return i.Name == "" && (i.Namespace != "" || !kind.Kind.Namespaced)
	case "update", "patch":
		return i.Name != ""
	case "delete":
		return i.Name != "" && i.Subresource == ""
	}
	return false
}
