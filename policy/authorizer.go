package policy

import (
	"context"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Operation is the kind of write, as admission rules name it.
type Operation string

// Operations of admission rules.
const (
	Create Operation = "CREATE"
	Update Operation = "UPDATE"
	Delete Operation = "DELETE"
)

// UserInfo returns the user of the request.
func (r *Request) UserInfo() user.Info {
	return &user.DefaultInfo{Name: r.User, UID: r.UID, Groups: r.Groups, Extra: r.Extra}
}

// Authorizer returns the policy as an authorizer of k8s.io/apiserver. It does not allow requests
// whose decision depends on the object. Each check of a CEL expression asks the whole chain; the
// time of webhooks and plugins counts towards the expression's time limit.
func (p *Policy) Authorizer() authorizer.UnconditionalAuthorizer { return asAuthorizer{p: p} }

// AuthorizerWithin is [Policy.Authorizer] for CEL's library, which has no context: it asks within ctx.
func (p *Policy) AuthorizerWithin(ctx context.Context) authorizer.UnconditionalAuthorizer {
	return asAuthorizer{p, ctx}
}

type asAuthorizer struct {
	p      *Policy
	within context.Context // nil for that of each call
}

func (a asAuthorizer) Authorize(ctx context.Context, at authorizer.Attributes) (authorizer.Decision, string, error) {
	r := &Request{
		User: at.GetUser().GetName(), UID: at.GetUser().GetUID(), Groups: at.GetUser().GetGroups(), Extra: at.GetUser().GetExtra(),
		Verb: at.GetVerb(), IsResource: at.IsResourceRequest(), Group: at.GetAPIGroup(), Version: at.GetAPIVersion(), Resource: at.GetResource(),
		Subresource: at.GetSubresource(), Namespace: at.GetNamespace(), Name: at.GetName(), Path: at.GetPath(),
	}
	s := &Selectors{}
	s.Fields, s.FieldsError = at.GetFieldSelector()
	s.Labels, s.LabelsError = at.GetLabelSelector()
	if !s.empty() {
		r.Selectors = s
	}
	if a.within != nil {
		ctx = a.within
	}
	d := a.p.Authorize(ctx, r)
	switch {
	case d.Denied:
		return authorizer.DecisionDeny, d.Reason, nil
	case d.Allowed:
		return authorizer.DecisionAllow, d.Reason, nil
	}
	return authorizer.DecisionNoOpinion, d.Reason, nil
}
