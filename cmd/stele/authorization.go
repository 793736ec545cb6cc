package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/authz"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/policies"
	schemaprogram "stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/workers"
)

// authorizationOptions are the flags about what is asked besides the policy. They have kube-apiserver's
// names, but for those of plugins.
type authorizationOptions struct {
	policyFile string
	configFile string
	webhook    authz.Webhook
	plugins    string
	secrets    string
}

func (o *authorizationOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.policyFile, "authorization-policy-file", "", "file of what the policy calls abac: one JSON object per line, as kube-apiserver's; read again when it changes")
	f.StringVar(&o.configFile, "authorization-config", "", "AuthorizationConfiguration whose webhooks the policy may name, as webhook:NAME; the order is the policy's; read again when it changes")
	f.StringVar(&o.webhook.KubeconfigFile, "authorization-webhook-config-file", "", "kubeconfig of what the policy calls webhook, if there is no --authorization-config; when it fails it has no opinion")
	f.StringVar(&o.webhook.Version, "authorization-webhook-version", "v1beta1", "version of the SubjectAccessReviews that this webhook gets")
	usage.DurationVar(f, &o.webhook.AuthorizedTTL, "authorization-webhook-cache-authorized-ttl", 5*time.Minute, "how long an approval of this webhook is cached")
	usage.DurationVar(f, &o.webhook.UnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", 30*time.Second, "how long a refusal of this webhook is cached")
	f.StringVar(&o.plugins, "plugin-dir", "", "folder of the programs that the policy may name as plugins, by their checksums")
	f.StringVar(&o.secrets, "plugin-secrets-dir", "", "folder of the secrets that the policy may name for plugins, one file each")
}

// check finds what is wrong with the flags by themselves.
func (o *authorizationOptions) check() error {
	return errors.Join(folder("--plugin-dir", o.plugins), folder("--plugin-secrets-dir", o.secrets))
}

// folder is the error of a flag whose folder is not there: what is in it may come later.
func folder(flag, dir string) error {
	if dir == "" {
		return nil
	}
	switch info, err := os.Stat(dir); {
	case err != nil:
		return fmt.Errorf("%s: %w", flag, err)
	case !info.IsDir():
		return fmt.Errorf("%s: %s is no folder", flag, dir)
	}
	return nil
}

// new makes the authorizers, and the host of the plugins among them.
func (o *authorizationOptions) new(dir *dataDir, metrics prometheus.Registerer, logger *slog.Logger) (*authz.Authorizers, *host.Host, error) {
	if o.configFile != "" && o.webhook.KubeconfigFile != "" {
		return nil, nil, errors.New("--authorization-config and --authorization-webhook-config-file cannot be given together: the configuration names its webhooks' files")
	}
	plugins, err := host.New(host.Options{Dir: o.plugins, SecretsDir: o.secrets, StateDir: dir.path("plugins"), Logger: logger, Metrics: metrics})
	if err != nil {
		return nil, nil, fmt.Errorf("plugins: %w", err)
	}
	authorizers, err := authz.New(authz.Options{PolicyFile: o.policyFile, ConfigFile: o.configFile, Webhook: o.webhook, Plugins: plugins, CheckConfigs: checkConfigsApart, Logger: logger})
	if err == nil {
		err = metrics.Register(authorizers)
	}
	return authorizers, plugins, err
}

// loadPolicy is how a replica makes a policy of a form in the log.
func loadPolicy(evaluators *workers.Pool, authorizers *authz.Authorizers) func(*policies.Proposal) (*policy.Policy, error) {
	return func(p *policies.Proposal) (*policy.Policy, error) {
		loaded, err := policy.New(p.Form, schemaprogram.EvaluateWith(evaluators))
		if err != nil {
			return nil, err
		}
		return authorizers.Bind(loaded), nil
	}
}
