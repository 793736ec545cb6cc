package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/auth/authz"
	"stele.dev/stele/core/reviewers/webhooks"
	"stele.dev/stele/plugins/host"
)

// authorizationOptions are the flags about authorizers and webhooks that a policy may name. Those about
// authorizers have kube-apiserver's names, except those of plugins.
type authorizationOptions struct {
	authz.Options
	plugins  host.Options
	webhooks webhooks.Options
}

func (o *authorizationOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.PolicyFile, "authorization-policy-file", "", "file of the authorizer abac: one JSON object per line, as in kube-apiserver; reloaded when it changes")
	f.StringVar(&o.ConfigFile, "authorization-config", "", "AuthorizationConfiguration with the webhooks that the policy may name as webhook:NAME; the policy decides their order; reloaded when it changes")
	f.StringVar(&o.Webhook.KubeconfigFile, "authorization-webhook-config-file", "", "kubeconfig of the authorizer webhook, without --authorization-config; if the webhook fails, it has no opinion")
	f.StringVar(&o.Webhook.Version, "authorization-webhook-version", "v1beta1", "version of the SubjectAccessReviews that this webhook gets")
	usage.DurationVar(f, &o.Webhook.AuthorizedTTL, "authorization-webhook-cache-authorized-ttl", 5*time.Minute, "how long an approval of this webhook is cached")
	usage.DurationVar(f, &o.Webhook.UnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", 30*time.Second, "how long a refusal of this webhook is cached")
	f.StringVar(&o.plugins.Dir, "plugin-dir", "", "folder with the programs of plugins; the policy names them by checksum")
	f.StringVar(&o.plugins.SecretsDir, "plugin-secrets-dir", "", "folder with the secrets of plugins, one file each; the policy names the files")
	f.StringVar(&o.webhooks.ServicesFile, "webhook-services", "", "file with the addresses of the services that admission webhooks of the policy name; reloaded when it changes")
	f.StringVar(&o.webhooks.SecretsDir, "webhook-secrets-dir", "", "folder with the client certificates and tokens of admission webhooks, one file each; the policy names the files")
}

// check returns an error for wrong flags.
func (o *authorizationOptions) check() error {
	var both error
	if o.ConfigFile != "" && o.Webhook.KubeconfigFile != "" {
		both = errors.New("--authorization-config and --authorization-webhook-config-file cannot be given together: the configuration names its webhooks' files")
	}
	return errors.Join(both, checkFolder("--plugin-dir", o.plugins.Dir), checkFolder("--plugin-secrets-dir", o.plugins.SecretsDir), checkFolder("--webhook-secrets-dir", o.webhooks.SecretsDir))
}

// checkFolder returns an error if the folder of a flag does not exist. Its files may be added later.
func checkFolder(flag, dir string) error {
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
