package core

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/wording"
)

// replay is what a replayed request has besides a live one.
type replay struct {
	// unread says that rules cannot read stored objects, optionless that the options of the delete are not known.
	unread, optionless bool
	// unanswered says what a rule asked for and is not known; empty if nothing.
	unanswered string
	// applied are the steps of rules of mutate that changed something.
	applied []admission.Applied
}

// errUnanswered ends a replayed request because a rule asked for what is not known.
var errUnanswered = errors.New("core: a rule asks for what is not known of a past request")

// Decide implements [decide.Engine]: it runs the stages that decide, and neither commits nor answers.
func (p *Pipeline) Decide(ctx context.Context, q *decide.Question, under *policy.Policy) decide.Verdict {
	r := requestOf(ctx, q, under)
	unknown, err := p.decideAs(ctx, r, q)
	switch asked := r.replay.unanswered; {
	case asked == decide.Optionless, asked == decide.Outside, asked != "" && (err == nil || errors.Is(err, errUnanswered)):
		return decide.Verdict{Unknown: asked}
	case unknown != "":
		return decide.Verdict{Unknown: unknown, Reviewers: r.reviewed}
	}
	if failed := new(stateError); errors.As(err, &failed) {
		return decide.Verdict{Err: failed.error}
	}
	v := decide.Verdict{}
	switch {
	case err == nil:
		v.Rule, v.Source = r.Decision.Rule, r.Decision.Source
		if q.Recorded != nil && r.Object != nil {
			v.Written = r.written()
		}
	case r.undecidedOutside():
		v.Unknown = decide.Outside
	default:
		v = verdictOf(r, r.Stage, err)
	}
	v.Reviewers, v.Mutated = r.reviewed, len(r.replay.applied) > 0
	return v
}

// requestOf returns the request of a question.
func requestOf(ctx context.Context, q *decide.Question, under *policy.Policy) *Request {
	tip, info := *q.Tip, *q.Info
	tip.Policy = under
	h := q.HTTP.WithContext(ctx)
	h.Body = http.NoBody
	r := newRequest()
	r.Call = call.Call{
		HTTP: h, W: call.NewDiscard(), AuditID: q.AuditID, Received: q.Received, Mode: call.Replayed, Info: &info, Write: q.Write,
		Requester: q.Requester, Tip: &tip, Confirmed: true,
	}
	r.replay = &replay{}
	if q.Body != nil {
		body := *q.Body
		r.Body = &body
	}
	if w := q.Recorded; w != nil {
		r.Result, r.Removed, r.replay.optionless = w.Result, w.Removed, w.NoOptions
		if w.Body != nil {
			h.Body, h.ContentLength = io.NopCloser(bytes.NewReader(w.Body)), int64(len(w.Body))
		}
		r.Fix(w.UID, w.Name)
		if w.Part {
			r.Mode, r.item = r.Mode.Part(), w.Name
		}
	}
	return r
}

// undecidedOutside reports whether an authorizer outside of the policy could allow a request that was refused.
func (r *Request) undecidedOutside() bool {
	switch r.Stage {
	case "impersonation":
	case "authorization", "conditions":
		if r.denied == nil || r.denied.Denied {
			return false
		}
	default:
		return false
	}
	return len(r.Tip.Policy.Form().Outside()) > 0
}

// written returns the write that the policy allows.
func (r *Request) written() *decide.Written {
	object, _, err := r.Objects()
	if err != nil {
		return nil
	}
	return &decide.Written{Version: r.Kind, Operation: r.operation(), Object: object, Applied: r.replay.applied}
}

// decideAs runs the stages that decide. The error is a refusal; unknown says why there is no decision.
func (p *Pipeline) decideAs(ctx context.Context, r *Request, q *decide.Question) (unknown string, err error) {
	r.Stage = "impersonation"
	if err := p.impersonation(ctx, r); err != nil {
		return "", err
	}
	r.Stage = "authorization"
	if err := p.authorized(ctx, r); err != nil {
		return "", err
	}
	if q.OfPast {
		return "", nil // what is served there is of the past
	}
	if err := p.find(ctx, r); err != nil {
		return "", err
	}
	pending := r.Decision.Pending != nil
	switch {
	case r.ofCollection():
		return p.decideCollection(ctx, r, q)
	case r.Kind == nil || !r.Write || r.row != nil && q.Recorded != nil:
		if pending {
			r.denied = r.Decision
			return "", status.Forbidden(&r.Access, r.Decision)
		}
		return "", nil // other writes decide more, by the state that they change
	case q.Recorded != nil:
		if unknown, err := r.meet(ctx, q.Recorded); unknown != "" || err != nil {
			return unknown, err
		}
	case r.Body == nil:
		if pending {
			unknown = decide.Bodyless
		}
		return unknown, nil
	}
	return "", p.decideWrite(ctx, r)
}

// stateError is the error of a state that cannot be read.
type stateError struct{ error }

// meet sets the objects that a recorded request met.
func (r *Request) meet(ctx context.Context, w *decide.Recorded) (unknown string, err error) {
	if w.Missing != "" {
		return w.Missing, nil
	}
	state, err := w.Objects(ctx, r.Kind)
	if err != nil {
		return "", &stateError{err}
	}
	r.Tip.Objects, r.replay.unread = state.State, state.Unread
	return state.Missing, nil
}

// decideWrite runs the stages of a write that come before its commit.
func (p *Pipeline) decideWrite(ctx context.Context, r *Request) error {
	for i := index("decode"); path[i].name != "commit"; i++ {
		r.Stage = path[i].name
		noting, outside := decide.Noting(ctx)
		err := path[i].run(p, noting, r)
		if outside() && (r.Stage == "mutation" || r.Stage == "validation") { // an expression asks an authorizer
			r.replay.unanswered = decide.Outside
			return errUnanswered
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// decideCollection decides the delete of a collection as [Pipeline.deleteCollection] does, object by object. The first object
// whose delete is refused decides.
func (p *Pipeline) decideCollection(ctx context.Context, r *Request, q *decide.Question) (unknown string, err error) {
	if r.Decision.Pending != nil {
		list := r.Access
		list.Verb = "list"
		if !r.Tip.Policy.Authorize(ctx, &list).Allowed {
			r.denied = r.Decision
			return "", status.Forbidden(&r.Access, r.Decision)
		}
	}
	if q.Recorded != nil {
		if unknown, err := r.meet(ctx, q.Recorded); unknown != "" || err != nil {
			return unknown, err
		}
	}
	r.Stage = "answer"
	o, selection, err := p.reader.ListOptions(&r.Call)
	if err != nil {
		return "", err
	}
	if r.Body == nil {
		r.replay.optionless = r.replay.optionless || q.Recorded == nil
		if err := r.ReadBody(); err != nil {
			return "", err
		}
	}
	n := int64(0)
	for x := range r.Tip.Objects.List(r.Resource(), &selection, "", "") {
		if n++; o.Limit > 0 && n > o.Limit {
			break
		}
		if err := p.decidePart(ctx, r, x.Name); err != nil {
			return "", err
		}
	}
	return "", nil
}

// decidePart decides the delete of one object of a collection.
func (p *Pipeline) decidePart(ctx context.Context, r *Request, name string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	one := p.partOf(r, name)
	one.replay, one.Stage = r.replay, "authorization"
	err := p.authorized(ctx, one)
	if err == nil {
		err = p.find(ctx, one)
	}
	if err == nil {
		err = p.decideWrite(ctx, one)
	}
	r.reviewed = append(r.reviewed, one.reviewed...)
	if err == nil || apierrors.IsNotFound(err) && one.Stage == "decode" {
		return nil
	}
	r.Stage, r.Decision, r.denied, r.faults = one.Stage, one.Decision, one.denied, one.faults
	return err
}

// decidesPolicy has the stages in which the policy decides.
var decidesPolicy = map[string]bool{"impersonation": true, "authorization": true, "decode": true, "mutation": true, "schema": true, "conditions": true, "validation": true}

// verdictOf returns how the policy decided a request that ended with err. Errors that are not of the policy, such as
// conflicts, mean that the policy allows it, as far as it was asked.
func verdictOf(r *Request, stage string, err error) decide.Verdict {
	if err == nil || !decidesPolicy[stage] {
		return decide.Verdict{}
	}
	st, internal := status.From(err)
	switch {
	case internal || st.Code >= 500 || st.Code == http.StatusTooManyRequests || errors.Is(err, context.Canceled):
		return decide.Verdict{Unknown: decide.Failed}
	case stage == "decode" && (st.Code == http.StatusNotFound || st.Code == http.StatusConflict):
		return decide.Verdict{Unmet: true}
	case r.Past.Moment != nil && st.Code != http.StatusForbidden:
		return decide.Verdict{}
	}
	return refusalOf(r, stage, st)
}

// refusalOf returns the verdict for a refusal by the policy: the rule, its line and the reason.
func refusalOf(r *Request, stage string, st *metav1.Status) decide.Verdict {
	v := decide.Verdict{Stage: stage, Message: st.Message}
	var cause metav1.StatusCause
	if st.Details != nil && len(st.Details.Causes) > 0 {
		cause = st.Details.Causes[0]
	}
	switch stage {
	case "authorization", "conditions":
		if d := r.denied; d != nil && st.Code == http.StatusForbidden {
			v.Rule, v.Source, v.Access = d.Rule, d.Source, d
		}
	case "schema":
		if v.Path = cause.Field; cause.Message != "" {
			v.Message = cause.Message
		}
		v.Faults = r.faults
		if len(v.Faults) > 0 {
			v.Rule, v.Source = r.kindRule(program.Place(v.Faults[0]))
		}
	case "mutation", "validation":
		cause = status.RuleOf(st)
		if v.Rule, v.Source = string(cause.Type), cause.Field; cause.Message != "" {
			v.Message = cause.Message
		}
	}
	return v
}

// kindRule returns the CEL rule of the kind at a place, and its line; empty if there is none.
func (r *Request) kindRule(place string) (rule, source string) {
	v := r.Kind.Kind.Stored().Storage()
	for i := range v.Rules {
		if x := &v.Rules[i]; place != "" && wording.At(x.Source.String()) == place {
			return policy.RuleID(v.Kind.Kind, x), x.Source.String()
		}
	}
	return "", ""
}
