package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"stele.dev/stele/cmd/stele/internal/auditing"
	"stele.dev/stele/cmd/stele/internal/build"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/delivery"
	"stele.dev/stele/cmd/stele/internal/flags"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/systemd"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/run/controllers"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/datadir"
	"stele.dev/stele/core/serve/server"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/examples"
	"stele.dev/stele/limits/child"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/audit"
	"stele.dev/stele/projections/policies"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	plane.Config
	dataDir     string
	listen      string
	policyDir   string
	watch       bool
	logFormat   string
	logLevel    string
	controllers []string
	origins     []string
	memory      resource.QuantityValue
	profiling   bool
	contention  bool
	// builtIn reads the policy of a server without --policy.
	builtIn func() (*bundles.Source, error)
	// replaceLostKeys creates the keys that are missing from a data directory in use.
	replaceLostKeys bool

	authentication authenticationOptions
	authorization  authorizationOptions
	compile        compiling.Options
	connections    flags.Connections
	delivery       delivery.Flags
	serving        servingOptions
	settings       settings
	sinks          flags.Sinks
	storage        storageOptions
	tracing        tracingOptions
}

func serveCommand() *cobra.Command { return (&serveOptions{builtIn: quickstart}).command() }

// command returns the command that runs a control plane with these options.
func (o *serveOptions) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a control plane",
		Long: `Serve runs a control plane: the API on one address, and all data in one folder.

The first start makes that folder, with an embedded etcd, certificates and a kubeconfig
for the administrator, and activates the policy of --policy, or the quickstart's. From
then on the policy is in the log; --policy is only compared with it, or with
--policy-watch put in force whenever it is saved.

With --etcd-endpoints the log is in an etcd cluster, and any number of servers run on it, each
with a folder of its own: see examples/ha.

Flags can be in a file, see --config.

SIGTERM and SIGINT end it in order, after --shutdown-delay-duration; a second signal ends it at once.`,
		Example: `  stele serve
  stele serve --policy ./policy --data-dir /var/lib/stele --listen 0.0.0.0:6443 --host api.example.com
  stele serve --etcd-endpoints https://etcd1:2379,https://etcd2:2379 --etcd-cafile ca.crt --host api.example.com --shutdown-delay-duration 5s`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.serve(cmd) },
	}
	var groups usage.FlagGroups
	f := groups.Group("Flags")
	f.StringVar(&o.dataDir, "data-dir", "./stele-data", "folder of all data")
	o.settings.addFlags(f)
	f.StringVar(&o.listen, "listen", "127.0.0.1:6443", "address of the API")
	f.StringVar(&o.policyDir, "policy", "", "folder of the policy bundle (default: the built-in quickstart)")
	f.BoolVar(&o.watch, "policy-watch", false, "for development: put the folder of --policy in force at the start, and whenever it is saved")
	f.BoolVar(&o.replaceLostKeys, "replace-lost-keys", false, "create a certificate authority, or a key for service account tokens, if it is missing from a data directory in use, and let a replica replace those of its log; certificates or tokens that the former one signed are refused from then on")
	f.StringVar(&o.PKIDir, "pki-dir", "", "folder of ca.crt, ca.key and sa.key, which all replicas of a log share: mount it, or copy its files (default: pki in --data-dir)")
	f.Uint32Var(&o.Replicas.Level, "format-level", 0, "highest format level to which the log is raised, so that an older version can still read it (default: the highest that all replicas read)")
	f.StringSliceVar(&o.Hosts, "host", nil, "further names and addresses for the server's certificate")
	f.StringSliceVar(&o.origins, "cors-allowed-origins", nil, "origins of pages whose scripts may use the API, as regular expressions that pin the host: //example\\.com(:|$)")
	f.StringVar(&o.logFormat, "log-format", "text", "format of the program's own messages on standard error: text or json")
	f.StringVar(&o.logLevel, "log-level", "warn", "lowest level that is logged: debug, info, warn or error")
	f.BoolVar(&o.profiling, "profiling", false, "serve profiles of the program at /debug/pprof/, to users whom the policy grants that path; they keep a processor busy")
	f.BoolVar(&o.contention, "contention-profiling", false, "with --profiling, also record where goroutines wait for each other, for the profile block; it costs each request some time")
	f.IntVar(&o.Seats, "max-seats", 0, "how many seats the priority levels of the policy share: about as many requests run at a time, and others wait (default: 100 for each processor)")
	f.Var(&o.memory, "memory", "how much memory the server may use, such as 2Gi: requests that would take more wait, and then get 429 (default: GOMEMLIMIT, or else the limit of the control group, or else half of the machine's memory)")
	o.addShutdownFlags(f)
	o.tracing.addFlags(f)
	f.StringSliceVar(&o.controllers, "controllers", []string{"*"}, "controllers to run, as in kube-controller-manager: '*' for all, 'foo' for the one named foo, '-foo' for all except foo. The controllers are "+strings.Join(controllers.Names(), ", "))
	usage.DurationVar(f, &o.EventTTL, "event-ttl", time.Hour, "how long events are kept; 0 for ever")
	f.Uint64Var(&o.Checkpoints.Events, "checkpoint-events", 0, "after how many revisions a checkpoint is made, from which the next start goes on; 0 for 10,000, or for a quarter of the number of objects if that is more")
	usage.DurationVar(f, &o.VerifyEvery, "verify-projections", 0, "how often the projections are built from the log a second time, in the background, and compared with what serves; meanwhile objects take twice the memory; 0 for never")
	f.DurationVar(&o.Replicas.Every, "lease-every", 0, "how often a replica renews its lease (default: 10 seconds)")
	_ = f.MarkHidden("lease-every") // for tests
	f.BoolVar(&o.AcceptClock, "accept-clock", false, "set the log's time back to the clock, if the newest events have times in the future although the clock is right")
	o.serving.addFlags(groups.Group("Flags for TLS and addresses"))
	o.storage.addFlags(groups.Group("Flags for the log and its storage"))
	o.authentication.addFlags(groups.Group("Flags for authentication"))
	o.authorization.addFlags(groups.Group("Flags for authorization"))
	o.sinks.Add(groups.Group("Flags for the audit log"))
	auditing.AddLogFlags(groups.Group("Flags for the log of decisions"), &o.Decisions)
	o.connections.Add(groups.Group("Flags for limits of connections"))
	o.delivery.AddGitFlags(groups.Group("Flags for a policy in a git repository"))
	o.delivery.AddOCIFlags(groups.Group("Flags for a policy in a registry"))
	o.compile.AddFlags(groups.Group("Flags for compiling policies"))
	o.settings.use(cmd)
	groups.Use(cmd, firstFlags...)
	for _, name := range []string{"data-dir", "policy", "plugin-dir", "plugin-secrets-dir", "webhook-secrets-dir"} {
		_ = cmd.MarkFlagDirname(name)
	}
	return cmd
}

// serve runs a control plane until a signal or a failure ends it.
func (o *serveOptions) serve(cmd *cobra.Command) error {
	logger, err := o.logger(cmd)
	if err != nil {
		return err
	}
	klog.SetSlogLogger(slog.New(informational{logger.Handler()}))
	// From here on a signal stops the server, also while it starts. A second one ends the process.
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() {
		if cmd.Context().Err() == nil { // it was a signal
			fmt.Fprintln(o.messages(cmd), "Stopping; a second signal ends it at once")
		}
		stop()
	})
	// A program that reads messages or audit lines from a pipe may end before the server: writes then fail, and the server goes on.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	child.LeaveNoCore()
	if err := child.Unconfined(); err != nil {
		logger.Debug("processes that compile policies and evaluate CUE can open files and start programs", "why", err)
	}
	config, err := o.config(cmd, logger)
	if err != nil {
		return err
	}
	tracer, closeTracer, err := o.tracing.open(ctx, logger)
	if err != nil {
		return err
	}
	defer closeTracer()
	config.Tracer = tracer
	if config.Listener, err = o.bind(); err != nil {
		return err
	}
	defer config.Listener.Close()
	if path := o.serving.socket; path != "" {
		if config.Socket, err = server.ListenSocket(path, o.serving.socketMode); err != nil {
			return fmt.Errorf("--unix-socket: %w", err)
		}
		defer config.Socket.Close()
	}
	options := datadir.Options{Software: "stele " + build.Version, Level: min(cmp.Or(o.Replicas.Level, eventlog.SealingLevel), eventlog.SealingLevel), CheckDatabase: checkDatabaseApart, PKIDir: o.PKIDir, Logger: logger}
	o.storage.limit(&options)
	config.Segments, config.Retention, config.Encryption = o.storage.segments, o.storage.retention, o.storage.encryption
	shared, closeShared, err := o.storage.openBucket(ctx)
	if err != nil {
		return err
	}
	defer closeShared()
	config.Bucket = shared
	dir, err := datadir.Open(o.dataDir, options)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.CheckKeys(config.Authentication.ServiceAccounts.SigningKeyFile == "", o.replaceLostKeys); err != nil {
		return err
	}
	config.Dir, config.OpenLog = dir.Path(), dir.OpenLog
	config.Metrics.MustRegister(dir.Metrics()...)
	service := systemd.New(logger)
	config.Starting = service.Starting
	config.Stopping = func() {
		service.Stopping(o.ShutdownDelay + plane.StopTime)
		stop() // so that a signal while the plane stops after a failure ends the process
	}
	p, err := plane.New(ctx, config)
	if err != nil {
		return o.ended(ctx, cmd, err)
	}
	defer p.Close()
	running, end := context.WithCancel(context.WithoutCancel(ctx)) // it lives while it stops, too
	greeted := make(chan struct{})
	go func() {
		defer close(greeted)
		select {
		case <-p.Ready():
			o.greet(cmd, p, dir.Path())
			service.Ready("Serving https://" + p.Address())
			service.Watch(running, p.Live)
		case <-running.Done():
		}
	}()
	err = p.Run(ctx)
	end()
	<-greeted
	if tip := p.Committer.Tip(); ctx.Err() != nil && tip != nil {
		fmt.Fprintf(o.messages(cmd), "Stopped at revision %d\n", tip.Revision())
	}
	return o.ended(ctx, cmd, err)
}

// config returns the configuration of the flags, except for the parts in the data directory. It returns an error for
// wrong flags before anything is written.
func (o *serveOptions) config(cmd *cobra.Command, logger *slog.Logger) (c plane.Config, err error) {
	c = o.Config
	c.Replicas.ReplaceKeys, c.Replicas.Build = o.replaceLostKeys, build.Name()
	if o.watch && o.policyDir == "" {
		return c, errors.New("--policy-watch needs --policy, the folder to watch")
	}
	if c.Delivery, err = o.delivery.Options(filepath.Join(o.dataDir, "policy-source"), o.policyDir); err != nil {
		return c, err
	}
	if c.Origins, err = server.ParseOrigins(o.origins); err != nil {
		return c, fmt.Errorf("--cors-allowed-origins: %w", err)
	}
	if err := o.serving.apply(&c); err != nil {
		return c, err
	}
	if c.Controllers, err = controllers.Select(o.controllers); err != nil {
		return c, fmt.Errorf("--controllers: %w", err)
	}
	if err := o.checkShutdown(); err != nil {
		return c, err
	}
	if least := int64(128 << 20); o.memory.Value() < 0 || o.memory.Value() > 0 && o.memory.Value() < least {
		return c, fmt.Errorf("--memory %s: want at least 128Mi", o.memory.String())
	}
	if c.EventTTL < 0 {
		return c, fmt.Errorf("--event-ttl %s: want a duration that is not negative", c.EventTTL)
	}
	if c.Replicas.Every < 0 {
		return c, fmt.Errorf("--lease-every %s: want a duration that is not negative", c.Replicas.Every)
	}
	if c.VerifyEvery < 0 {
		return c, fmt.Errorf("--verify-projections %s: want a duration that is not negative", c.VerifyEvery)
	}
	if err := errors.Join(o.authentication.check(), o.authorization.check(), o.storage.check()); err != nil {
		return c, err
	}
	if err := o.sinks.Apply(&c, filepath.Join(o.dataDir, "audit", "audit.log"), cmd.OutOrStdout()); err != nil {
		return c, err
	}
	if !o.delivery.Given() {
		if c.Policy, err = o.source(); err != nil {
			return c, err
		}
	}
	if c.Connections, o.authentication.FailuresPerMinute, err = o.connections.Limits(); err != nil {
		return c, err
	}
	if o.contention && !o.profiling {
		return c, errors.New("--contention-profiling needs --profiling, which serves the profiles")
	}
	if o.contention {
		runtime.SetBlockProfileRate(1) // as kube-apiserver does
	}
	c.Routes = newPages(cmd.Flags(), o.profiling)
	c.Webhooks = o.authorization.webhooks
	c.Authentication, c.Authorization, c.Plugins = o.authentication.Authentication, o.authorization.Options, o.authorization.plugins
	c.CheckConfigs, c.Worker, c.Compile = checkConfigsApart, evaluateApart, o.compile.Compile
	c.Logger, c.Metrics, c.Version, c.Memory = logger, prometheus.NewRegistry(), build.API(), o.memoryLimit(logger)
	if !o.watch {
		c.Prepare = func(ctx context.Context, p *plane.Plane, source *bundles.Source, activated *compile.Result) error {
			if activated != nil {
				show.Warn(cmd.ErrOrStderr(), activated)
			} else if o.policyDir != "" {
				go o.compare(ctx, cmd, source, p.Committer.Tip().Policies.Active) // in the background, because compiling takes time
			}
			return nil
		}
		return c, nil
	}
	watch, err := delivery.WatchFolder(o.policyDir, c.Policy, &o.compile, o.messages(cmd), cmd.ErrOrStderr())
	if err != nil {
		return c, err
	}
	c.Prepare, c.Beside, c.BesideName = watch.Begin, watch.Run, "policy watch"
	return c, nil
}

// ended returns the error of a server that has ended, or nil if a signal ended it.
func (o *serveOptions) ended(ctx context.Context, cmd *cobra.Command, err error) error {
	var refused *plane.PolicyError
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return nil
	case errors.As(err, &refused):
		return show.ErrDiagnostics(cmd.ErrOrStderr(), refused.Source, refused.Diagnostics, cmp.Or(o.policyDir, "the built-in policy"))
	}
	return o.explain(err)
}

// source reads the bundle of --policy, or else the one in the program.
func (o *serveOptions) source() (*bundles.Source, error) {
	if o.policyDir == "" {
		return o.builtIn()
	}
	return bundles.ReadDir(o.policyDir)
}

// quickstart reads the bundle of a control plane that was given none.
func quickstart() (*bundles.Source, error) {
	files, err := fs.Sub(examples.Quickstart, "quickstart")
	if err != nil {
		return nil, err
	}
	return bundles.ReadFS(files, ".")
}

// compare prints a message if the policy in the folder differs from the one in force.
func (o *serveOptions) compare(ctx context.Context, cmd *cobra.Command, source *bundles.Source, active *policies.Activation) {
	digest, diags, err := o.compile.Digest(ctx, source)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "The policy in %s was not compared with the one in force, which was activated at revision %d: %v.\n", o.policyDir, active.Revision, err)
		}
	case len(diags) > 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "The policy in %s has errors, `stele policy vet %s` shows them; the policy in force was activated at revision %d.\n",
			o.policyDir, o.policyDir, active.Revision)
	case digest != active.Digest:
		fmt.Fprintf(cmd.ErrOrStderr(), "The policy in %s differs from the one in force, which was activated at revision %d; `stele policy push %s` puts it in force.\n",
			o.policyDir, active.Revision, o.policyDir)
	}
}

// greet prints the data directory, where the log is if not there, the URL of the API and a command to try.
func (o *serveOptions) greet(cmd *cobra.Command, p *plane.Plane, dir string) {
	out := o.messages(cmd)
	fmt.Fprintf(out, "Data    %s\n", dir)
	if e := &o.storage.etcd; len(e.Endpoints) > 0 {
		fmt.Fprintf(out, "Log     etcd at %s, below %s\n", strings.Join(e.Endpoints, ", "), e.Prefix)
	}
	fmt.Fprintf(out, "API     https://%s\n", p.Address())
	fmt.Fprintf(out, "Try     kubectl --kubeconfig %s api-resources\n", p.Kubeconfig())
}

// messages returns where the program writes what it has to say: standard output, unless that has the audit log, of which each line
// is JSON.
func (o *serveOptions) messages(cmd *cobra.Command) io.Writer {
	if o.sinks.Stdout() {
		return cmd.ErrOrStderr()
	}
	return cmd.OutOrStdout()
}

// explain adds advice to errors of the log.
func (o *serveOptions) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, audit.ErrForeignCursor):
		return fmt.Errorf("%w; restore the audit folder that belongs to the log in %s, or move this one away, so that a new one is written", err, o.dataDir)
	case errors.As(err, new(*datadir.LostError)):
		return err
	case errors.Is(err, eventlog.ErrDiverged) && len(o.storage.etcd.Endpoints) > 0:
		return fmt.Errorf("%w; was etcd restored from a snapshot? See \"You restored etcd\" in docs/REPLICAS.md", err)
	case eventlog.IsFatal(err) && len(o.storage.etcd.Endpoints) > 0:
		return fmt.Errorf("the log in etcd cannot be read: %w", err)
	case errors.Is(err, eventlog.ErrDiverged):
		return fmt.Errorf("%w; was a backup restored into %s? Later writes are not in it", err, o.dataDir)
	case eventlog.IsFatal(err):
		return fmt.Errorf("the log in %s cannot be read: %w", filepath.Join(o.dataDir, "etcd"), err)
	}
	return err
}

// bind listens on the address. If the address is in use, the error suggests another one.
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

// logger returns the logger of the flags.
func (o *serveOptions) logger(cmd *cobra.Command) (*slog.Logger, error) {
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", o.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	o.LogLevel = level
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), options)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", o.logFormat)
}

// informational logs messages of the Kubernetes libraries at level info at most. They also return errors that matter to
// operators, and mistakes of clients matter to the clients only. Messages below info are logged at level debug, because
// they contain whole request bodies.
type informational struct{ slog.Handler }

func (h informational) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(ctx, min(level, slog.LevelInfo))
}

func (h informational) Handle(ctx context.Context, r slog.Record) error {
	if !h.Enabled(ctx, r.Level) {
		return nil // klog does not call Enabled
	}
	if r.Level < slog.LevelInfo {
		r.Level = slog.LevelDebug
	} else {
		r.Level = slog.LevelInfo
	}
	return h.Handler.Handle(ctx, r)
}
