// Package host runs authorizer plugins: programs of the operator's folder, each a process of its own that is
// asked over gRPC. Whatever a plugin does, the answer is never more than it would have allowed.
package host

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/plugins/authorizerpb"
)

// Options are the operator's: no policy has a say in them.
type Options struct {
	// Dir is the folder with the programs, SecretsDir that with the secrets. Empty: there are none.
	Dir, SecretsDir string
	// StateDir is a folder of this replica's own that outlives it, where it finds what an earlier run left behind.
	// Empty: it doesn't look.
	StateDir string
	Logger   *slog.Logger
	Metrics  prometheus.Registerer // may be nil
	// StartTimeout is how long a plugin may take until it is configured; 0 is 10 s.
	StartTimeout time.Duration
	// HealthInterval is how often a plugin is asked for its health; 0 is 2 s.
	HealthInterval time.Duration
	// MaxInFlight is how many questions a plugin has to answer at once; 0 is 128.
	MaxInFlight int
}

// Spec is what a policy says of a plugin.
type Spec struct {
	Name string
	// SHA256 are the checksums, in hexadecimal, of the programs that may run, by system: linux/amd64.
	SHA256 map[string]string
	Config []byte
	// Secrets are names of files of the operator's folder, by the name that the plugin has for them.
	Secrets       map[string]string
	Timeout       time.Duration
	CacheTTL      time.Duration
	FailurePolicy string // NoOpinion; all else is Deny
	Shadow        bool
}

// Answer is what a plugin said, or what it comes to that it didn't.
type Answer struct {
	Decision authorizerpb.Decision
	// Reason is for the caller, Detail for operators.
	Reason, Detail string
	Failed, Cached bool
}

// Host runs plugins. It is safe for concurrent use.
type Host struct{}

// New returns a host that runs nothing yet.
func New(Options) (*Host, error) { return &Host{}, nil }

// Bind returns the plugins of one policy, and starts those that don't run yet.
func (h *Host) Bind(specs []Spec) *Binding { return &Binding{} }

// Check tells whether a plugin starts here and takes its configuration.
func (h *Host) Check(ctx context.Context, spec Spec) error { return nil }

// Health tells which plugin of the policy in force cannot be asked.
func (h *Host) Health() error { return nil }

// Run returns after ctx is done and no process is left.
func (h *Host) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Binding is the plugins of one policy.
type Binding struct{}

// Authorize asks a plugin.
func (b *Binding) Authorize(ctx context.Context, name string, q *authorizerpb.AuthorizeRequest) Answer {
	return Answer{Decision: authorizerpb.Decision_DECISION_DENY, Failed: true}
}

// Use says that the policy is in force, Release that it isn't any more.
func (b *Binding) Use() {}

// Release ends the binding.
func (b *Binding) Release() {}
