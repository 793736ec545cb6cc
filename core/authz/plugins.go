package authz

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/policy"
)

// programs are the plugins of one loaded policy. Many policies are loaded that nobody asks: those of
// the past, and at the start all that ever were in force. So nothing runs for them until one is asked,
// or comes in force.
type programs struct {
	of      *Authorizers
	policy  *policy.Policy
	specs   []host.Spec
	binding *host.Binding // guarded by of.mu, as the next
	over    bool          // the binding was released, or is about to be
}

func specOf(p *policy.Plugin) host.Spec {
	return host.Spec{
		Name: p.Name, SHA256: p.SHA256, Config: p.Config, Secrets: p.Secrets,
		Timeout: p.Timeout, CacheTTL: p.CacheTTL, FailurePolicy: p.FailurePolicy, Shadow: p.Shadow,
	}
}

// bind returns what is asked. Requests that began under a policy that has been replaced since may still ask
// a binding that was released; none is made for them, which is nil: they are refused, and so decided
// again.
func (p *programs) bind() *host.Binding {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if (p.binding == nil || p.over) && p.of.law != nil && p.of.law.Tip().Policy == p.policy {
		p.binding, p.over = p.of.options.Plugins.Bind(p.specs), false
		p.of.bound = append(p.of.bound, p)
	}
	return p.binding
}

// plugin is one of them, as the policy asks it.
type plugin struct {
	*programs
	*policy.Plugin
}

// Authorize implements policy.Authorizer: the host bounds the time, coalesces and remembers.
func (p *plugin) Authorize(ctx context.Context, r *policy.Request) policy.Opinion {
	b := p.bind()
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
	a := ask(ctx, p.Name, question(r))
	o := policy.Opinion{Reason: brief(a.Reason), Detail: brief(a.Detail), Failed: a.Failed, Program: p.SHA256[host.System]}
	switch a.Decision {
	case authorizerpb.Decision_DECISION_ALLOW:
		o.Verdict = policy.Allows
	case authorizerpb.Decision_DECISION_NO_OPINION:
	default:
		o.Verdict = policy.Denies
	}
	return o
}

// ByName implements policy.Authorizer: nobody knows what it looks at.
func (*plugin) ByName(*policy.Request) bool { return true }

// question is a request as plugins are asked.
func question(r *policy.Request) *authorizerpb.AuthorizeRequest {
	u := &authorizerpb.User{Name: r.User, Uid: r.UID, Groups: r.Groups}
	if len(r.Extra) > 0 {
		u.Extra = make(map[string]*authorizerpb.Values, len(r.Extra))
		for k, v := range r.Extra {
			u.Extra[k] = &authorizerpb.Values{Values: v}
		}
	}
	q := &authorizerpb.AuthorizeRequest{User: u, Verb: r.Verb, Time: timestamppb.Now()}
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
