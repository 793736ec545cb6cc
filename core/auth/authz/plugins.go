package authz

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"
	"stele.dev/stele/core/reviewers/plugins"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/tracing"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/policy"
)

// plugin is one plugin as the policy asks it.
type plugin struct {
	set *plugins.Set
	*policy.Plugin
}

// Authorize implements policy.Authorizer. The host limits the time, shares concurrent questions, and caches answers.
func (p *plugin) Authorize(ctx context.Context, r *policy.Request) policy.Opinion {
	b := p.set.Bind()
	if b == nil && p.Shadow {
		return policy.Opinion{Detail: "shadow: the policy is not in force any more, and the plugin is not asked"}
	}
	if b == nil {
		return cannot("plugin:"+p.Name, "the policy is not in force any more")
	}
	ask := b.Authorize
	if policy.Explains(ctx) {
		ask = b.Explain
	}
	ctx, span := tracing.Start(ctx, "authorizer plugin "+p.Name)
	defer span.End()
	a := ask(ctx, p.Name, question(r))
	o := policy.Opinion{Reason: status.Brief(a.Reason), Detail: status.Brief(a.Detail), Failed: a.Failed, Program: p.SHA256[host.System]}
	switch a.Decision {
	case authorizerpb.Decision_DECISION_ALLOW:
		o.Verdict = policy.Allows
	case authorizerpb.Decision_DECISION_NO_OPINION:
	default:
		o.Verdict = policy.Denies
	}
	return o
}

// ByName implements policy.Authorizer: a plugin may look at any name.
func (*plugin) ByName(*policy.Request) bool { return true }

// question converts a request to the message for plugins.
func question(r *policy.Request) *authorizerpb.AuthorizeRequest {
	q := &authorizerpb.AuthorizeRequest{User: plugins.User(r.User, r.UID, r.Groups, r.Extra), Verb: r.Verb, Time: timestamppb.Now()}
	if !r.IsResource {
		q.Target = &authorizerpb.AuthorizeRequest_Path{Path: r.Path}
		return q
	}
	target := &authorizerpb.Resource{
		Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name,
	}
	if s := r.Selectors; s != nil {
		target.FieldSelector, target.LabelSelector = fieldRequirements(s.Fields), labelRequirements(s.Labels)
	}
	q.Target = &authorizerpb.AuthorizeRequest_Resource{Resource: target}
	return q
}
