package core

import (
	"net/http"

	"stele.dev/stele/core/decide"
	"stele.dev/stele/core/resources/shadow"
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
	verdict := decided(r, stage, err)
	// The writes that stages start on their own are not seen: a delete of a collection is one request.
	p.shadows.Offer(&shadow.Seen{Verdict: verdict, Question: decide.Question{
		HTTP:      &http.Request{Method: r.HTTP.Method, URL: r.HTTP.URL, Proto: r.HTTP.Proto, Header: header, Host: r.HTTP.Host, RemoteAddr: r.HTTP.RemoteAddr},
		Requester: r.Requester, User: r.User, Info: &info, Write: info.IsResourceRequest && writeVerbs[info.Verb], OfPast: r.Past.Moment != nil,
		Body: r.Body, Tip: r.Tip, AuditID: r.AuditID, Received: r.Received,
	}})
}

var writeVerbs = map[string]bool{"create": true, "update": true, "patch": true, "delete": true}

// decided returns how the policy in force decided a request that ended with err in a stage.
func decided(r *Request, stage string, err error) decide.Verdict {
	if d := r.Decision; d != nil && d.By() != nil {
		return decide.Verdict{Unknown: decide.Outside}
	}
	if len(r.reviewed) > 0 {
		return decide.Verdict{Unknown: decide.Reviewed}
	}
	return verdictOf(r, stage, err)
}
