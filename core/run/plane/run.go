package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/oklog/run"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/keep/expiry"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/rendered"
	"stele.dev/stele/core/resources/replicas"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

// Run runs the control plane until the context ends, then stops it and returns nil; or until a
// part fails, which is the error. It is called once.
func (p *Plane) Run(ctx context.Context) error {
	c := &p.config
	if p.authorizers != nil {
		p.authorizers.Follow(p.Committer)
	}
	// The actors stand in the order in which they are stopped. The first one waits for ctx.
	g := &group{ctx: context.WithoutCancel(ctx), prepared: p.prepared}
	ended, end := context.WithCancel(ctx)
	g.Add(func() error { <-ended.Done(); return ended.Err() }, func(error) {
		end()
		if c.Stopping != nil {
			c.Stopping()
		}
	})
	p.addReadiness(g)
	g.oncePrepared("leader", p.Replicas.Run)
	if c.EventTTL > 0 {
		g.oncePrepared("expiry of events", expiry.New(expiry.Options{Committer: p.Committer, Log: p.Log, TTL: c.EventTTL, Elsewhere: p.Replicas.Follows, Logger: c.Logger}).Run)
	}
	g.oncePrepared("overlays", (&rendered.Sweeper{Committer: p.Committer, Elsewhere: p.Replicas.Follows, Logger: c.Logger}).Run)
	if every := c.VerifyEvery; every > 0 {
		g.oncePrepared("verification", func(ctx context.Context) error { return p.verifier.Run(ctx, every) })
	}
	if p.delivery != nil {
		g.oncePrepared("source of policies", p.delivery.Run)
	}
	if p.server != nil {
		g.oncePrepared("published authorities", p.publisher.Run)
		g.actor("own certificates", p.keepCertificates)
		if p.certificates != nil {
			g.actor("serving certificates", p.certificates.Run)
		}
	}
	p.addAPI(g)
	if c.Beside != nil {
		g.oncePrepared(cmp.Or(c.BesideName, "beside"), func(ctx context.Context) error { return c.Beside(ctx, p) })
	}
	g.oncePrepared("lease of this replica", p.Replicas.Keep)
	g.actor("priority and fairness", p.RunFlow)
	g.actor("views", p.RunViews)
	g.actor("memory", p.RunMemory)
	g.oncePrepared("memory of policies", p.freeMemory)
	g.actor("authentication", p.Authenticator.Run)
	g.actor("failed authentications", p.failures.Run)
	g.actor("decisions", p.Decisions.Run)
	if p.encryption != nil {
		g.actor("encryption keys", p.runEncryption)
	}
	g.actor("watches", p.objects.Run)
	g.actor("committer", p.Committer.Run)
	g.actor("checkpoints", p.keeper.Run)
	if p.sealer != nil {
		g.actor("segments", p.sealer.Run)
		g.oncePrepared("retention", p.eraser.Run)
	}
	if p.bucket != nil {
		g.actor("bucket", p.bucket.Run)
	}
	g.actor("webhooks", func(ctx context.Context) error { return p.webhooks.Run(ctx, p.Committer) })
	if p.authorizers != nil {
		g.actor("authorizers", p.authorizers.Run)
		g.actor("plugins", p.plugins.Run)
	}
	p.addAudit(g)
	g.actor("history", p.History.Run)
	p.addPreparation(ctx, g)
	if err := g.Run(); ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	return nil
}

// Start runs the control plane in the background and returns when it is ready. stop stops and
// closes the plane, and returns the error of Run.
func (p *Plane) Start(ctx context.Context) (stop func() error, err error) {
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(running) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-ended, p.Close())
	})
	select {
	case <-p.prepared:
		return stop, nil
	case err := <-ended:
		ended <- err
		return nil, errors.Join(stop(), ctx.Err())
	}
}

// group is a run.Group whose actors stop in the order in which they were added.
type group struct {
	run.Group
	ctx      context.Context
	prepared <-chan struct{}
}

// actor adds a part that runs until its context ends.
func (g *group) actor(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(g.ctx)
	done := make(chan struct{})
	g.Add(func() error {
		defer close(done)
		if err := run(ctx); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}, func(error) { cancel(); <-done })
}

// oncePrepared adds a part that begins when the plane is ready.
func (g *group) oncePrepared(name string, run func(context.Context) error) {
	g.actor(name, func(ctx context.Context) error {
		select {
		case <-g.prepared:
			return run(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// addPreparation adds the actor that puts the policy in force and creates namespaces before the first request.
func (p *Plane) addPreparation(ctx context.Context, g *group) {
	ctx, cancel := context.WithCancel(ctx)
	g.Add(func() error {
		p.startup.begin("putting the policy in force")
		if err := p.prepare(ctx); err != nil {
			return err
		}
		switch err := p.Replicas.RecordKeys(ctx); {
		case errors.As(err, new(*replicas.WrongKeysError)):
			return err
		case err != nil: // the leader tries again
			p.config.Logger.Warn("the keys of this replica could not be compared with those of the log", "error", err)
		}
		p.noteStart()
		p.startup.done()
		close(p.prepared)
		<-ctx.Done()
		return nil
	}, func(error) { cancel() })
}

// PolicyError reports that the policy of the config has errors, so that it cannot be put in force.
type PolicyError struct {
	Source      *bundles.Source
	Diagnostics schemas.Diagnostics
}

// Error lists the diagnostics.
func (e *PolicyError) Error() string {
	return fmt.Sprintf("the policy cannot be put in force: %v", e.Diagnostics)
}

// prepare puts the policy of the config in force if there is none, and creates the namespaces
// that every control plane has.
func (p *Plane) prepare(ctx context.Context) error {
	c := &p.config
	if c.Policy == nil && p.delivery == nil {
		return nil
	}
	activated, err := p.activate(ctx)
	if err != nil {
		return err
	}
	if c.Prepare != nil {
		if err := c.Prepare(ctx, p, c.Policy, activated); err != nil {
			return err
		}
	}
	c.Policy = nil // it may be large
	if err := activation.CreateNamespaces(ctx, p.Committer); err != nil {
		return err
	}
	if p.publisher != nil {
		if err := p.publisher.Publish(ctx); err != nil { // the publisher tries again
			c.Logger.Warn("the authorities that are trusted could not be published", "error", err)
		}
	}
	return nil
}

// activate puts the policy of the config in force if the log has none, and returns what it
// compiled; nil if the log has one. Of replicas that start at once, one does.
func (p *Plane) activate(ctx context.Context) (*compile.Result, error) {
	source := p.config.Policy
	if p.Committer.Tip().Policies.Active != nil {
		return nil, nil
	}
	if source == nil {
		return nil, p.delivery.First(ctx)
	}
	compiled, diags, err := p.config.Compile(ctx, source)
	if err == nil && len(diags) == 0 {
		diags = p.Enforceable(ctx, compiled)
	}
	if err != nil {
		return nil, err
	}
	if len(diags) > 0 {
		return nil, &PolicyError{source, diags}
	}
	for {
		tip, err := p.Committer.Confirm(ctx)
		if err != nil || tip.Policies.Active != nil { // another replica that starts was faster
			return nil, err
		}
		_, err = activation.ActivateProposal(ctx, p.Committer, tip, activation.Proposal(compiled, ""), compiled.Form, activation.ServerActor)
		if stale := (*commit.Stale)(nil); !errors.As(err, &stale) {
			return compiled, err
		}
	}
}
