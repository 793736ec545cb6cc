package core

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/version"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/load/cost"
	"stele.dev/stele/core/record/decisions"
	"stele.dev/stele/core/resources/access"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/blame"
	"stele.dev/stele/core/resources/changes"
	"stele.dev/stele/core/resources/decisionsapi"
	"stele.dev/stele/core/resources/rendered"
	"stele.dev/stele/limits/connections"

	"stele.dev/stele/core/load/flow"
	"stele.dev/stele/core/resources/delivery"
	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/core/resources/flowapi"
	"stele.dev/stele/limits/fairqueue"

	"stele.dev/stele/core/write/lookup"
	"stele.dev/stele/limits/memory"

	"stele.dev/stele/core/past"
	"stele.dev/stele/core/resources/plans"
	"stele.dev/stele/projections/quotas"

	"stele.dev/stele/core/read"

	"stele.dev/stele/core/resources/replicas"
	"stele.dev/stele/core/resources/reviews"
	"stele.dev/stele/core/resources/shadow"
	"stele.dev/stele/core/reviewers/review"
	"stele.dev/stele/core/serve/nonresource"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/tracing"

	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/read/views"
	"stele.dev/stele/core/write/turns"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/policy/audits"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/schemas/workers"
)

// path lists the stages of a request. Nothing else decides their order.
var path = [...]stage{
	{"connection", always, (*Pipeline).connection},         // what the request asks for, and its limits
	{"authentication", always, (*Pipeline).authentication}, // who sent it
	{"impersonation", always, (*Pipeline).impersonation},   // as which user, at which revision
	{"flow", always, (*Pipeline).flow},                     // a seat of its priority level, perhaps after a wait
	{"authorization", always, (*Pipeline).authorization},   // may the user do it, under the policy in force
	{"decode", writes, (*Pipeline).decode},                 // the object: decoded, patched, pruned, defaulted
	{"mutation", writes, (*Pipeline).mutation},             // the object as mutating admission changes it
	{"schema", writes, (*Pipeline).schema},                 // is it valid for its kind
	{"conditions", writes, (*Pipeline).conditions},         // does it meet the conditions of the grant
	{"validation", writes, (*Pipeline).validation},         // do the policy's admission rules allow it
	{"commit", writes, (*Pipeline).commit},                 // the only stage that changes state
	{"answer", reads, (*Pipeline).answer},                  // reads, virtual resources, other paths, and deletes of collections
}

type stage struct {
	name string
	when span
	run  func(*Pipeline, context.Context, *Request) error
}

// span says which requests a stage is for.
type span uint8

const (
	always span = iota
	writes
	reads
)

// maxRounds bounds how often a request is sent back because of conflicts.
const maxRounds = 32

// runFrom takes a request through its stages, from the named one on. Reads skip the stages of writes, and writes
// those of reads. A write that meets a conflict goes back, to impersonation if the policy has changed, else to
// decode; from then on it takes turns with other writes that met the same conflict. A refusal is final only on
// a confirmed tip.
func (p *Pipeline) runFrom(r *Request, stage string) error {
	defer r.turn.End()
	r.Timings.Stages = p.stages
	for i, rounds := index(stage), 0; i < len(path); {
		s := &path[i]
		if s.when == writes && !r.Write || s.when == reads && r.Write {
			i++
			continue
		}
		r.Stage = s.name
		start := time.Now()
		ctx := r.HTTP.Context() // the stage connection sets its deadline
		err := ctx.Err()
		if err == nil {
			err = p.runStage(ctx, r, s)
		}
		took := time.Since(start)
		p.metrics.stage(r, i, took, err)
		r.Timings.Add(i, took)
		if err == nil {
			if r.note(nil); r.ends() {
				return nil
			}
			if s.name == "authentication" {
				p.startSpan(r)
			}
			i++
			continue
		}
		var back *call.Again
		switch {
		case errors.As(err, &back):
			if rounds++; rounds > maxRounds {
				return status.Modified(r.Resource(), r.Key.Name)
			}
			if r.Stage == "commit" && r.write == nil {
				if err = p.turns.Contend(ctx, &r.turn, r.Key, r.lost); err != nil {
					return err
				}
				if tip := p.committer.Tip(); tip.Revision() > back.Tip.Revision() {
					back = r.SendBack(tip)
				}
			}
			r.Tip = back.Tip
		default:
			err = r.discreet(ctx, err)
			tip, confirmErr := p.confirmRefusal(ctx, r)
			if confirmErr != nil {
				err = confirmErr
			}
			if tip == nil {
				r.note(err)
				return err
			}
			back = &call.Again{Stage: "impersonation", Tip: tip}
			r.Tip = tip
		}
		i = index(back.Stage)
	}
	return nil
}

// confirmRefusal returns a newer tip on which a refused request is decided again, or nil if the refusal is final.
func (p *Pipeline) confirmRefusal(ctx context.Context, r *Request) (*commit.Tip, error) {
	if r.Tip == nil || r.Stage == "flow" || r.Confirmed || r.Stage == "answer" || r.Sent {
		return nil, nil
	}
	tip, err := p.committer.Confirm(ctx)
	if err != nil {
		return nil, err
	}
	r.Confirmed = true
	if tip.Revision() == r.Tip.Revision() {
		return nil, nil
	}
	return tip, nil
}

func index(name string) int {
	for i := range path {
		if path[i].name == name {
			return i
		}
	}
	panic("core: no stage " + name)
}

// Pipeline is the handler of the API. It is safe for concurrent use.
type Pipeline struct {
	committer     *commit.Committer
	authenticator *authn.Authenticator
	logger        *slog.Logger
	table         *catalog.Table
	reader        *read.Reader
	surface       *nonresource.Service
	decisions     *decisions.Recorder // nil if nothing is recorded
	shadows       *shadow.Shadows
	views         *views.Service
	metrics       *metrics
	quotas        *quotas.Metrics
	flows         *flow.Control
	tracer        *tracing.Tracer // nil if nothing is traced
	slow          *rate.Limiter   // of messages about slow requests
	memory        *memory.Guard
	reviewers     review.Find // nil if no reviewer outside of the policy can be asked
	costs         *cost.Estimator
	audits        audits.Tables
	stages        []string // the names of the stages, in their order
	turns         turns.Writes
	lookups       *lookup.Cache
	replayed      *lookup.Cache // of replayed requests, which must not displace what others need
	largeWrites   turns.Turns
	largeReviews  turns.Turns
	// resume is runFrom, for stages that run requests of their own. Go rejects a direct call as an initialization
	// cycle.
	resume func(r *Request, from string) error
}

// The types of [Options] that other packages define.
type (
	Check       = nonresource.Check
	Route       = nonresource.Route
	Compile     = activation.Compile
	Enforceable = activation.Enforceable
)

// Options for [New].
type Options struct {
	Committer *commit.Committer
	Log       eventlog.Reader
	// History answers reads of past revisions.
	History       *history.Store
	Authenticator *authn.Authenticator
	// Tokens issues tokens of service accounts; nil to issue none.
	Tokens *tokens.ServiceAccounts
	Logger *slog.Logger
	// LogLevel is the lowest level that Logger logs, which clients may change; nil if they cannot.
	LogLevel *slog.LevelVar
	Version  version.Info
	// Compile compiles policies that clients push; nil to refuse such policies.
	Compile Compile
	// Parts stores the uploaded parts of large policies; nil to refuse uploads.
	Parts *activation.Uploads
	// Enforceable returns why a pushed policy cannot be enforced here; nil if every policy can.
	Enforceable Enforceable
	// Metrics is the registry of all metrics that /metrics serves; nil for a new one.
	Metrics *prometheus.Registry
	// Tracer traces requests; nil to trace nothing.
	Tracer *tracing.Tracer
	// Evaluators are the workers that evaluate CUE, for their metrics; nil for no such metrics.
	Evaluators *workers.Pool
	// Seats is how many seats priority levels share; 0 for the default of package flow.
	Seats int
	// Memory is the soft limit of this process's memory in bytes, which bounds requests and watches; 0 for the default of
	// package memory.
	Memory int64
	// Checks are further health checks, for /readyz and /livez.
	Checks []Check
	// Routes are further paths that are no resources.
	Routes []Route
	// Replicas are the replicas of the log; nil if they are not served.
	Replicas *replicas.Registry
	// DecisionLog has the decisions of this replica that left no event in the log.
	DecisionLog decisionsapi.Source
	// Delivery takes the policy from a source; nil if clients push it.
	Delivery *delivery.Follower
	// Reviewers finds the webhooks and plugins that policies name; nil if there are none.
	Reviewers review.Find
	// Decisions records what leaves no event in the log; nil to record nothing.
	Decisions *decisions.Recorder
}

// New returns a pipeline.
func New(o Options) *Pipeline {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	p := &Pipeline{
		committer: o.Committer, authenticator: o.Authenticator, logger: o.Logger,
		decisions: o.Decisions, reviewers: o.Reviewers, tracer: o.Tracer, slow: newSlowLimit(),
		largeWrites: turns.New(), largeReviews: turns.New(), lookups: lookup.NewCache(), replayed: lookup.NewCache(),
	}
	p.resume = p.runFrom
	for i := range path {
		p.stages = append(p.stages, path[i].name)
	}
	p.flows = flow.New(flow.Options{Seats: o.Seats, Cost: p.cost, Metrics: o.Metrics, Logger: o.Logger})
	p.shadows = shadow.New(p.Decide, o.Logger)
	p.memory = memory.New(memory.Options{
		Limit: o.Memory, MaxBody: call.MaxBody, Window: int64(connections.DefaultWindow(o.Memory)), Reclaim: func() { p.reader.Past.DropCached() },
	})
	history := past.New(past.Options{Committer: o.Committer, Log: o.Log, History: o.History, Memory: p.memory, Hasten: hasten(o.Replicas), Logger: o.Logger})
	p.views = views.New(views.Options{Committer: o.Committer, Past: history, Logger: o.Logger})
	p.quotas = quotas.NewMetrics(o.Committer.Quotas)
	p.metrics = newMetrics(o.Metrics, o.Committer, o.History, o.Evaluators, o.Version, o.Authenticator, p.shadows.Collector(), p.memory, p.views.Collector(), p.quotas)
	p.surface = nonresource.New(nonresource.Options{
		Committer: o.Committer, Tokens: o.Tokens, Version: o.Version, Metrics: p.metrics.handler, Checks: o.Checks, LogLevel: o.LogLevel,
		Routes: append(slices.Clip(o.Routes), flowapi.Routes(p.flows)...), Logger: o.Logger,
	})
	p.reader = read.New(read.Options{

		Committer: o.Committer, History: o.History, Surface: p.surface, Version: o.Version.GitVersion, Watching: p.metrics.watching, Memory: p.memory, Logger: o.Logger,
		Past: history, Views: p.views,
	})
	p.table = p.newTable(o)
	p.surface.Table = p.table
	p.costs = cost.New(cost.Options{Objects: o.Committer.Objects(), Views: p.views, Table: p.table, Route: p.surface.Route, Seats: o.Seats})
	return p
}

// newTable returns the table of virtual resources. A new resource is a row here.
func (p *Pipeline) newTable(o Options) *catalog.Table {
	pushes := activation.New(activation.Options{Reader: p.reader, Log: o.Log, Compile: o.Compile, Parts: o.Parts, Enforceable: o.Enforceable})
	rows := []*catalog.Resource{
		pushes.Virtual(),
		plans.New(plans.ServiceOptions{Reader: p.reader, Pushes: pushes, Engine: p.Decide, History: o.History, Decisions: o.DecisionLog, Others: otherReplicas(o.Replicas)}),
		shadow.Resource(p.reader, pushes, p.shadows),
		explain.New(p.reader, p, o.Decisions),
		changes.New(p.reader),
		decisionsapi.New(decisionsapi.Options{Reader: p.reader, Source: o.DecisionLog, Others: otherReplicas(o.Replicas)}),
		blame.New(p.reader),
	}
	rows = append(rows, access.New(p.reader)...)
	rows = append(rows, flowapi.Resources(p.reader, p.flows)...)
	rows = append(rows, reviews.New(reviews.Options{Reader: p.reader, Authenticator: o.Authenticator, Tokens: o.Tokens, Turns: p.largeReviews})...)
	for _, kind := range rendered.Kinds() {
		rows = append(rows, rendered.New(p.reader, kind))
	}
	if o.Tokens != nil {
		rows = append(rows, reviews.NewTokenRequests(p.reader, o.Tokens, o.Logger))
	}
	if o.Replicas != nil {
		rows = append(rows, replicas.Resource(p.reader, o.Replicas))
	}
	if o.Delivery != nil {
		rows = append(rows, delivery.Resource(p.reader, o.Delivery))
	}
	return catalog.NewTable(rows...)
}

// otherReplicas returns a function that names the replicas whose decisions this one does not have.
func otherReplicas(r *replicas.Registry) func() []string {
	return func() (names []string) {
		if r == nil {
			return nil
		}
		for _, x := range r.All() {
			if x.Self {
				continue
			}
			name := x.ID
			if x.Address != "" {
				name += " (" + x.Address + ")"
			}
			names = append(names, name)
		}
		return names
	}
}

// hasten returns a function that makes this replica append an event soon; nil if there can be no other replicas.
func hasten(r *replicas.Registry) func() {
	if r == nil || r.Alone() {
		return nil
	}
	return r.Hasten
}

// cost estimates what a request costs. The estimator knows all resources, so it is made last.
func (p *Pipeline) cost(c *call.Call) fairqueue.Work { return p.costs.Of(c) }

// RunFlow moves seats between priority levels by their demand, until the context ends.
func (p *Pipeline) RunFlow(ctx context.Context) error { return p.flows.Run(ctx) }

// RunViews keeps the rows of views up to date for watches, until the context ends.
func (p *Pipeline) RunViews(ctx context.Context) error { return p.views.Run(ctx) }

// RunMemory gives memory back to the operating system when the server does little, until the context ends.
func (p *Pipeline) RunMemory(ctx context.Context) error { return p.memory.Run(ctx) }

// NotReady makes /readyz fail. Other requests are served as before.
func (p *Pipeline) NotReady() { p.surface.NotReady() }

// Drain ends all watches at once, each with a bookmark if its client accepts bookmarks. Other requests are served as
// before.
func (p *Pipeline) Drain() { p.reader.Drain() }

// DrainSpread is Drain, but the watches end one after the other, within seconds. It returns when all have ended, or when
// the context ends.
func (p *Pipeline) DrainSpread(ctx context.Context) { p.reader.DrainSpread(ctx) }

// newRequest returns a request without anything. It is large, so it is filled where it is: a copy on the stack of each
// handler makes that stack grow.
func newRequest() *Request {
	r := new(Request)
	r.Draft.Call = &r.Call
	return r
}

// newAuditID returns a random UUID, as kube-apiserver does. It must be unique and is no secret, so it is not read from the
// operating system: that is slow, and needs more stack than the rest of a get.
func newAuditID() string {
	var id uuid.UUID
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = id[6]&0x0f | 0x40 // version 4
	id[8] = id[8]&0x3f | 0x80 // the variant of RFC 9562
	return id.String()
}

// ServeHTTP implements http.Handler.
func (p *Pipeline) ServeHTTP(w http.ResponseWriter, h *http.Request) {
	r := newRequest()
	r.HTTP, r.W, r.Received = h, &call.Response{ResponseWriter: w}, time.Now()
	said := h.Header.Get("Audit-ID")
	if said == "" {
		said = newAuditID()
	}
	r.AuditID = said[:min(len(said), 64)] // as upstream
	header := w.Header()
	header.Set("Audit-Id", said)
	header.Set("Cache-Control", "no-cache, private")
	defer p.end(r)
	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler {
				p.metrics.abort(&r.Call, p.table)
				panic(v)
			}
			err := p.panicked(r, v)
			r.W.Drop()
			p.fail(r, err)
			p.recordPanic(r, err)
		}
	}()
	defer func() {
		r.EndFlow()
		if r.Cancel != nil {
			r.Cancel()
		}
		if r.disown != nil {
			r.disown()
		}
	}()
	err := p.runFrom(r, "connection")
	if err != nil {
		p.fail(r, err)
	}
	r.W.Release()
	p.record(r, err)
	if p.shadows.Active() {
		p.offer(r, err)
	}
}

// panicked logs a panic and returns the error for the client. It must run where the panic is recovered, to log its
// stack.
func (p *Pipeline) panicked(r *Request, v any) error {
	p.logger.Error("a request panicked", "auditID", r.AuditID, "stage", r.Stage, "method", r.HTTP.Method, "path", r.HTTP.URL.Path, "panic", v, "stack", string(debug.Stack()))
	return status.PanicStatus()
}
