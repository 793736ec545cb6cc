package authn

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	configmetrics "k8s.io/apiserver/pkg/server/options/authenticationconfig/metrics"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"stele.dev/stele/limits/reload"
	"stele.dev/stele/limits/steady"
)

// healthEvery is how often issuers are checked, to log those that cannot be reached.
const healthEvery = 10 * time.Second

// files are the files in use, which are reloaded when they change.
type files struct {
	all     []*reload.File
	urgent  *reload.File // one of them, which is checked twice as often; nil for none
	every   time.Duration
	logger  *slog.Logger
	metrics *reload.Metrics
}

func (f *files) init(o *Options) {
	f.every = cmp.Or(o.ReloadEvery, time.Second)
	if f.logger = o.Logger; f.logger == nil {
		f.logger = slog.New(slog.DiscardHandler)
	}
	f.metrics = reload.NewMetrics("authentication")
}

// followed is an authentication method with files of its own.
type followed interface{ follow(*files) }

// outcome returns the function that receives the outcome of a reload. what is a flag name.
func (f *files) outcome(what, path string) func(error) {
	return f.metrics.Outcome(f.logger, what, path)
}

// follow reloads a file when it changes. said, if not nil, receives the outcome as well.
func (f *files) follow(what, path string, content []byte, load func(context.Context, []byte) error, said func(error)) *reload.File {
	file := &reload.File{Path: path, Content: content, Load: load, Outcome: f.outcome(what, path)}
	if tell := file.Outcome; said != nil {
		file.Outcome = func(err error) { said(err); tell(err) }
	}
	f.all = append(f.all, file)
	return file
}

func (f *files) followAuthorities(flag string, a *Authorities) {
	if a.file != "" {
		f.follow(flag, a.file, a.content, a.load, nil)
	}
}

func (a *Authenticator) followTokens(path string) error {
	content, err := reload.Read(path)
	if err != nil {
		return err
	}
	load := func(_ context.Context, content []byte) error {
		static, err := tokenfile.NewCSV(path) // it reads the file again
		if err == nil {
			err = reload.Unchanged(path, nil, content)
		}
		if err == nil {
			a.static.Store(static)
		}
		return err
	}
	a.files.follow("token-auth-file", path, content, load, nil)
	return load(nil, content)
}

// origin is a configuration of issuers: a flag, and the file that it names, if any.
type origin struct {
	flag, path string
	// content is the content at the start.
	content []byte
	// read parses and validates the content.
	read func(content []byte, compiler authenticationcel.Compiler) (*apiserver.AuthenticationConfiguration, error)
	// algorithms are the allowed signature algorithms.
	algorithms []string
	// said, if not nil, receives the outcome of a reload.
	said func(content []byte, err error)
}

// followConfiguration loads the issuers of the configuration file, and reloads them when it changes.
func (a *Authenticator) followConfiguration(ctx context.Context, o *Options) error {
	content, err := reload.Read(o.Configuration)
	if err != nil {
		return err
	}
	err = a.followIssuers(ctx, o, origin{
		flag: "authentication-config", path: o.Configuration, content: content, algorithms: oidc.AllValidSigningAlgorithms(),
		read: func(content []byte, compiler authenticationcel.Compiler) (*apiserver.AuthenticationConfiguration, error) {
			return configuration(content, compiler, o.Disallowed)
		},
		said: func(content []byte, err error) {
			if err != nil {
				configmetrics.RecordAuthenticationConfigAutomaticReloadFailure("")
			} else {
				configmetrics.RecordAuthenticationConfigAutomaticReloadSuccess("", string(content))
			}
		},
	})
	if err == nil {
		configmetrics.RegisterMetrics()
		configmetrics.RecordAuthenticationConfigLastConfigInfo("", string(content))
	}
	return err
}

// followIssuers loads issuers, and reloads them when their source changes. New issuers replace the old ones, for all
// requests at once, only after they are valid and reachable, so that no valid token is refused meanwhile.
func (a *Authenticator) followIssuers(ctx context.Context, o *Options, from origin) error {
	compiler := authenticationcel.NewDefaultCompiler()
	first, err := from.read(from.content, compiler)
	if err != nil {
		return err
	}
	if first.Anonymous != nil {
		if o.Anonymous != nil {
			return field.Forbidden(field.NewPath("anonymous"), "--anonymous-auth says already what is open to nobody in particular")
		}
		o.Anonymous = first.Anonymous
	}
	issuersOf := func(c *apiserver.AuthenticationConfiguration) (*issuers, error) {
		return newIssuers(ctx, c, a.issuers.Load(), compiler, from.algorithms, o.Audiences, o.Disallowed)
	}
	now, err := issuersOf(first)
	if err != nil {
		return err
	}
	a.issuers.Store(now)
	if from.path == "" {
		return nil
	}
	var last []byte
	load := func(stop context.Context, content []byte) error {
		last = content
		c, err := from.read(content, compiler)
		if err == nil {
			err = unchanged(c.Anonymous, first.Anonymous)
		}
		if err != nil {
			return err
		}
		next, err := issuersOf(c)
		if err != nil {
			return err
		}
		if err := next.healthy(stop, a.issuers.Load()); err != nil {
			next.end()
			return fmt.Errorf("%w: %w", reload.ErrLater, err)
		}
		a.issuers.Swap(next).retire(&a.issuers)
		return nil
	}
	a.files.follow(from.flag, from.path, from.content, load, func(err error) {
		if from.said != nil {
			from.said(last, err)
		}
	})
	return nil
}

// Run reloads the files when they change, until the context ends. If a file becomes invalid, the old content stays in
// use, and the error is logged.
func (a *Authenticator) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, f := range a.files.all {
		every := a.files.every
		if f == a.files.urgent {
			every /= 2 // a change is in use after two equal looks
		}
		g.Go(func() error { return f.Run(ctx, every) })
	}
	g.Go(func() error { return a.watchIssuers(ctx) })
	return g.Wait()
}

// watchIssuers logs which issuers cannot be reached, and when they can be reached again.
func (a *Authenticator) watchIssuers(ctx context.Context) error {
	ill := map[string]bool{}
	for range steady.Every(ctx, healthEvery) {
		s := a.issuers.Load()
		if s == nil {
			continue
		}
		for _, i := range s.all {
			switch err := i.health(); {
			case err != nil && !ill[i.url()]:
				a.files.logger.Warn("an issuer cannot be asked for its keys; its tokens are refused until it can", "issuer", i.url(), "error", err)
			case err == nil && ill[i.url()]:
				a.files.logger.Info("an issuer can be asked again", "issuer", i.url())
			}
			ill[i.url()] = i.health() != nil
		}
	}
	return ctx.Err()
}

var issuerReady = prometheus.NewDesc("stele_authentication_issuer_ready", "1 if an issuer of JWTs could be asked for its keys, 0 if its tokens are refused because it could not.", []string{"issuer"}, nil)

// Digest returns a digest of the operator's configuration that is in use; "" if there is none.
func (a *Authenticator) Digest() string { return a.files.metrics.Digest() }

// Describe implements prometheus.Collector.
func (a *Authenticator) Describe(to chan<- *prometheus.Desc) {
	to <- issuerReady
	a.files.metrics.Describe(to)
	for _, part := range a.measured {
		part.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (a *Authenticator) Collect(to chan<- prometheus.Metric) {
	a.files.metrics.Collect(to)
	for _, part := range a.measured {
		part.Collect(to)
	}
	if s := a.issuers.Load(); s != nil {
		for _, i := range s.all {
			ready := 0.
			if i.health() == nil {
				ready = 1
			}
			to <- prometheus.MustNewConstMetric(issuerReady, prometheus.GaugeValue, ready, i.url())
		}
	}
}
