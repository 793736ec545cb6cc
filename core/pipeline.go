package core

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"stele.dev/stele/core/access"
	"stele.dev/stele/core/definitions"
	"stele.dev/stele/core/tokenrequest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/version"
	"stele.dev/stele/core/activation"
	"stele.dev/stele/core/authn"
	"stele.dev/stele/core/blame"
	"stele.dev/stele/core/bodies"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/changes"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/explain"
	"stele.dev/stele/core/parts"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/rbac"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/rendered"
	"stele.dev/stele/core/reviews"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/surface"
	"stele.dev/stele/core/tokens"
	"stele.dev/stele/core/turns"
	"stele.dev/stele/core/virtual"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/schemas/workers"
)

// path is the life of a request. Nothing else decides the order.
var path = [...]stage{
	{"connection", always, (*Pipeline).connection},         // what is asked for, within which limits
	{"authentication", always, (*Pipeline).authentication}, // who is asking
	{"impersonation", always, (*Pipeline).impersonation},   // in whose name, as of which revision
	{"authorization", always, (*Pipeline).authorization},   // may they, under the policy in force
	{"decode", writes, (*Pipeline).decode},                 // the object that is meant: decoded, pruned, defaulted
	{"schema", writes, (*Pipeline).schema},                 // is it what its kind allows
	{"conditions", writes, (*Pipeline).conditions},         // does it meet the conditions under which they may
	{"validation", writes, (*Pipeline).validation},         // is it what the policy's rules allow
	{"commit", writes, (*Pipeline).commit},                 // the only stage that changes the world
	{"answer", reads, (*Pipeline).answer},                  // get, list, watch, what is not about objects, and what is about many
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

// maxRounds bounds how often a request is sent back. Each time, another write got in
// between.
const maxRounds = 32

// run takes the request along the path. What bends it stands here: reads skip the
// stages of writes and the other way round; a write that lost against another goes
// back, to impersonation if the policy has changed, else to decode, and from then on
// takes its turn with others that lost at the same object; and what is refused is refused
// on a confirmed tip.
func (p *Pipeline) run(r *Request) error { return p.runFrom(r, "connection") }

// runFrom takes a request along that has come as far as a stage.
func (p *Pipeline) runFrom(r *Request, stage string) error {
	rounds := 0
	defer r.endTurn()
	for i := index(stage); i < len(path); {
		s := &path[i]
		if s.when == writes && !r.Write || s.when == reads && r.Write {
			i++
			continue
		}
		r.Stage = s.name
		start := time.Now()
		ctx := r.HTTP.Context() // the connection stage bounds it
		err := ctx.Err()
		if err == nil {
			err = s.run(p, ctx, r)
		}
		p.metrics.stage(s.name, time.Since(start))
		var back *call.Again
		switch {
		case err == nil:
			if r.note(nil); r.ends() {
				return nil
			}
			i++
			continue
		case errors.As(err, &back):
			if rounds++; rounds > maxRounds {
				return r.Contended()
			}
			if r.turn == nil && r.Stage == "commit" && r.write == nil {
				if r.turn, err = p.turns.Take(ctx, r.Key); err != nil {
					return err
				}
				back = p.sendBackNow(r, back)
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

// confirmRefusal returns a newer tip on which a refused request is to be decided
// again, or nil if the one that it was refused on will do.
func (p *Pipeline) confirmRefusal(ctx context.Context, r *Request) (*commit.Tip, error) {
	if r.Tip == nil || r.Confirmed || r.Stage == "answer" || r.Sent {
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

// Pipeline answers requests. It is safe for concurrent use.
type Pipeline struct {
	committer     *commit.Committer
	authenticator *authn.Authenticator
	logger        *slog.Logger
	table         *virtual.Table
	reader        *read.Reader
	surface       *surface.Service
	refusals      *explain.Journal
	metrics       *metrics
	bodies        *bodies.Budget
	turns         turns.ByObject
	largeWrites   turns.Turns
	largeReviews  turns.Turns
	// resume is runFrom, for stages that run requests of their own: Go would call a direct reference a cycle.
	resume func(r *Request, from string) error
}

// The types of [Options] that packages below define.
type (
	Check       = surface.Check
	Compile     = activation.Compile
	Enforceable = activation.Enforceable
)

// Options for [New].
type Options struct {
	Committer *commit.Committer
	Log       eventlog.Reader
	// History answers for the past.
	History       *history.Store
	Authenticator *authn.Authenticator
	// Tokens issues those of service accounts; nil if nobody does.
	Tokens  *tokens.ServiceAccounts
	Logger  *slog.Logger
	Version version.Info
	// Compile is for policies that clients push; nil if that is not served.
	Compile Compile
	// Parts keeps what is uploaded of large policies; nil if nothing may be.
	Parts *parts.Store
	// Enforceable tells why such a policy cannot be enforced here; nil if all can.
	Enforceable Enforceable
	// Metrics is where the pipeline's own are registered and served from, with those of others; nil
	// for a registry of its own.
	Metrics *prometheus.Registry
	// Evaluators are those of the policies in force, to be measured; nil if nothing is.
	Evaluators *workers.Pool
	// Memory is how many bytes this process may take, by which bodies of requests are bounded; 0 if
	// there is no limit.
	Memory int64
	// Checks are what /readyz and /livez ask, beside the pipeline's own.
	Checks []Check
}

// New returns a pipeline.
func New(o Options) *Pipeline {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Pipeline{
		committer: o.Committer, authenticator: o.Authenticator, logger: o.Logger,
		refusals: explain.NewJournal(explain.Remembered), metrics: newMetrics(o.Metrics, o.Committer, o.History, o.Evaluators, o.Authenticator),
		bodies: bodies.New(o.Memory, call.MaxBody), largeWrites: turns.New(), largeReviews: turns.New(),
	}
	p.resume = p.runFrom
	p.surface = surface.New(surface.Options{
		Committer: o.Committer, Tokens: o.Tokens, Version: o.Version, Metrics: p.metrics.handler, Checks: o.Checks, Logger: o.Logger,
	})
	p.reader = read.New(read.Options{
		Committer: o.Committer, History: o.History, Surface: p.surface, Version: o.Version.GitVersion, Watching: p.metrics.watching, Logger: o.Logger,
		Past: past.New(past.Options{Committer: o.Committer, Log: o.Log, History: o.History, Logger: o.Logger}),
	})
	p.table = p.newTable(o)
	p.surface.Table = p.table
	return p
}

// newTable returns the virtual resources. A new one is a row here.
func (p *Pipeline) newTable(o Options) *virtual.Table {
	rows := []*virtual.Resource{
		activation.New(activation.Options{Reader: p.reader, Log: o.Log, Compile: o.Compile, Parts: o.Parts, Enforceable: o.Enforceable}),
		explain.New(p.reader, p, p.refusals),
		changes.New(p.reader),
		blame.New(p.reader),
	}
	rows = append(rows, access.New(p.reader)...)
	rows = append(rows, reviews.New(reviews.Options{Reader: p.reader, Authenticator: o.Authenticator, Tokens: o.Tokens, Turns: p.largeReviews})...)
	for _, kind := range append(slices.Clone(rbac.Kinds), definitions.Kind) {
		rows = append(rows, rendered.New(p.reader, kind))
	}
	if o.Tokens != nil {
		rows = append(rows, tokenrequest.New(p.reader, o.Tokens, o.Logger))
	}
	return virtual.NewTable(rows...)
}

// NotReady makes /readyz fail. Requests go on as before.
func (p *Pipeline) NotReady() { p.surface.NotReady() }

// Drain ends all watches, each with a bookmark if its client takes any. Other requests go on as before.
func (p *Pipeline) Drain() { p.reader.Drain() }

// newRequest returns a request of a call.
func newRequest(c call.Call) *Request {
	r := &Request{Call: c}
	r.Draft.Call = &r.Call
	return r
}

// ServeHTTP implements http.Handler.
func (p *Pipeline) ServeHTTP(w http.ResponseWriter, h *http.Request) {
	r := newRequest(call.Call{HTTP: h, W: &call.Response{ResponseWriter: w}, Received: time.Now()})
	said := h.Header.Get("Audit-ID")
	if said == "" {
		said = uuid.NewString()
	}
	r.AuditID = said[:min(len(said), 64)] // what is kept is bounded, as upstream
	header := w.Header()
	header.Set("Audit-Id", said)
	header.Set("Cache-Control", "no-cache, private")
	defer p.metrics.request(&r.Call, p.table)
	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler {
				panic(v)
			}
			p.fail(r, p.panicked(r, v))
		}
	}()
	defer func() {
		if r.Cancel != nil {
			r.Cancel()
		}
	}()
	if err := p.run(r); err != nil {
		p.fail(r, err)
		p.remember(r, err)
	}
}

// panicked is the answer to a request that panicked, to be asked for where that is recovered.
func (p *Pipeline) panicked(r *Request, v any) error {
	p.logger.Error("a request panicked", "auditID", r.AuditID, "stage", r.Stage, "method", r.HTTP.Method, "path", r.HTTP.URL.Path, "panic", v, "stack", string(debug.Stack()))
	return status.PanicStatus()
}
