package core

import (
	"context"
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/core/resources/shadow"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// Reasons why a request is not decided again.
const (
	unknownOutside   = "an authorizer outside of the policy decides it, or may"
	unknownReviewed  = "a webhook or an admission plugin decides it, or may"
	unknownFailed    = "it failed for a reason that is not of the policy"
	unknownBody      = "it depends on the object, and the body was not read"
	unknownSelection = "it depends on the objects of the collection"
)

// offer hands a request to the shadow policy, with the error that ended it. There must be a shadow.
func (p *Pipeline) offer(r *Request, err error) {
	if r.offered || r.Info == nil || r.Requester == nil || r.User == nil || r.Tip == nil || r.Tip.Policy == nil {
		return
	}
	r.offered = true
	header := r.HTTP.Header.Clone()
	for _, secret := range []string{"Authorization", "Cookie"} {
		header.Del(secret)
	}
	info, stage := *r.Info, r.Stage
	if err != nil && r.hidden != nil {
		stage, err = r.hidden.stage, r.hidden.err
	}
	verdict := verdictOf(r, stage, err)
	// The writes that stages start on their own are not seen: a delete of a collection is one request.
	p.shadows.Offer(&shadow.Seen{
		HTTP:      &http.Request{Method: r.HTTP.Method, URL: r.HTTP.URL, Proto: r.HTTP.Proto, Header: header, Host: r.HTTP.Host, RemoteAddr: r.HTTP.RemoteAddr},
		Requester: r.Requester, User: r.User, Info: &info, Write: info.IsResourceRequest && writeVerbs[info.Verb], OfPast: r.Past.Moment != nil,
		Body: r.Body, Tip: r.Tip, AuditID: r.AuditID, Received: r.Received, Verdict: verdict,
	})
}

var writeVerbs = map[string]bool{"create": true, "update": true, "patch": true, "delete": true}

// decidesPolicy has the stages in which the policy decides.
var decidesPolicy = map[string]bool{"impersonation": true, "authorization": true, "decode": true, "mutation": true, "schema": true, "conditions": true, "validation": true}

// verdictOf returns how the policy decided a request that ended with err. Errors that are not of the policy, such as
// conflicts, mean that the policy allows it, as far as it was asked.
func verdictOf(r *Request, stage string, err error) shadow.Verdict {
	if d := r.Decision; d != nil && d.By() != nil {
		return shadow.Verdict{Unknown: unknownOutside}
	}
	if len(r.reviewed) > 0 {
		return shadow.Verdict{Unknown: unknownReviewed}
	}
	if err == nil || !decidesPolicy[stage] {
		return shadow.Verdict{}
	}
	st, internal := status.From(err)
	switch {
	case internal || st.Code >= 500 || st.Code == http.StatusTooManyRequests || errors.Is(err, context.Canceled):
		return shadow.Verdict{Unknown: unknownFailed}
	case stage == "decode" && (st.Code == http.StatusNotFound || st.Code == http.StatusConflict),
		r.Past.Moment != nil && st.Code != http.StatusForbidden:
		return shadow.Verdict{}
	}
	return refusalOf(r, stage, st)
}

// refusalOf returns the verdict for a refusal by the policy: the rule, its line and the reason.
func refusalOf(r *Request, stage string, st *metav1.Status) shadow.Verdict {
	v := shadow.Verdict{Stage: stage, Message: st.Message}
	var cause metav1.StatusCause
	if st.Details != nil && len(st.Details.Causes) > 0 {
		cause = st.Details.Causes[0]
	}
	switch stage {
	case "authorization", "conditions":
		if d := r.Decision; d != nil && st.Code == http.StatusForbidden {
			v.Rule, v.Source = d.Rule, d.Source
		}
	case "schema":
		if v.Path = cause.Field; cause.Message != "" {
			v.Message = cause.Message
		}
	case "mutation", "validation":
		cause = status.RuleOf(st)
		if v.Rule, v.Source = string(cause.Type), cause.Field; cause.Message != "" {
			v.Message = cause.Message
		}
	}
	return v
}

// decideAgain decides an answered request under another policy, on the state on which it was decided. It runs the
// stages that decide, and neither commits nor answers. The policy has no authorizers outside of it that could be asked.
func (p *Pipeline) decideAgain(ctx context.Context, seen *shadow.Seen, under *policy.Policy) shadow.Verdict {
	tip, info := *seen.Tip, *seen.Info
	tip.Policy = under
	q := seen.HTTP.WithContext(ctx)
	q.Body = http.NoBody
	r := newRequest(call.Call{
		HTTP: q, W: call.NewDiscard(), AuditID: seen.AuditID, Received: seen.Received, Explained: true, Info: &info, Write: seen.Write,
		Requester: seen.Requester, Tip: &tip, Confirmed: true,
	})
	if seen.Body != nil {
		body := *seen.Body
		r.Body = &body
	}
	r.alone = true
	unknown, err := p.decideAs(ctx, r, seen.OfPast)
	if len(r.reviewed) > 0 {
		return shadow.Verdict{Unknown: unknownReviewed}
	}
	if err != nil {
		outside := len(under.Form().Outside()) > 0
		switch d := r.Decision; {
		case r.Stage == "impersonation" && outside, (r.Stage == "authorization" || r.Stage == "conditions") && outside && (d == nil || !d.Allowed && !d.Denied):
			return shadow.Verdict{Unknown: unknownOutside}
		}
		v := verdictOf(r, r.Stage, err)
		if v.Stage == "schema" {
			v.Rule, v.Source = kindRule(r, err)
		}
		return v
	}
	return shadow.Verdict{Unknown: unknown, Rule: r.Decision.Rule, Source: r.Decision.Source}
}

// kindRule returns the rule of a kind that refused, and its line; empty if the schema itself did.
func kindRule(r *Request, err error) (rule, source string) {
	r.trace.Note(&r.Call, r.authorized, err)
	last := r.trace.Stages[len(r.trace.Stages)-1]
	return last.Rule, last.Source
}

// decideAs runs the stages that decide. The error is a refusal; unknown says why there is no decision.
func (p *Pipeline) decideAs(ctx context.Context, r *Request, ofPast bool) (unknown string, err error) {
	r.Stage = "impersonation"
	if err := p.impersonation(ctx, r); err != nil {
		return "", err
	}
	r.Stage = "authorization"
	if err := p.authorized(ctx, r); err != nil {
		return "", err
	}
	if ofPast {
		return "", nil // what is served there is of the past
	}
	if err := p.find(ctx, r); err != nil {
		return "", err
	}
	pending := r.Decision.Pending != nil
	switch {
	case r.ofCollection():
		if pending {
			unknown = unknownSelection
		}
		return unknown, nil
	case r.Kind == nil || !r.Write:
		if pending {
			return "", status.Forbidden(&r.Access, r.Decision)
		}
		return "", nil // other writes decide more, by the state that they change
	case r.Body == nil:
		if pending {
			unknown = unknownBody
		}
		return unknown, nil
	}
	r.trace = explain.NewComplete()
	for _, s := range []stage{
		{"decode", writes, func(p *Pipeline, ctx context.Context, r *Request) error {
			if err := r.Start(); err != nil {
				return err
			}
			r.lookup = p.lookups.Reader(r.Tip.Objects, &r.Key)
			return r.Draft.Decode(ctx) // without a turn: others do not wait for it
		}},
		{"mutation", writes, (*Pipeline).mutation},
		{"schema", writes, (*Pipeline).schema},
		{"conditions", writes, (*Pipeline).conditions},
		{"validation", writes, (*Pipeline).validation},
	} {
		r.Stage = s.name
		if err := s.run(p, ctx, r); err != nil {
			return "", err
		}
	}
	return "", nil
}
