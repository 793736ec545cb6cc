// Package plane assembles a control plane and runs it: for `stele serve`, which does nothing else, for tests, and for package embed,
// which is public:
//
//	p, err := plane.New(ctx, plane.Config{Dir: dir, OpenLog: openLog, Policy: bundle})
//	...
//	stop, err := p.Start(ctx)
//	...
//	defer stop()
//	client, err := dynamic.NewForConfig(p.Client("admin", "system:masters"))
//
// [New] opens every part, in the order in which they need each other, and reads the log. [Plane.Run]
// runs them, and stops them in the opposite order: first whatever sends requests, then the API,
// then whatever stores. [Plane.Start] runs them in the background. A [Config] names the parts.
// Package datadir has a log that survives a restart, and package planetest has planes for tests.
package plane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/authz"
	"stele.dev/stele/core/auth/loopback"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/keep/bucketsync"
	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/keep/encryption"
	"stele.dev/stele/core/keep/logapi"
	"stele.dev/stele/core/record/decisions"
	"stele.dev/stele/core/resources/decisionsapi"
	"stele.dev/stele/core/resources/delivery"
	"stele.dev/stele/limits/connections"

	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/core/keep/retention"
	"stele.dev/stele/core/keep/verification"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/replicas"
	"stele.dev/stele/core/reviewers/plugins"
	"stele.dev/stele/core/reviewers/review"
	"stele.dev/stele/core/reviewers/webhooks"
	"stele.dev/stele/core/run/clientca"
	"stele.dev/stele/core/serve/server"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/projections/audit"
	"stele.dev/stele/projections/audit/hashing"
	"stele.dev/stele/projections/checkpoint"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/workers"
)

// Plane is a control plane. It is an http.Handler that answers requests to its API. Its methods are safe for
// concurrent use, except Run and Close.
type Plane struct {
	*core.Pipeline
	// Log is the log of record, and Committer writes to it.
	Log       *eventlog.Log
	Committer *commit.Committer
	// Archive has the older batches of the log; nil if the config's log has an archive of its own.
	Archive *archive.Archive
	// History answers requests about past revisions.
	History *history.Store
	// Authenticator authenticates requests. Accounts issues tokens of service accounts, by Keys.
	Authenticator *authn.Authenticator
	Accounts      *tokens.ServiceAccounts
	Keys          *tokens.Keys

	config   Config
	startup  *startup
	prepared chan struct{} // closed when the plane is ready
	started  StartWork     // set before that
	objects  *objects.Store
	// checkpoints has what the next start begins with, and keeper makes it.
	checkpoints *checkpoint.Folder
	keeper      *checkpoints.Keeper
	sealer      *archive.Keeper    // nil without an archive
	eraser      *retention.Eraser  // nil without an archive
	bucket      *bucketsync.Syncer // nil without a bucket
	verifier    *verification.Verifier
	closers     []func() error // in the order in which the parts were opened

	authority     *pki.Authority     // nil without a listener
	clients       *authn.Authorities // nil if no client certificates are accepted
	revocations   *authn.Revocations // nil if no client certificates are revoked
	frontProxy    *authn.FrontProxy  // nil if none is trusted
	administrator administrator
	failures      *authn.FailureLog
	hashes        *hashing.Key           // of what audit lines and the decision log must not show
	evaluators    *workers.Pool          // nil: this process evaluates
	encryption    *encryption.Keys       // nil for none
	authorizers   *authz.Authorizers     // nil if the config has a Load of its own
	plugins       *host.Host             // nil without authorizers
	reviewers     *plugins.Plugins       // nil without authorizers
	webhooks      *webhooks.Webhooks     // of admission
	audit         *audit.Writer          // nil without a file
	sinks         []sink                 // that get audit lines, too
	server        *http.Server           // nil without a listener
	front         *front                 // its handler
	own           *pki.ServerCertificate // nil without a listener
	certificate   getCertificate
	certificates  *server.Certificates // nil without files of certificates
	handover      *server.Handover     // has the listener
	guard         *connections.Guard   // limits the listener's connections
	advertise     string               // where other machines reach it; "" without a listener
	served        chan error           // gets the error with which the server ends
	publisher     *clientca.Publisher  // nil without a listener
	delivery      *delivery.Follower   // nil without a source of policies

	// Replicas knows the other planes on the same log, and whether this one leads.
	Replicas *replicas.Registry
	// Decisions records what leaves no event in the log.
	Decisions *decisions.Recorder
}

// New opens a control plane and reads its log. The API answers once Run is called; until then the listener answers that
// the plane starts. The caller closes the plane.
func New(ctx context.Context, c Config) (*Plane, error) {
	c, err := c.withDefaults()
	p := &Plane{config: c, prepared: make(chan struct{}), objects: objects.New(c.WatchBytes)}
	for _, listener := range []net.Listener{c.Listener, c.Socket} { // the closure must not keep c, whose bundle may be large
		if listener != nil {
			p.onClose(func() error { listener.Close(); return nil })
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.advertise = p.advertised()
	p.startup = newStartup(c.Logger, c.Starting)
	p.onClose(func() error { p.startup.done(); return nil })
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"reading keys and certificates", p.authenticate},
		{"opening the port", p.serve},
		{"opening the log", p.openLog},
		{"fetching segments", p.openBucket},
		{"reading the files of authorizers", p.authorize},
		{"reading the table of webhooks", p.openWebhooks},
		{"loading a checkpoint", p.restore},
		{"reading the log", p.replay},
		{"opening the log of decisions", p.openDecisions},
		{"opening the history", p.openProjections},
		{"reading what is erased of the past", p.openRetention},
		{"opening the verifier", p.openVerifier},
		{"opening the API", p.openAPI},
	} {
		p.startup.begin(step.name)
		if err := step.do(ctx); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	return p, nil
}

// Run opens a control plane, runs it until the context ends, and closes it.
func Run(ctx context.Context, c Config) error {
	p, err := New(ctx, c)
	if err != nil {
		return err
	}
	return errors.Join(p.Run(ctx), p.Close())
}

// onClose adds a function that Close calls before those that were added earlier.
func (p *Plane) onClose(f func() error) { p.closers = append(p.closers, f) }

// Close closes what New has opened. Run must have returned.
func (p *Plane) Close() error {
	var errs []error
	for _, f := range slices.Backward(p.closers) {
		errs = append(errs, f())
	}
	p.closers = nil
	return errors.Join(errs...)
}

// path returns the path of a file or folder in the plane's folder.
func (p *Plane) path(elem ...string) string {
	return filepath.Join(append([]string{p.config.Dir}, elem...)...)
}

// openLog opens the log and the archive of its older batches.
func (p *Plane) openLog(ctx context.Context) (err error) {
	if p.Log, err = p.config.OpenLog(ctx); err != nil {
		return err
	}
	if err := p.openEncryption(ctx); err != nil || p.Log.Archive() != nil {
		return err
	}
	c := &p.config.Segments
	p.Archive, err = archive.Open(archive.Options{
		Dir: p.path("segments"), Log: p.Log.ID(), SegmentRevisions: c.Revisions, SegmentBytes: c.Bytes, Logger: p.config.Logger,
	})
	if err != nil {
		return err
	}
	p.Log.SetArchive(p.Archive)
	window := c.WindowBytes
	if window == 0 && p.Log.Exclusive() {
		window = ownWindowBytes
	}
	p.sealer = archive.NewKeeper(archive.KeeperOptions{
		Archive: p.Archive, Log: p.Log, Tip: func() eventlog.Head { return p.Committer.Tip().Head },
		Trim: p.trims(), Covered: p.trimmable, Window: c.Window, WindowBytes: window, Logger: p.config.Logger,
	})
	return p.register(p.sealer.Metrics())
}

// register adds collectors to the metrics.
func (p *Plane) register(collectors []prometheus.Collector) error {
	for _, c := range collectors {
		if err := p.config.Metrics.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// authorize opens what policies need: workers that evaluate CUE, authorizers and plugins.
func (p *Plane) authorize(context.Context) (err error) {
	c := &p.config
	if c.Load != nil {
		return nil
	}
	var options []program.Option
	if c.Worker != nil {
		p.evaluators = workers.New(workers.Options{Command: c.Worker, Logger: c.Logger})
		p.onClose(func() error { p.evaluators.Close(); return nil })
		options = append(options, program.EvaluateWith(p.evaluators))
	}
	c.Plugins.StateDir, c.Plugins.Logger, c.Plugins.Metrics = p.path("plugins"), c.Logger, c.Metrics
	if p.plugins, err = host.New(c.Plugins); err != nil {
		return fmt.Errorf("plugins: %w", err)
	}
	p.reviewers = plugins.New(plugins.Options{Host: p.plugins, CheckConfigs: c.CheckConfigs})
	c.Authorization.Plugins = p.reviewers
	c.Authorization.Logger = c.Logger
	if p.authorizers, err = authz.New(c.Authorization); err != nil {
		return err
	}
	if c.Enforceable == nil {
		c.Enforceable = p.authorizers.Check
	}
	c.Load = func(proposal *policies.Proposal) (*policy.Policy, error) {
		loaded, err := probes.Load(proposal.Form.Bytes(), options...)
		if err != nil {
			return nil, err
		}
		return p.authorizers.Bind(loaded), nil
	}
	return c.Metrics.Register(p.authorizers)
}

// openWebhooks reads the operator's files for admission webhooks. A policy can be enforced here if the authorizers and the
// webhooks that it names can be asked.
func (p *Plane) openWebhooks(context.Context) (err error) {
	c := &p.config
	c.Webhooks.Logger = c.Logger
	if p.webhooks, err = webhooks.New(c.Webhooks); err != nil {
		return err
	}
	others := c.Enforceable
	c.Enforceable = func(ctx context.Context, compiled *compile.Result) (list schemas.Diagnostics) {
		if others != nil {
			list = others(ctx, compiled)
		}
		return append(list, p.webhooks.Check(ctx, compiled)...)
	}
	return c.Metrics.Register(p.webhooks)
}

// findReviewer returns the way to a webhook or an admission plugin.
func (p *Plane) findReviewer(of *policy.Policy, r *policy.Reviewer) review.Reviewer {
	if r.Plugin != "" {
		return p.reviewers.Find(of, r)
	}
	return p.webhooks.Find(of, r)
}

// restore makes the committer and moves it to the newest good checkpoint.
func (p *Plane) restore(ctx context.Context) (err error) {
	if err := p.readFloors(); err != nil {
		return err
	}
	p.Committer = commit.New(p.committerOptions())
	p.startup.count("objects", p.Committer.Loaded)
	if p.checkpoints, err = checkpoint.Open(p.path("checkpoints"), nil, p.Log.Keys()); err != nil {
		return err
	}
	return checkpoints.Load(ctx, p.checkpoints, p.Committer, p.config.Logger)
}

// replay reads the log up to its end.
func (p *Plane) replay(ctx context.Context) error {
	from := p.Committer.Restored().Revision
	if newest, err := p.Log.Back(ctx, math.MaxUint64, 1); err == nil && len(newest) > 0 {
		p.startup.goal("revision", from, newest[0].Last(), func() uint64 { return p.Committer.Tip().Revision() })
	}
	if err := p.Committer.Replay(ctx); err != nil {
		return p.explainReplay(err)
	}
	k := p.config.Checkpoints
	k.Folder, k.Committer, k.Metrics, k.Logger = p.checkpoints, p.Committer, p.config.Metrics, p.config.Logger
	p.keeper = checkpoints.New(k)
	if p.config.AcceptClock {
		return p.Committer.AcceptClock(ctx)
	}
	return nil
}

// explainReplay adds to the error of a replay what to do if the log does not reach back far enough.
func (p *Plane) explainReplay(err error) error {
	if forgotten := (*eventlog.ForgottenError)(nil); errors.As(err, &forgotten) {
		return fmt.Errorf("%w, and no checkpoint in %s goes back further and can be used: restore a checkpoint of revision %d or later into that folder, from a backup or from another server of this log; "+
			"--accept-unrecorded-checkpoint uses one of the bucket that the log has not recorded; "+
			"if this program is newer than the one that made the checkpoints there, start the former version once more", err, p.path("checkpoints"), forgotten.Oldest.Revision)
	}
	return err
}

// openProjections opens the history and the audit log, which follow the log.
func (p *Plane) openProjections(context.Context) (err error) {
	if err := p.openAudit(); err != nil {
		return err
	}
	if p.History, err = history.Open(history.Options{Dir: p.path("history"), Log: p.Log, Start: p.Log.Start(), Logger: p.config.Logger}); err != nil {
		return err
	}
	p.onClose(p.History.Close)
	return nil
}

// openAPI makes the pipeline.
func (p *Plane) openAPI(context.Context) error {
	c := &p.config
	uploads, err := activation.OpenUploads(p.path("parts"), activation.MaxUploads)
	if err != nil {
		return err
	}
	p.openReplicas()
	if err := p.openDelivery(); err != nil {
		return err
	}
	if err := p.Replicas.CheckKeys(); err != nil {
		return err
	}
	p.Pipeline = core.New(core.Options{
		Replicas:  p.Replicas,
		Delivery:  p.delivery,
		Decisions: p.Decisions, DecisionLog: decisionsapi.Source{Log: p.Decisions.Log(), Flush: p.Decisions.Flush, Find: p.Decisions.Find, Back: p.backDecisions},
		Committer: p.Committer, Log: p.Log, History: p.History, Authenticator: p.Authenticator, Tokens: p.Accounts, Logger: c.Logger, Version: c.Version,
		Compile: c.Compile, Parts: uploads, Enforceable: c.Enforceable, Evaluators: p.evaluators, Metrics: c.Metrics, Seats: c.Seats, Memory: c.Memory, Checks: p.checks(), Routes: p.routes(),
		Reviewers: p.findReviewer, Tracer: c.Tracer, LogLevel: c.LogLevel,
	})
	if err := errors.Join(p.Replicas.Serve(p.Pipeline), p.register(p.Replicas.Metrics()), p.register(c.Tracer.Metrics())); err != nil || c.Listener == nil {
		return err
	}
	return p.openPublisher()
}

// openDelivery makes what takes the policy from a source, if there is one.
func (p *Plane) openDelivery() error {
	o := p.config.Delivery
	if o.Source == nil {
		return nil
	}
	o.Committer, o.Compile, o.Follows, o.Enforceable, o.Logger = p.Committer, p.config.Compile, p.Replicas.Follows, p.Enforceable, p.config.Logger
	p.delivery = delivery.New(o)
	return p.register(p.delivery.Metrics())
}

// checks returns the health checks of the parts that this plane has.
func (p *Plane) checks() []core.Check {
	checks := []core.Check{
		{Name: "clock", Check: p.Committer.ClockHealth},
		{Name: "log-files", Group: "etcd", Check: func() error {
			if why := p.Log.Usage().Lost; why != "" {
				return fmt.Errorf("%w: %s", eventlog.ErrLost, why)
			}
			return nil
		}},
		{Name: "room", Group: "etcd", Warns: true, Check: func() error { return p.Log.Usage().Full() }}, // reads and deletes go on
	}
	if p.sealer != nil {
		checks = append(checks, core.Check{Name: "segments", Warns: true, Check: func() error { return errors.Join(p.sealer.Health(), p.checkStore()) }}) // the log's store fills up
	}
	checks = append(checks, p.bucketChecks()...)
	if p.config.Policy != nil || p.delivery != nil {
		checks = append(checks, core.Check{Name: "bootstrap", Check: p.bootstrapped})
	}
	if p.delivery != nil {
		checks = append(checks, core.Check{Name: "policy-source", Warns: true, Check: p.delivery.Health}) // the policy in force decides as before
	}
	if p.audit != nil {
		checks = append(checks, core.Check{Name: "audit", Check: p.audit.Health})
	}
	if len(p.sinks) > 0 {
		checks = append(checks, core.Check{Name: "audit-sinks", Warns: true, Check: p.sinkHealth}) // they get later what they miss
	}
	checks = append(checks, core.Check{Name: "decisions", Warns: true, Check: p.Decisions.Health}) // requests are served
	if !p.Replicas.Alone() {
		checks = append(checks, core.Check{Name: "replicas", Warns: true, Check: p.Replicas.Health}) // this one serves
	}
	checks = append(checks, core.Check{Name: "webhooks", Check: func() error { return p.webhooks.Health(p.Committer.Tip().Policy) }})
	if p.encryption != nil {
		checks = append(checks, core.Check{Name: "kms-providers", Check: p.encryption.Health})
	}
	if p.authorizers != nil {
		checks = append(checks, core.Check{Name: "authorizers", Check: p.authorizers.Health})
	}
	return checks
}

// routes returns the paths that are no resources and that parts of this plane serve.
func (p *Plane) routes() []core.Route {
	files := logapi.FileOptions{Log: p.Log, Archive: p.Archive, Checkpoints: p.checkpoints, Retention: p.path(retention.Folder)}
	routes := slices.Concat(logapi.ProofRoutes(p.Log, p.Committer), logapi.FileRoutes(files), []core.Route{p.verifier.Route()}, p.config.Routes)
	if p.eraser != nil {
		routes = append(routes, p.eraser.Route())
	}
	return routes
}

// openVerifier makes what compares the projections with the log. A projection that can be verified is a line here.
func (p *Plane) openVerifier(context.Context) error {
	p.verifier = verification.New([]verification.Projection{
		&verification.Objects{Committer: p.Committer, Folder: p.checkpoints, Options: p.committerOptions(), Erased: p.eraser.Erased},
		&verification.History{Store: p.History, Log: p.Log, Start: p.Log.Start(), Past: p.eraser.Verify, Dir: p.path("history-verify")},
	}, p.config.Metrics, p.config.Logger)
	return nil
}

// committerOptions returns the options of the committer.
func (p *Plane) committerOptions() commit.Options {
	return commit.Options{Log: p.Log, Objects: p.objects, Load: p.config.Load, Logger: p.config.Logger}
}

// bootstrapped returns an error until the policy is in force and the first namespaces exist.
func (p *Plane) bootstrapped() error {
	select {
	case <-p.prepared:
		return nil
	default:
		return errors.New("the start has not yet put the policy in force and created the namespaces default and kube-system")
	}
}

// Ready returns a channel that is closed when the policy of the config is in force and the
// namespaces that every control plane has exist.
func (p *Plane) Ready() <-chan struct{} { return p.prepared }

// Enforceable returns why this plane cannot enforce a policy; nil if it can.
func (p *Plane) Enforceable(ctx context.Context, compiled *compile.Result) schemas.Diagnostics {
	if p.config.Enforceable == nil {
		return nil
	}
	return p.config.Enforceable(ctx, compiled)
}

// Client returns a configuration for clients in this process, whose requests are those of a user.
// They need neither a listener nor a credential, and take every stage of the pipeline.
func (p *Plane) Client(name string, groups ...string) *rest.Config {
	return loopback.Config(p.Pipeline, &user.DefaultInfo{Name: name, Groups: groups})
}

// Address returns the host and port at which clients on this machine reach the listener; "" if there is none.
func (p *Plane) Address() string {
	if p.config.Listener == nil {
		return ""
	}
	tcp, ok := p.config.Listener.Addr().(*net.TCPAddr)
	if !ok {
		return p.config.Listener.Addr().String()
	}
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// Kubeconfig returns the path of a kubeconfig for an administrator, which New writes if there is a listener.
func (p *Plane) Kubeconfig() string { return p.path("admin.kubeconfig") }
