package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"stele.dev/stele/cmd/stele/internal/build"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core"
	"stele.dev/stele/core/bootstrap"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/controllers"
	"stele.dev/stele/core/controllers/clients"
	"stele.dev/stele/core/expiry"
	"stele.dev/stele/core/parts"
	"stele.dev/stele/core/pki"
	"stele.dev/stele/core/server"
	"stele.dev/stele/core/trust"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/examples"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/audit"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas/workers"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	dataDir     string
	listen      string
	policyDir   string
	watch       bool
	hosts       []string
	logFormat   string
	logLevel    string
	drainDelay  time.Duration
	controllers []string
	eventTTL    time.Duration
	acceptClock bool
	origins     []string
	// replaceLostKeys makes keys again that are missing from a data directory in use.
	replaceLostKeys bool

	authentication authenticationOptions
	authorization  authorizationOptions
	compile        compileOptions
}

func serveCommand() *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a control plane",
		Long: `Serve runs a control plane: the API on one address, and all that it knows in one folder.

The first start makes that folder, with an embedded etcd, certificates and a kubeconfig
for the administrator, and activates the policy of --policy, or the quickstart's. From
then on the policy is in the log; --policy is only compared with it, or with
--policy-watch put in force whenever it is saved.`,
		Example: `  stele serve
  stele serve --policy ./policy --data-dir /var/lib/stele --listen 0.0.0.0:6443 --host api.example.com`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.serve(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "./stele-data", "folder of everything that is kept")
	f.StringVar(&o.listen, "listen", "127.0.0.1:6443", "address of the API")
	f.StringVar(&o.policyDir, "policy", "", "folder of the policy bundle (default: the built-in quickstart)")
	f.BoolVar(&o.watch, "policy-watch", false, "for development: put the folder of --policy in force at the start, and whenever it is saved")
	f.BoolVar(&o.replaceLostKeys, "replace-lost-keys", false, "make a certificate authority, or a key for the tokens of service accounts, in place of one that is missing from a data directory in use: what was signed by the lost one is refused from then on")
	f.StringSliceVar(&o.hosts, "host", nil, "further names and addresses for the server's certificate")
	f.StringSliceVar(&o.origins, "cors-allowed-origins", nil, "origins of pages whose scripts may use the API, as regular expressions that pin the host: //example\\.com(:|$)")
	f.StringVar(&o.logFormat, "log-format", "text", "format of the program's own messages on standard error: text or json")
	f.StringVar(&o.logLevel, "log-level", "warn", "lowest level that is logged: debug, info, warn or error")
	usage.DurationVar(f, &o.drainDelay, "drain-delay", 0, "how long to go on after the first SIGTERM, so that load balancers can see that /readyz fails")
	f.StringSliceVar(&o.controllers, "controllers", []string{"*"}, "controllers to run, as kube-controller-manager's: '*' for all, 'foo' for the one named foo, '-foo' for all but that. There are "+strings.Join(controllers.Names(), ", "))
	usage.DurationVar(f, &o.eventTTL, "event-ttl", time.Hour, "how long events are kept; 0 for ever")
	f.BoolVar(&o.acceptClock, "accept-clock", false, "set the log's time back to the clock, if the newest events have times in the future and the clock is right now")
	o.authentication.addFlags(f)
	o.authorization.addFlags(f)
	o.compile.addFlags(f)
	for _, name := range []string{"data-dir", "policy", "plugin-dir", "plugin-secrets-dir"} {
		_ = cmd.MarkFlagDirname(name)
	}
	return cmd
}

// drainTimeout is how long requests may take to end once the server stops.
const drainTimeout = 20 * time.Second

// serve wires the control plane, and runs it until a signal or a failure. The actors of
// the group stand in the order in which they are stopped.
func (o *serveOptions) serve(cmd *cobra.Command) (err error) {
	logger, err := o.logger(cmd)
	if err != nil {
		return err
	}
	klog.SetSlogLogger(slog.New(informational{logger.Handler()}))
	// From here on a signal is a wish to stop, also while things are being started.
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer func() {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil
		}
	}()

	// What can be found wrong without touching anything comes first.
	if o.watch && o.policyDir == "" {
		return errors.New("--policy-watch needs --policy, the folder to watch")
	}
	origins, err := server.ParseOrigins(o.origins)
	if err != nil {
		return fmt.Errorf("--cors-allowed-origins: %w", err)
	}
	selected, err := controllers.Select(o.controllers)
	if err != nil {
		return fmt.Errorf("--controllers: %w", err)
	}
	if o.eventTTL < 0 {
		return fmt.Errorf("--event-ttl %s: want a duration that is not negative", o.eventTTL)
	}
	if err := errors.Join(o.authentication.check(), o.authorization.check()); err != nil {
		return err
	}
	source, err := o.source()
	if err != nil {
		return err
	}
	listener, err := o.bind()
	if err != nil {
		return err
	}
	defer listener.Close()
	dir, err := lockDataDir(o.dataDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	used, err := dir.used()
	if err != nil {
		return err
	}
	starting := newStartup(logger)
	defer starting.over()
	starting.does("reading keys and certificates")
	if err := o.checkKeys(dir, logger); err != nil {
		return err
	}
	ca, err := pki.LoadAuthority(dir.path("pki"))
	if err != nil {
		return err
	}
	var committer *commit.Committer
	asking, err := o.authentication.new(dir, ca, reachable(listener.Addr()), func() *objects.State { return committer.Tip().Objects }, logger)
	if err != nil {
		return err
	}
	defer asking.Close()

	starting.does("opening etcd")
	backend, err := etcdlog.Embed(ctx, etcdlog.EmbedOptions{Dir: dir.path("etcd"), Used: used, Check: checkDatabaseApart, Log: logger})
	if err != nil {
		return err
	}
	defer backend.Close()
	starting.does("reading the log")
	log, err := eventlog.Open(ctx, backend, eventlog.Options{Software: "stele " + build.Version})
	if err != nil {
		return o.explain(err)
	}
	if err := dir.claim(log.ID()); err != nil {
		return err
	}
	store := objects.New(0)
	evaluators := workers.New(workers.Options{Command: evaluateApart, Logger: logger})
	defer evaluators.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(diskMetrics(dir.root)...)
	authorizers, plugins, err := o.authorization.new(dir, registry, logger)
	if err != nil {
		return err
	}
	committer = commit.New(commit.Options{Log: log, Objects: store, Load: loadPolicy(evaluators, authorizers), Logger: logger})
	if err := committer.Replay(ctx); err != nil {
		return o.explain(err)
	}
	if o.acceptClock {
		if err := committer.AcceptClock(ctx); err != nil {
			return o.explain(err)
		}
	}
	auditLog, err := audit.Open(audit.Options{File: dir.path("audit", "audit.log"), Log: log, Start: log.Start(), Logger: logger})
	if err != nil {
		return o.explain(err)
	}
	starting.does("opening the history")
	past, err := history.Open(history.Options{Dir: dir.path("history"), Log: log, Start: log.Start(), Logger: logger})
	if err != nil {
		return o.explain(err)
	}
	defer past.Close()
	prepared := make(chan struct{}) // closed once there is all that must be before the first request
	uploaded, err := parts.Open(dir.path("parts"))
	if err != nil {
		return err
	}
	pipeline := core.New(core.Options{
		Committer: committer, Log: log, History: past, Authenticator: asking.Authenticator, Tokens: asking.accounts, Logger: logger, Version: build.API(),
		Compile: o.compile.compile, Parts: uploaded, Enforceable: authorizers.Check, Evaluators: evaluators, Metrics: registry, Memory: memoryLimit(logger),
		Checks: []core.Check{{Name: "clock", Check: committer.ClockHealth}, {Name: "bootstrap", Check: bootstrapped(prepared)}, {Name: "audit", Check: auditLog.Health}, {Name: "authorizers", Check: authorizers.Health}},
	})
	certificate, kubeconfig, err := o.credentials(dir, ca, listener.Addr())
	if err != nil {
		return err
	}
	srv := server.New(server.WithCORS(pipeline, origins), certificate.Get, asking.acceptable, logger)
	var watch *policyWatch
	if o.watch {
		if watch, err = watchPolicy(o.policyDir, source, committer, &o.compile, authorizers.Check, cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
			return err
		}
		defer watch.close()
	}

	authorizers.Follow(committer)
	var g run.Group
	g.Add(func() error { <-ctx.Done(); return ctx.Err() }, func(error) { stop() }) // a second signal ends the process
	{                                                                              // readiness: the first to go, so that nobody sends more
		done := make(chan struct{})
		g.Add(func() error { <-done; return nil }, func(error) {
			pipeline.NotReady()
			time.Sleep(o.drainDelay)
			close(done)
		})
	}
	actor := func(name string, run func(context.Context) error) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		g.Add(func() error {
			defer close(done)
			if err := run(ctx); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		}, func(error) { cancel(); <-done })
	}
	oncePrepared := func(run func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			select {
			case <-prepared:
				return run(ctx)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	issuer := &clients.Issuer{Token: asking.accounts.InSecret, RootCA: ca.PEM}
	actor("controllers", oncePrepared(func(ctx context.Context) error { return controllers.Run(ctx, selected, pipeline, issuer, logger) }))
	actor("expiry of events", oncePrepared(expiry.New(expiry.Options{Committer: committer, Log: log, TTL: o.eventTTL, Logger: logger}).Run))
	publisher, err := trust.New(trust.Options{API: pipeline, ClientCA: asking.clients.Certificates, FrontProxy: asking.proxies, Logger: logger})
	if err != nil {
		return err
	}
	actor("published authorities", oncePrepared(publisher.Run))
	{ // the API: watches end with a bookmark, other requests are seen through
		g.Add(func() error {
			err := srv.ServeTLS(listener, "", "")
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return err
		}, func(error) {
			ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
			defer cancel()
			pipeline.Drain()
			if err := srv.Shutdown(ctx); err != nil {
				logger.Warn("requests were cut off", "error", err)
				srv.Close()
			}
		})
	}
	if watch != nil {
		actor("policy watch", oncePrepared(watch.run))
	}
	actor("authentication", asking.Run)
	actor("failed authentications", asking.failures.Run)
	actor("watches", store.Run)
	actor("committer", committer.Run)
	actor("authorizers", authorizers.Run)
	actor("plugins", plugins.Run)
	actor("audit", auditLog.Run)
	actor("history", past.Run)
	{ // what must be there before the first request; it ends when the server does
		ctx, cancel := context.WithCancel(ctx)
		g.Add(func() error {
			starting.does("putting the policy in force")
			if err := o.prepare(ctx, cmd, committer, source, watch, authorizers.Check); err != nil {
				return err
			}
			source = nil                                   // it may be large
			if err := publisher.Publish(ctx); err != nil { // which is tried again
				logger.Warn("the authorities that are trusted could not be published", "error", err)
			}
			starting.over()
			close(prepared)
			o.greet(cmd, dir, listener.Addr(), kubeconfig)
			<-ctx.Done()
			return nil
		}, func(error) { cancel() })
	}
	return o.explain(g.Run())
}

// source reads the bundle: that of --policy, or the quickstart that is built in.
func (o *serveOptions) source() (*policy.Source, error) {
	if o.policyDir == "" {
		quickstart, err := fs.Sub(examples.Quickstart, "quickstart")
		if err != nil {
			return nil, err
		}
		return policy.ReadFS(quickstart, ".")
	}
	return policy.ReadDir(o.policyDir)
}

// prepare puts the bundle in force if the log is empty or the bundle is watched, else
// compares it with what is in force, and creates the namespaces that always exist.
func (o *serveOptions) prepare(ctx context.Context, cmd *cobra.Command, c *commit.Committer, source *policy.Source, watch *policyWatch, enforceable core.Enforceable) error {
	active := c.Tip().Policies.Active
	switch {
	case active == nil:
		compiled, diags, err := o.compile.compile(ctx, source)
		if err != nil {
			return err
		}
		if len(diags) > 0 {
			return show.ErrDiagnostics(cmd.ErrOrStderr(), source, diags, cmp.Or(o.policyDir, "the quickstart"))
		}
		show.Warn(cmd.ErrOrStderr(), compiled)
		if diags := enforceable(ctx, compiled); len(diags) > 0 {
			return show.ErrDiagnostics(cmd.ErrOrStderr(), source, diags, cmp.Or(o.policyDir, "the quickstart"))
		}
		if _, err := bootstrap.Activate(ctx, c, compiled, bootstrap.Actor); err != nil {
			return err
		}
		if watch != nil {
			watch.tried = source.Digest()
		}
	case watch != nil:
		watch.save(ctx)
	case o.policyDir != "":
		// CUE is not needed to serve what is in force, so nobody waits for it.
		go func() {
			digest, diags, err := o.compile.digest(ctx, source)
			switch {
			case err != nil:
				if ctx.Err() == nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "The policy in %s was not compared with the one in force, which was activated at revision %d: %v.\n", o.policyDir, active.Revision, err)
				}
			case len(diags) > 0:
				fmt.Fprintf(cmd.ErrOrStderr(), "The policy in %s has errors, `stele policy vet %s` shows them; in force is what was activated at revision %d.\n",
					o.policyDir, o.policyDir, active.Revision)
			case digest != active.Digest:
				fmt.Fprintf(cmd.ErrOrStderr(), "The policy in %s differs from the one in force, which was activated at revision %d; `stele policy push %s` puts it in force.\n",
					o.policyDir, active.Revision, o.policyDir)
			}
		}()
	}
	return bootstrap.Namespaces(ctx, c)
}

// greet says where everything is, in three lines.
func (o *serveOptions) greet(cmd *cobra.Command, dir *dataDir, addr net.Addr, kubeconfig string) {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "Data    %s\n", dir.root)
	fmt.Fprintf(out, "API     https://%s\n", reachable(addr))
	fmt.Fprintf(out, "Try     kubectl --kubeconfig %s api-resources\n", kubeconfig)
}

// explain adds what to do to errors that people meet.
func (o *serveOptions) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, audit.ErrForeignCursor):
		return fmt.Errorf("%w; restore the audit folder that belongs to the log in %s, or move this one away: it is then written anew", err, o.dataDir)
	case errors.Is(err, eventlog.ErrDiverged):
		return fmt.Errorf("%w; was a backup restored into %s? What was written since is not in it", err, o.dataDir)
	case eventlog.IsFatal(err):
		return fmt.Errorf("the log in %s cannot be read: %w", filepath.Join(o.dataDir, "etcd"), err)
	}
	return err
}

// bind listens on the address, or suggests another.
func (o *serveOptions) bind() (net.Listener, error) {
	listener, err := net.Listen("tcp", o.listen)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return listener, err
	}
	host, port, splitErr := net.SplitHostPort(o.listen)
	if splitErr != nil {
		return nil, err
	}
	suggestion := "--listen " + net.JoinHostPort(host, "0") + " takes any free port"
	if n, err := strconv.Atoi(port); err == nil {
		for next := n + 1; next < n+20; next++ {
			address := net.JoinHostPort(host, strconv.Itoa(next))
			if free, err := net.Listen("tcp", address); err == nil {
				free.Close()
				suggestion = "try --listen " + address
				break
			}
		}
	}
	return nil, fmt.Errorf("%s is in use by another program; %s", o.listen, suggestion)
}

// reachable is the address as a client on this machine would write it.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return addr.String()
	}
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// credentials makes, where they are missing, the server's certificate and the
// administrator's kubeconfig, and returns the latter's path.
func (o *serveOptions) credentials(dir *dataDir, ca *pki.Authority, addr net.Addr) (*pki.ServerCertificate, string, error) {
	hosts := append([]string{"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}, o.hosts...)
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	if tcp, ok := addr.(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() && !tcp.IP.IsLoopback() {
		hosts = append(hosts, tcp.IP.String())
	}
	certificate, err := ca.ServerCertificate(dir.path("pki"), hosts)
	if err != nil {
		return nil, "", err
	}
	admin, err := ca.Client(dir.path("pki"), "admin", "admin", []string{"system:masters"})
	if err != nil {
		return nil, "", err
	}
	config, err := kubeconfig("https://"+reachable(addr), ca.PEM, "admin", admin)
	if err != nil {
		return nil, "", err
	}
	path := dir.path("admin.kubeconfig")
	return certificate, path, pki.WritePrivate(path, config)
}

func (o *serveOptions) logger(cmd *cobra.Command) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", o.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), options)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", o.logFormat)
}

// informational makes messages of the Kubernetes libraries no more than that: what
// matters of them comes back as errors, and what a client did wrong is its own affair.
// What is less than that stays so, for it has whole bodies of requests.
type informational struct{ slog.Handler }

func (h informational) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(ctx, min(level, slog.LevelInfo))
}

func (h informational) Handle(ctx context.Context, r slog.Record) error {
	if !h.Enabled(ctx, r.Level) {
		return nil // klog does not ask
	}
	if r.Level < slog.LevelInfo {
		r.Level = slog.LevelDebug
	} else {
		r.Level = slog.LevelInfo
	}
	return h.Handler.Handle(ctx, r)
}
