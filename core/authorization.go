package core

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// authorization asks the tip's policy. What is not served is only said to those who may
// ask for it.
func (p *Pipeline) authorization(_ context.Context, r *Request) error {
	if r.tip.Policy == nil {
		if public(r.http.URL.Path) {
			return nil
		}
		return status.Unavailable("no policy is in force yet")
	}
	i := r.info
	r.access = policy.Request{
		User: r.user.GetName(), Groups: r.user.GetGroups(), Verb: i.Verb, IsResource: i.IsResourceRequest,
		Group: i.APIGroup, Resource: i.Resource, Subresource: i.Subresource, Namespace: i.Namespace, Name: i.Name, Path: i.Path,
	}
	r.decision = r.tip.Policy.Authorize(&r.access)
	if !r.decision.Allowed {
		return status.Forbidden(&r.access)
	}
	if !i.IsResourceRequest {
		return nil
	}
	gvr := schema.GroupVersionResource{Group: i.APIGroup, Version: i.APIVersion, Resource: i.Resource}
	if r.isChanges() {
		return r.allowedChanges()
	}
	r.kind = r.tip.Policy.Version(gvr)
	if r.kind == nil || !served(r) {
		return status.NotServed(i.Verb, gvr.GroupResource())
	}
	if !allowed(r) {
		return apierrors.NewMethodNotSupported(gvr.GroupResource(), i.Verb)
	}
	r.key = commit.Key{GroupResource: gvr.GroupResource(), Namespace: i.Namespace, Name: i.Name}
	if !r.kind.Kind.Namespaced {
		r.key.Namespace = "" // of a namespace, it is the name once more
	}
	return nil
}

// served tells whether the kind has a place at the request's path.
func served(r *Request) bool {
	i := r.info
	if i.Subresource != "" && (i.Subresource != "status" || !r.kind.Status || len(i.Parts) > 3) {
		return false
	}
	if !r.kind.Kind.Namespaced {
		return i.Namespace == "" || i.Resource == "namespaces"
	}
	return i.Namespace != "" || i.Name == ""
}

// allowed tells whether what is at the request's path takes its method.
func allowed(r *Request) bool {
	i := r.info
	switch i.Verb {
	case "get":
		return i.Name != ""
	case "list", "watch":
		return i.Subresource == ""
	case "create":
		return i.Name == "" && (i.Namespace != "" || !r.kind.Kind.Namespaced)
	case "update", "patch":
		return i.Name != ""
	case "delete":
		return i.Name != "" && i.Subresource == ""
	}
	return false
}
