package core

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/record/decisions"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/write/edit"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy/audits"
)

// prepareRecord prepares the record of a request whose audit rule is known: that of an answer which must wait for it, the
// beginning of a watch, and the body of the answer.
func (p *Pipeline) prepareRecord(r *Request) {
	rule := r.Audit
	if p.decisions == nil || rule == nil || rule.ID == "" || r.Mode.IsPart() || !r.Mode.OfClient() || r.W == nil || r.W.Code != 0 {
		return
	}
	if rule.Level >= logpb.AuditLevel_AUDIT_LEVEL_REQUEST_RESPONSE && rule.Recorded() && r.Info.Verb != "watch" {
		r.Kept.Limit = decisions.MaxBody
	}
	watches := r.Info.Verb == "watch" && rule.RecordsReads()
	if rule.Sync && r.Kept.Limit > 0 {
		r.W.Hold = 2 * r.Kept.Limit // its body is part of the record; compression adds less than as much again
	}
	if rule.Sync || watches {
		r.W.Gate = func(code int) error { return p.recordFirst(r, watches, code) }
	}
}

// recordFirst records a request before the header of its answer is sent: the beginning of a watch, or an answer that must
// wait for its record. An error replaces the answer.
func (p *Pipeline) recordFirst(r *Request, watches bool, code int) error {
	stage := audits.ResponseComplete
	switch {
	case watches && r.failure == nil:
		stage = audits.ResponseStarted
	case watches: // it starts and ends at once
		stage |= audits.ResponseStarted
	}
	made, ok := p.made(r, r.failure)
	if !ok {
		return nil
	}
	made.Stage = uint32(stage)
	e := p.decisions.EventOf(&r.Call, made)
	e.Meta.Request.Status = uint32(code)
	r.recorded = stage&audits.ResponseComplete != 0
	if !r.Audit.Sync {
		p.decisions.Record(e)
		return nil
	}
	if err := p.decisions.RecordSync(r.HTTP.Context(), e); err != nil {
		r.recorded = true
		p.metrics.rejected.Inc()
		return status.Unavailable("the audit rule " + r.Audit.ID + " requires a record of this request before it is answered: " + err.Error() + "; try again")
	}
	return nil
}

// record records a request that has been answered, unless it left an event in the log or is a read that no audit rule
// selects.
func (p *Pipeline) record(r *Request, err error) {
	if p.decisions == nil || r.recorded || err == nil && unselected(r) {
		return
	}
	made, ok := p.made(r, err)
	if !ok {
		return
	}
	made.Stage = uint32(audits.ResponseComplete)
	e := p.decisions.EventOf(&r.Call, made)
	if made.Outcome == logpb.Outcome_OUTCOME_UNAUTHENTICATED {
		p.decisions.Count(e, 1)
		return
	}
	p.decisions.Record(e)
}

// recordPanic records a request that panicked.
func (p *Pipeline) recordPanic(r *Request, err error) {
	if p.decisions == nil || r.recorded {
		return
	}
	s, _ := status.From(err)
	p.decisions.Record(p.decisions.EventOf(&r.Call, &decisions.Made{
		Outcome: logpb.Outcome_OUTCOME_FAILED, Status: s, Audit: r.AuditRecord(), Stage: uint32(audits.Panic),
	}))
}

// unselected reports whether a request that succeeded is a read that is not recorded.
func unselected(r *Request) bool {
	return !r.Write && r.Info != nil && readVerbs[r.Info.Verb] && (r.Audit == nil || !r.Audit.RecordsReads())
}

// readVerbs are the verbs of requests that change nothing. Those of paths are the methods.
var readVerbs = map[string]bool{"get": true, "list": true, "watch": true, "head": true, "options": true}

// made returns what was decided about a request that ended with err. ok is false if nothing is recorded of it here.
func (p *Pipeline) made(r *Request, err error) (made *decisions.Made, ok bool) {
	made = &decisions.Made{Admission: r.findings, Mutations: r.mutations, Reviews: r.reviews, Audit: r.AuditRecord()}
	made.Name = nameOf(r)
	if err == nil {
		made.Outcome = outcomeOf(r)
	} else {
		made.Status, _ = status.From(err)
		made.Outcome = failureOf(r, err, made.Status)
		made.Rule, made.Source = ruleOf(r, err, made.Status)
		if made.Name == "" {
			made.Name = decisions.NamedIn(&r.Call, made.Status)
		}
	}
	switch made.Outcome {
	case logpb.Outcome_OUTCOME_UNSPECIFIED:
		return nil, false
	case logpb.Outcome_OUTCOME_READ:
		if r.Audit == nil || !r.Audit.RecordsReads() {
			return nil, false
		}
	}
	p.addContents(r, made)
	return made, true
}

// outcomeOf returns the outcome of a request that succeeded, or OUTCOME_UNSPECIFIED if it left events in the log.
func outcomeOf(r *Request) logpb.Outcome {
	switch {
	case r.logged || r.Logged:
		return logpb.Outcome_OUTCOME_UNSPECIFIED
	case !r.Write && r.Info != nil && readVerbs[r.Info.Verb]:
		return logpb.Outcome_OUTCOME_READ
	case r.Body != nil && r.Body.Options.DryRun:
		return logpb.Outcome_OUTCOME_DRY_RUN
	case r.Write && r.write == nil, r.ofCollection():
		return logpb.Outcome_OUTCOME_UNCHANGED
	}
	return logpb.Outcome_OUTCOME_DONE
}

// failureOf returns the outcome of a request that ended with an error. That of a read which finds nothing is a read, unless
// a history window refuses it.
func failureOf(r *Request, err error, s *metav1.Status) logpb.Outcome {
	isRead := !r.Write && r.Info != nil && readVerbs[r.Info.Verb]
	switch {
	case errors.As(err, new(*read.BeyondError)):
		return logpb.Outcome_OUTCOME_REFUSED
	case r.Requester == nil && r.Stage == "authentication":
		return logpb.Outcome_OUTCOME_UNAUTHENTICATED
	case isRead && r.Stage == "answer" && (s.Code == http.StatusNotFound || s.Code == http.StatusGone || errors.Is(err, context.Canceled) || errors.Is(err, read.ErrGone)):
		return logpb.Outcome_OUTCOME_READ
	case s.Code == http.StatusConflict:
		return logpb.Outcome_OUTCOME_CONFLICT
	case s.Code >= http.StatusInternalServerError || s.Code == 0:
		return logpb.Outcome_OUTCOME_FAILED
	}
	return logpb.Outcome_OUTCOME_REFUSED
}

// ruleOf returns the rule that refused a request, and its line; empty if it was not a rule of the policy.
func ruleOf(r *Request, err error, s *metav1.Status) (rule, source string) {
	if beyond := new(read.BeyondError); errors.As(err, &beyond) {
		return beyond.Decision.Rule, beyond.Decision.Source
	}
	switch r.Stage {
	case "flow":
		if f := r.Flow.Schema; f != nil {
			if f.Builtin {
				return f.ID, "built in"
			}
			return f.ID, f.Source.String()
		}
	case "authorization", "conditions":
		if d := r.Decision; d != nil && s.Code == http.StatusForbidden {
			return d.Rule, d.Source
		}
	case "decode", "schema":
		return decisions.SchemaRule(&r.Call, s)
	case "mutation", "validation":
		cause := status.RuleOf(s)
		return string(cause.Type), cause.Field
	case "commit":
		if over := new(edit.OverQuotaError); errors.As(err, &over) {
			return over.Exceeded.Quota.ID(), ""
		}
	}
	return "", ""
}

// addContents adds the bodies of the request and of the answer, as far as they are recorded. The body of a write that was
// refused always is, so that it can be decided again under another policy.
func (p *Pipeline) addContents(r *Request, made *decisions.Made) {
	if r.Info == nil || r.Tip == nil || made.Outcome == logpb.Outcome_OUTCOME_UNAUTHENTICATED {
		return
	}
	always := made.Status != nil && !readVerbs[r.Info.Verb]
	if !always && !r.RecordsBody() && r.Kept.Limit == 0 {
		return
	}
	secret := r.SecretFields()
	if always || r.RecordsBody() {
		switch text := call.Fetched(r.HTTP); {
		case r.Body != nil:
			made.Body = &decisions.Content{Text: r.Body.Raw, MediaType: r.Body.MediaType, Secret: secret}
		case text != nil:
			made.Body = &decisions.Content{Text: text, MediaType: r.HTTP.Header.Get("Content-Type"), Secret: secret}
		}
	}
	if k := &r.Kept; k.Limit > 0 && k.Text != nil && made.Status == nil {
		made.Response = &decisions.Content{Text: k.Text, MediaType: k.MediaType, Secret: secret}
	}
}

// nameOf returns the name of an object that a request creates, or its generateName; empty if the path has the name, or if the
// body was not decoded.
func nameOf(r *Request) string {
	if r.Info == nil || r.Info.Name != "" || r.Object == nil {
		return ""
	}
	return cmp.Or(r.Object.Meta.Name, r.Object.Meta.GenerateName)
}
