package plane

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os/exec"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"stele.dev/stele/core"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/authz"
	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/resources/delivery"
	"stele.dev/stele/core/reviewers/webhooks"
	"stele.dev/stele/core/run/controllers"
	"stele.dev/stele/core/serve/server"
	"stele.dev/stele/core/tracing"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/connections"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

// Config says what a control plane consists of. Dir and OpenLog are required. The zero value of
// any other field leaves that part out, or has the default that its comment names.
type Config struct {
	// Dir is the folder for keys, the history and other files that do not belong to the log. It
	// is created, and MUST belong to one plane at a time.
	Dir string
	// OpenLog opens the log. It is called once, after keys and certificates have been read. The
	// caller of New closes the log's backend after the plane.
	OpenLog func(context.Context) (*eventlog.Log, error)
	// AcceptClock sets the log's time back to the clock, if the newest events have times in the future.
	AcceptClock bool

	// Policy is put in force by Run if the log has no policy yet. If it is nil, Run neither puts
	// a policy in force nor creates the namespaces that every control plane has.
	Policy *bundles.Source
	// Delivery takes policies from its Source, also the first one if Policy is nil; no Source for none. The plane sets
	// Committer, Compile, Follows, Enforceable and Logger.
	Delivery delivery.Options
	// Compile compiles bundles, for Policy and for clients that push policies. The default
	// compiles in this process, which a malicious bundle can crash.
	Compile core.Compile
	// Prepare is called by Run when a policy is in force, before the plane is ready. activated is
	// what Run compiled from the source and put in force, nil if the log had a policy.
	Prepare func(ctx context.Context, p *Plane, source *bundles.Source, activated *compile.Result) error
	// Beside runs from when the plane is ready until it stops.
	Beside func(context.Context, *Plane) error
	// BesideName is what errors call Beside. The default is "beside".
	BesideName string
	// Starting is told what the start does, when it begins something else, and every few seconds if that takes long; nil for
	// nobody.
	Starting func(doing string)
	// Stopping is called when Run begins to stop, if it is not nil.
	Stopping func()

	Authentication Authentication
	// Authorization configures the authorizers that policies may name; the plane sets Plugins.
	Authorization authz.Options
	// Plugins configures the programs of plugins; the plane sets StateDir. CheckConfigs checks what policies configure
	// them with, see [plugins.Options].
	Plugins      host.Options
	CheckConfigs func(context.Context, *bundles.Source, map[string]string) (schemas.Diagnostics, error)
	// Webhooks configures how the admission webhooks of policies are reached; the plane sets Logger.
	Webhooks webhooks.Options
	// Worker returns a command that evaluates CUE for stored objects, see [workers.Work]. The
	// default evaluates in this process, which a malicious object can crash.
	Worker func() (*exec.Cmd, error)
	// Load makes the policy of a proposal. The default makes it with the authorizers of
	// Authorization and the workers of Worker, which do not run otherwise.
	Load func(*policies.Proposal) (*policy.Policy, error)
	// Enforceable returns why this plane cannot enforce a policy. The default asks the authorizers.
	Enforceable core.Enforceable

	// PKIDir is the folder of the certificate authority and of the key that signs tokens of service accounts: ca.crt,
	// ca.key and sa.key, which are created if they are missing. Planes on one log have the same. "" for pki in Dir, where
	// the certificates that belong to this plane alone are in any case.
	PKIDir string
	// Listener is where the API is served, by TLS. The plane closes it, also if New fails.
	// Without it only this process reaches the API: see [Plane.Client].
	Listener net.Listener
	// Socket is where the API is served, too, such as a unix socket: in the same way, with the same certificates and authentication. The
	// plane closes it, also if New fails. nil for none; it needs a Listener.
	Socket net.Listener
	// Hosts are names and addresses for the server's certificate, beside those of this machine.
	Hosts []string
	// AdvertiseAddress is the address of this plane for others: replicas, and the keys that verify tokens. nil for that of the
	// Listener, or else of the machine.
	AdvertiseAddress net.IP
	// Certificates are files with certificates for the listener, which are read again when they change. Without them it has
	// one of the plane's own authority.
	Certificates server.CertificateFiles
	// RootCA has the authorities with which clients of service accounts verify the certificate of the API, in PEM; nil for the
	// plane's own authority.
	RootCA []byte
	// Connections limits the listener's connections, and what clients may do before and beside their requests. Fields of 0
	// have defaults.
	Connections connections.Limits
	// TLS says which versions and cipher suites the listener accepts.
	TLS server.TLS
	// Origins are those whose pages may use the API (CORS).
	Origins server.Origins
	// ShutdownDelay is how long the plane serves after it has begun to stop, so that load balancers
	// can see that it is not ready.
	ShutdownDelay time.Duration
	// GoawayChance is the share of requests of HTTP/2 whose clients are told to connect again, which spreads them over
	// the servers behind a balancer; 0 for none, see [server.WithGoaway].
	GoawayChance float64

	// Encryption says how contents are encrypted where they are stored.
	Encryption Encryption

	// Controllers run in this process, see [controllers.Select].
	Controllers []controllers.Controller
	// EventTTL is how long Events are kept; 0 for ever.
	EventTTL time.Duration
	// AuditFile is the audit log.
	AuditFile string
	// Audit says more of the audit log.
	Audit Audit
	// Decisions says how what leaves no event in the log is recorded.
	Decisions Decisions
	// Checkpoints says how often checkpoints are made; the plane sets its other fields.
	Checkpoints checkpoints.Options
	// Segments says how the older batches of the log are kept, unless the log that OpenLog returns has an archive.
	Segments Segments
	// Bucket is shared by all replicas of the log.
	Bucket Bucket
	// Retention limits how long the past is kept, beside the policy.
	Retention Retention
	// VerifyEvery is how often the projections are compared with the log in the background; 0 for never.
	VerifyEvery time.Duration
	// WatchBytes bounds the recent changes in memory for watches; 0 for [objects.DefaultHistoryBytes].
	WatchBytes int
	// Seats is how many seats priority levels share; 0 for 100 for each processor.
	Seats int
	// Memory is how many bytes this process may use, 0 for no limit. It bounds request bodies.
	Memory int64
	// Routes are further paths that are no resources.
	Routes []core.Route
	// Version is what /version answers.
	Version version.Info
	// Tracer traces requests; nil to trace nothing. The caller shuts it down.
	Tracer *tracing.Tracer
	// Metrics is the registry that /metrics serves; nil for a new one.
	Metrics *prometheus.Registry
	// Logger gets messages for operators; nil for none.
	Logger *slog.Logger
	// LogLevel is the lowest level that Logger logs, which users may change whom the policy lets; nil if they cannot.
	LogLevel *slog.LevelVar
	// Replicas says how this plane and others on the same log know each other.
	Replicas Replicas
}

// ownWindowBytes is the default of [Segments.WindowBytes] for a store that only this process can read.
const ownWindowBytes = 64 << 20

// Segments says how the older batches of the log are kept in files below Dir.
type Segments struct {
	// Revisions and Bytes say when a segment is complete; 0 for the defaults of package archive. Replicas have the same.
	Revisions uint64
	Bytes     int64
	// Window is the age up to which batches stay in the log's store, too; 0 for [archive.DefaultWindow].
	Window time.Duration
	// WindowBytes is how much the store may hold before younger batches leave it. If it is 0, that is 64 MiB for a store that only this process
	// can read, which reads all of it at a start, and half of its limit for others.
	WindowBytes int64
	// Trim removes sealed batches from the log's store although other processes may read it. A store that only this
	// process can read is always trimmed.
	Trim bool
}

// Authentication says how users are authenticated. The methods, their order and their settings
// are those of kube-apiserver. Files are read again when they change.
type Authentication struct {
	// ClientCAFile has authorities, in PEM, whose client certificates are accepted beside those
	// of the plane's own authority.
	ClientCAFile string
	// RevokedCertificates is a file of client certificates that are refused, see [authn.NewRevocations].
	RevokedCertificates string
	// TokenFile is a CSV file of static tokens.
	TokenFile string
	// Configuration is a file with an AuthenticationConfiguration.
	Configuration string
	// Anonymous says whether requests without credentials are accepted; nil for what
	// Configuration says, or for [authn.Public].
	Anonymous *apiserver.AnonymousAuthConfig
	// OIDC is an issuer of JWTs, if there is no Configuration.
	OIDC *authn.OIDC
	// Webhook is asked about bearer tokens, if it names a file. The plane sets Audiences.
	Webhook authn.WebhookOptions
	// FrontProxy is trusted to name users, if it names a file. The plane sets Clients.
	FrontProxy      authn.FrontProxyOptions
	ServiceAccounts ServiceAccounts
	// BootstrapTokens accepts bootstrap tokens.
	BootstrapTokens bool
	// FailuresPerMinute is how many wrong credentials a source may try in a minute, see [authn.Throttle]; 0 for
	// [authn.DefaultFailuresPerMinute], less for no limit.
	FailuresPerMinute int
	// ReloadEvery is how often files are checked for changes; 0 for every second.
	ReloadEvery time.Duration
}

// ServiceAccounts says how tokens of service accounts are signed and verified.
type ServiceAccounts struct {
	// SigningKeyFile has the private key that signs; "" for sa.key in PKIDir, which is created.
	SigningKeyFile string
	// KeyFiles have further keys that verify tokens.
	KeyFiles []string
	// Issuers are those whose tokens are valid; the first one issues. nil for [tokens.DefaultIssuer].
	Issuers []string
	// JWKSURI is where others get the keys; "" for this server.
	JWKSURI string
	// Audiences are the names of this API; nil for the issuers.
	Audiences []string
	// MaxExpiration bounds the lifetime of a token; 0 for no bound.
	MaxExpiration time.Duration
}

// withDefaults returns the config with the defaults of its fields.
func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" || c.OpenLog == nil {
		return c, errors.New("the config of a plane lacks Dir or OpenLog; both are required")
	}
	if c.Socket != nil && c.Listener == nil {
		return c, errors.New("the config of a plane has a Socket and no Listener; a Socket needs one")
	}
	if c.Compile == nil {
		c.Compile = func(_ context.Context, source *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
			compiled, diags := compile.Bundle(source)
			return compiled, diags, nil
		}
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Authentication.ServiceAccounts.Issuers == nil {
		c.Authentication.ServiceAccounts.Issuers = []string{tokens.DefaultIssuer}
	}
	return c, nil
}
