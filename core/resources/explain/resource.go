package explain

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/load/cost"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/record/decisions"
	"stele.dev/stele/core/resources/changes"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
)

// explainer is the user agent of explained requests.
const explainer = "stele-explain"

// Runner runs explained requests through the pipeline.
type Runner interface {
	// Explain runs a request as a dry run, as the user of asker, and returns its result. If authorizeOnly is not nil, only
	// authentication, impersonation and authorization run, for the request that it describes.
	Explain(ctx context.Context, asker *call.Call, q *http.Request, authorizeOnly *request.RequestInfo, t *Trace) Status
}

type service struct {
	*read.Reader
	runner    Runner
	decisions *decisions.Recorder
}

// New returns the virtual resource of explanations. The recorder has the requests that left no event in the log; it may be
// nil.
func New(rd *read.Reader, runner Runner, recorder *decisions.Recorder) *catalog.Resource {
	v := &service{rd, runner, recorder}
	return &catalog.Resource{Resource: Resource(), Object: func() any { return Explanation{} }, Past: catalog.AsToday, Cost: estimate, Serve: v.serve}
}

// estimate returns the time of a call: a create runs the request without its effects, and a get searches the log.
func estimate(c *call.Call) time.Duration {
	if c.Info.Verb == "get" {
		return 25 * time.Millisecond // 20,000 writes take longer, and no request has more seats
	}
	return 500*time.Microsecond + cost.Body(c)
}

// serve explains a request that the client describes (create), or a past request (get).
func (v *service) serve(ctx context.Context, c *call.Call) error {
	f, err := negotiate.Untyped(c.HTTP)
	if err != nil {
		return err
	}
	if c.Info.Verb == "get" {
		e, err := v.find(ctx, c)
		if err != nil {
			return err
		}
		return c.WriteJSON(f, http.StatusOK, e)
	}
	if c.Mode.Is(call.Explained) {
		return status.BadRequest("explanations cannot be explained")
	}
	if c.Body == nil {
		mediaType, err := negotiate.Body(c.HTTP, negotiate.JSON)
		if err != nil {
			return err
		}
		c.Body = &call.Body{MediaType: mediaType}
		if c.Body.Raw, err = call.ReadLimited(c.HTTP); err != nil {
			return err
		}
	}
	if err := v.See(ctx, c, ""); err != nil {
		return err
	}
	e := new(Explanation)
	strict, err := kjson.UnmarshalStrict(c.Body.Raw, e)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return status.BadRequestf("%s in version %q cannot be handled as a %s: %v", Kind, Version, Kind, err)
	}
	if e.Kind != Kind || e.APIVersion != Group+"/"+Version {
		return status.BadRequestf("the object provided is unrecognized (must be of type %s): it is %s, %s", Kind, e.APIVersion, e.Kind)
	}
	if err := v.explain(ctx, c, e); err != nil {
		return err
	}
	return c.WriteJSON(f, http.StatusCreated, e)
}

// explain runs the request of e through the pipeline as a dry run, and records the verdict of each stage. It uses the
// same code as real requests, so the explanation cannot differ from them.
func (v *service) explain(ctx context.Context, asker *call.Call, e *Explanation) error {
	t := &Trace{}
	ctx = policy.Explain(ctx)
	q, err := newRequest(ctx, &e.Spec, t)
	if err != nil {
		return err
	}
	var only *request.RequestInfo
	if s := &e.Spec; q.URL.Path == "" { // a verb that only rules can name
		t.until = "authorization"
		only = &request.RequestInfo{IsResourceRequest: s.Resource != "", Path: s.Path, Verb: s.Verb, APIGroup: s.Group, APIVersion: s.Version,
			Resource: s.Resource, Subresource: s.Subresource, Namespace: s.Namespace, Name: s.Name}
	}
	e.Status = v.runner.Explain(ctx, asker, q, only, t)
	e.Status.Stages = t.Stages
	return v.withoutSecrets(ctx, asker, e)
}

// withoutSecrets leaves out what changes of mutations say of an object with secrets which the asker may not get. The answer of such a write
// has no object either.
func (v *service) withoutSecrets(ctx context.Context, asker *call.Call, e *Explanation) error {
	s := &e.Spec
	kind := asker.Tip.Policy.Kind(schema.GroupResource{Group: s.Group, Resource: s.Resource})
	if kind == nil || kind.Of != nil || !kind.Storage().Program.Sensitive() {
		return nil
	}
	object := &logpb.Object{Group: s.Group, Version: s.Version, Resource: s.Resource, Namespace: s.Namespace, Name: s.Name}
	reads, err := v.Disclosure(asker, "get").Now(ctx, object)
	if err != nil || reads {
		return err
	}
	for i := range e.Status.Stages {
		for j := range e.Status.Stages[i].Considered {
			if x := &e.Status.Stages[i].Considered[j]; policy.Changes(x.Verdict) {
				x.Verdict = policy.VerdictChanges + "the object"
			}
		}
	}
	return nil
}

// maxExamined is the number of changes that are searched for an audit ID: the newest ones.
const maxExamined = 20_000

// recorded is what is left of a request: a write of the log of record, or an event of the log of decisions.
type recorded struct {
	write   *history.Change
	decided *eventlog.Event
}

func (x recorded) meta() *logpb.Metadata {
	if x.write != nil {
		return x.write.Meta
	}
	return x.decided.Meta
}

// find returns the explanation of a request by its audit ID: from the log if it was a write, else from the log of decisions. Clients
// choose audit IDs, so that several requests may have one. The first of them is explained, and the others are said to be there.
func (v *service) find(ctx context.Context, c *call.Call) (*Explanation, error) {
	if err := v.See(ctx, c, ""); err != nil {
		return nil, err
	}
	if err := v.History.Reach(ctx, c.Tip.Revision()); err != nil {
		return nil, err
	}
	if err := v.decisions.Flush(ctx); err != nil {
		return nil, err
	}
	first, others, cut, err := v.first(ctx, c)
	if err != nil {
		return nil, err
	}
	if first == nil {
		notFound := status.NotFound(c.Resource(), c.Info.Name)
		notFound.ErrStatus.Message = fmt.Sprintf("no write in the log has the audit id %q, and no decision that this replica has recorded; "+
			"reads that were answered are recorded if an audit rule selects them, and each replica records its own", c.Info.Name)
		if cut {
			notFound.ErrStatus.Message += fmt.Sprintf("; only the newest %d writes were searched: list decisions with the field selector request.auditID=%s to search older ones", maxExamined, c.Info.Name)
		}
		return nil, notFound
	}
	if others > 0 {
		c.Warn(changes.AlsoNamed(c.Info.Name, others))
	}
	return v.shown(ctx, c, first)
}

// first returns what is left of the first request that has the audit ID of a call, and how many other requests have it; nil if none has.
// cut is true if there are older writes, which were not searched.
func (v *service) first(ctx context.Context, c *call.Call) (first *recorded, others int, cut bool, err error) {
	decided, err := v.decisions.Find(ctx, c.Info.Name)
	if err != nil {
		return nil, 0, false, err
	}
	var found changes.Named[recorded]
	looked := 0
	for h, err := range v.Replays.InTurns(ctx, v.History.Before(ctx, history.Filter{}, c.Tip.Revision())) {
		if err != nil {
			return nil, 0, false, err
		}
		if looked++; looked > maxExamined {
			cut = true
			break
		}
		if h.Meta.GetRequest().GetAuditId() == c.Info.Name {
			found.Add(h.Meta, recorded{write: h})
		}
	}
	for _, e := range decided {
		found.Add(e.Meta, recorded{decided: e})
	}
	first, others = found.First()
	return first, others, cut, nil
}

// shown explains a request, without what the user may not see of its object.
func (v *service) shown(ctx context.Context, c *call.Call, x *recorded) (*Explanation, error) {
	d, meta := v.Disclosure(c, "get"), x.meta()
	var reads bool
	var err error
	if x.write != nil {
		reads, err = d.Change(ctx, x.write)
	} else {
		reads, err = d.Decision(ctx, meta)
	}
	if err != nil {
		return nil, err
	}
	if !reads {
		meta = read.Disclosed(meta)
	}
	if x.write == nil {
		return Decided(meta), nil
	}
	write := *x.write
	write.Meta = meta
	e := Written(changes.From(&write))
	e.Status.Audit = AuditOf(meta.GetDecisions().GetAudit())
	return e, nil
}
