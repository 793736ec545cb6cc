package core

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/authn"
	"stele.dev/stele/core/bodies"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/explain"
	"stele.dev/stele/core/parts"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/tokens"
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
			if r.said(nil); r.ends() {
				return nil
			}
			i++
			continue
		case errors.As(err, &back):
			if rounds++; rounds > maxRounds {
				return r.Contended()
			}
			if r.turn == nil && r.Stage == "commit" && !r.law {
				if r.turn, err = p.turns.take(ctx, r.Key); err != nil {
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
				r.said(err)
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
	log           eventlog.Reader
	history       *history.Store
	past          *past.Past
	authenticator *authn.Authenticator
	tokens        *tokens.ServiceAccounts // nil: none are issued
	logger        *slog.Logger
	version       version.Info
	checks        []Check
	compile       Compile
	parts         *parts.Store // nil: none are taken
	enforceable   Enforceable
	take          func(r *Request, from string) error // runFrom, for stages that take requests of their own
	refusals      *explain.Journal
	requestInfo   *request.RequestInfoFactory
	metrics       *metrics
	surface       atomic.Pointer[surface]
	surfaceMu     sync.Mutex // held to make another
	surfacesThen  []*surface // of policies that are not in force, what was used last first; guarded by surfaceMu
	turns         turns
	notReady      atomic.Bool
	draining      chan struct{}
	asking        chan struct{} // full while as many streams as may ask a new policy whether they go on
	drained       atomic.Bool
	bodies        *bodies.Budget
	largeWrites   workTurns
	largeReviews  workTurns
	compiling     workTurns // at policies that are pushed
	questions     workTurns // of access
	replays       *read.Replays
}

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

// New makes a pipeline.
func New(o Options) *Pipeline {
	p := &Pipeline{
		committer: o.Committer, log: o.Log, history: o.History, authenticator: o.Authenticator, tokens: o.Tokens, logger: o.Logger, version: o.Version, checks: o.Checks, compile: o.Compile, parts: o.Parts, enforceable: o.Enforceable,
		requestInfo: &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		refusals:    explain.NewJournal(remembered),
		metrics:     newMetrics(o.Metrics, o.Committer, o.History, o.Evaluators, o.Authenticator), draining: make(chan struct{}), asking: make(chan struct{}, asksAtOnce), largeWrites: newWorkTurns(), largeReviews: newWorkTurns(), compiling: make(workTurns, 1), questions: newWorkTurns(), replays: newReplays(), bodies: bodies.New(o.Memory, call.MaxBody),
	}
	p.take = p.runFrom
	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}
	p.past = past.New(past.Options{Committer: o.Committer, Log: o.Log, History: o.History, Logger: p.logger})
	return p
}

// NotReady makes /readyz fail. Requests go on as before.
func (p *Pipeline) NotReady() { p.notReady.Store(true) }

// Drain ends all watches, each with a bookmark if its client takes any. Other requests
// go on as before.
func (p *Pipeline) Drain() {
	if !p.drained.Swap(true) {
		close(p.draining)
	}
}

// ServeHTTP implements http.Handler.
func (p *Pipeline) ServeHTTP(w http.ResponseWriter, h *http.Request) {
	r := &Request{HTTP: h, W: &call.Response{ResponseWriter: w}, Received: time.Now()}
	said := h.Header.Get("Audit-ID")
	if said == "" {
		said = uuid.NewString()
	}
	r.AuditID = said[:min(len(said), 64)] // what is kept is bounded, as upstream
	header := w.Header()
	header.Set("Audit-Id", said)
	header.Set("Cache-Control", "no-cache, private")
	defer p.metrics.request(r)
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
