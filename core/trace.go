package core

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/explain"
)

// note adds the verdict of the stage that ran to the explanation, if there is one.
func (r *Request) note(err error) {
	if r.trace != nil {
		r.trace.Note(&r.Call, r.authorized, err)
	}
}

// ends reports whether the explanation ends with this stage.
func (r *Request) ends() bool { return r.trace != nil && r.trace.Ends(r.Stage) }

// Explain implements [explain.Runner]: it runs a request as a dry run, and returns the verdict of each stage.
func (p *Pipeline) Explain(ctx context.Context, asker *call.Call, q *http.Request, authorizeOnly *request.RequestInfo, t *explain.Trace) explain.Status {
	r := newRequest(call.Call{HTTP: q, W: call.NewDiscard(), AuditID: asker.AuditID, Received: asker.Received, Explained: true, Requester: asker.User, Tip: asker.Tip, Confirmed: asker.Confirmed})
	r.trace = t
	var err error
	if authorizeOnly != nil {
		r.Info = authorizeOnly
		err = p.onlyAuthorize(ctx, r)
	} else {
		err = p.runFrom(r, "connection")
	}
	if r.Cancel != nil {
		r.Cancel()
	}
	s := explain.Verdict(&r.Call, err)
	if err == nil {
		if s.Code = r.W.Code; t.Partial() {
			s.Code = 0
		}
	}
	return s
}

// onlyAuthorize runs the stages up to authorization, for a verb that rules can name but no request has.
func (p *Pipeline) onlyAuthorize(ctx context.Context, r *Request) error {
	for _, s := range []stage{{"authentication", always, (*Pipeline).authentication}, {"impersonation", always, (*Pipeline).impersonation}, {"authorization", always, (*Pipeline).authorized}} {
		r.Stage = s.name
		err := s.run(p, ctx, r)
		r.note(err)
		if err != nil {
			return err
		}
	}
	return nil
}

// remember stores why a request was refused, so that the refusal can be explained later.
func (p *Pipeline) remember(r *Request, err error) {
	if r.Info == nil || r.Requester == nil {
		return // the request or its user is not known
	}
	e := explain.OfRefusal(&r.Call, err)
	last := index(r.Stage)
	r.trace = explain.NewRefusal()
	for n := range last + 1 {
		if s := path[n]; s.when == always || (s.when == writes) == r.Write {
			if r.Stage = s.name; n < last {
				r.note(nil)
			} else {
				r.note(err)
			}
		}
	}
	e.Status.Stages = r.trace.Stages
	p.refusals.Add(e)
}
