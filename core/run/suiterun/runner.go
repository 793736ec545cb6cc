// Package suiterun runs tests of bundles. A [Runner] has a control plane in memory, without a listener, plugins or webhooks, with
// one policy in force. Each request of a test takes every stage of the pipeline, as a dry run on a state of its own, so no
// test sees what another one does.
package suiterun

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"stele.dev/stele/core"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/policy/rights"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/workers"
)

// Options are the options of [New].
type Options struct {
	// Worker returns a command that evaluates CUE for objects, see [workers.Work]. If it is nil, this process does.
	Worker func() (*exec.Cmd, error)
	// Dir is the folder for temporary files; "" for that of the system.
	Dir string
}

// Runner runs requests under one policy. Its methods are safe for concurrent use, except Close.
type Runner struct {
	pipeline  *core.Pipeline
	committer *commit.Committer
	objects   *objects.Store
	policy    *policy.Policy
	rights    func() (*rights.Rights, error)
	kinds     []objects.Kind // without Render
	renders   map[schema.GroupResource]func([]byte) []byte
	virtual   []discovery.Resource
	tip       *commit.Tip
	close     []func()
}

// New returns a runner with a compiled bundle in force. The caller closes it.
func New(ctx context.Context, compiled *compile.Result, o Options) (r *Runner, err error) {
	r = &Runner{objects: objects.New(0)}
	defer func() {
		if err != nil {
			r.Close()
			r = nil
		}
	}()
	var options []program.Option
	if o.Worker != nil {
		pool := workers.New(workers.Options{Command: o.Worker})
		r.close = append(r.close, pool.Close)
		options = append(options, program.EvaluateWith(pool))
	}
	form, _ := compiled.Form.Encode()
	if r.policy, err = probes.Load(form, options...); err != nil {
		return r, err
	}
	r.rights = sync.OnceValues(func() (*rights.Rights, error) { return rights.New(compiled.Form.Access()) })
	if err := r.open(ctx, o.Dir); err != nil {
		return r, err
	}
	if _, err := activation.ActivateCompiled(ctx, r.committer, compiled, "test"); err != nil {
		return r, err
	}
	if err := activation.CreateNamespaces(ctx, r.committer); err != nil {
		return r, err
	}
	r.tip = r.committer.Tip()
	r.virtual = r.pipeline.Virtual()
	r.renders = map[schema.GroupResource]func([]byte) []byte{}
	for _, k := range r.policy.Kinds() {
		if k.Of == nil {
			r.kinds = append(r.kinds, commit.KindOf(k))
			r.renders[k.GroupResource()] = render(k)
		}
	}
	return r, nil
}

// render returns the function that renders stored objects of a kind, as an activation does.
func render(k *policy.Kind) func([]byte) []byte {
	stored := versions.Stored(k)
	return func(payload []byte) []byte {
		if rendered, err := stored(payload); err == nil {
			return rendered
		}
		return payload
	}
}

// open opens the log in memory and the pipeline, and starts what moves the tip.
func (r *Runner) open(ctx context.Context, dir string) error {
	backend := new(memlog.Store).Open(nil)
	r.close = append(r.close, func() { backend.Close() })
	log, err := eventlog.Open(ctx, backend, eventlog.Options{})
	if err != nil {
		return err
	}
	r.committer = commit.New(commit.Options{Log: log, Objects: r.objects, Load: func(*policies.Proposal) (*policy.Policy, error) {
		return r.bound(nil), nil
	}})
	if err := r.committer.Replay(ctx); err != nil {
		return err
	}
	folder, err := os.MkdirTemp(dir, "stele-test")
	if err != nil {
		return err
	}
	r.close = append(r.close, func() { os.RemoveAll(folder) })
	past, err := history.Open(history.Options{Dir: folder, Log: log, Start: log.Start()})
	if err != nil {
		return err
	}
	r.close = append(r.close, func() { _ = past.Close() })
	authenticator, err := authn.New(authn.Options{})
	if err != nil {
		return err
	}
	r.close = append(r.close, authenticator.Close)
	r.pipeline = core.New(core.Options{
		Committer: r.committer, Log: log, History: past, Authenticator: authenticator, Version: version.Info{Major: "1"}, Logger: slog.New(slog.DiscardHandler),
	})
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	for _, part := range []func(context.Context) error{r.committer.Run, past.Run} {
		parts.Go(func() { _ = part(running) })
	}
	r.close = append(r.close, func() { stop(); parts.Wait() })
	return nil
}

// Close stops the control plane and deletes its temporary files.
func (r *Runner) Close() {
	for _, f := range slices.Backward(r.close) {
		f()
	}
	r.close = nil
}

// Form returns the form of the policy.
func (r *Runner) Form() *policy.Form { return r.policy.Form() }
