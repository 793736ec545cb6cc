package core

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/resources/explain"
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
	s, _, _ := p.try(ctx, asker, q, call.NewDiscard(), authorizeOnly, t)
	return s
}

// Try runs a request as a dry run on the tip of as, as its user, and writes the answer to w. If authorizeOnly is not nil, only
// the stages up to authorization run, for the request that it describes, and there is no answer. It returns what
// [Pipeline.Explain] returns, and the warnings of the answer also if it is an error.
func (p *Pipeline) Try(ctx context.Context, as *call.Call, q *http.Request, w http.ResponseWriter, authorizeOnly *request.RequestInfo, t *explain.Trace) (explain.Status, []string) {
	s, r, err := p.try(ctx, as, q, &call.Response{ResponseWriter: w}, authorizeOnly, t)
	if err != nil {
		p.fail(r, err)
	}
	return s, r.Warnings()
}

func (p *Pipeline) try(ctx context.Context, asker *call.Call, q *http.Request, w *call.Response, authorizeOnly *request.RequestInfo, t *explain.Trace) (explain.Status, *Request, error) {
	r := newRequest()
	r.Call = call.Call{HTTP: q, W: w, AuditID: asker.AuditID, Received: asker.Received, Mode: call.Explained, Requester: asker.User, Tip: asker.Tip, Confirmed: asker.Confirmed}
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
	return s, r, err
}

// Virtual returns the resources that are answered and not stored.
func (p *Pipeline) Virtual() (list []discovery.Resource) {
	for _, row := range p.table.Rows() {
		list = append(list, row.Resource)
	}
	return list
}

// onlyAuthorize runs the stages up to authorization, for a verb that rules can name but no request has.
func (p *Pipeline) onlyAuthorize(ctx context.Context, r *Request) error {
	for _, s := range []stage{{"authentication", always, (*Pipeline).authentication}, {"impersonation", always, (*Pipeline).impersonation}, {"flow", always, (*Pipeline).flow}, {"authorization", always, (*Pipeline).authorized}} {
		r.Stage = s.name
		err := s.run(p, ctx, r)
		r.note(err)
		if err != nil {
			return err
		}
	}
	return nil
}
