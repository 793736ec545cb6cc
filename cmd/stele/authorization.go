package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/authz"
	"stele.dev/stele/plugins/host"
)

// authorizationOptions are the flags about authorizers that a policy may name. They have
// kube-apiserver's names, except those of plugins.
type authorizationOptions struct {
	authz.Options
	plugins host.Options
}

func (o *authorizationOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.PolicyFile, "authorization-policy-file", "", "file of what the policy calls abac: one JSON object per line, as kube-apiserver's; read again when it changes")
	f.StringVar(&o.ConfigFile, "authorization-config", "", "AuthorizationConfiguration whose webhooks the policy may name, as webhook:NAME; the order is the policy's; read again when it changes")
	f.StringVar(&o.Webhook.KubeconfigFile, "authorization-webhook-config-file", "", "kubeconfig of what the policy calls webhook, if there is no --authorization-config; when it fails it has no opinion")
	f.StringVar(&o.Webhook.Version, "authorization-webhook-version", "v1beta1", "version of the SubjectAccessReviews that this webhook gets")
	usage.DurationVar(f, &o.Webhook.AuthorizedTTL, "authorization-webhook-cache-authorized-ttl", 5*time.Minute, "how long an approval of this webhook is cached")
	usage.DurationVar(f, &o.Webhook.UnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", 30*time.Second, "how long a refusal of this webhook is cached")
	f.StringVar(&o.plugins.Dir, "plugin-dir", "", "folder of the programs that the policy may name as plugins, by their checksums")
	f.StringVar(&o.plugins.SecretsDir, "plugin-secrets-dir", "", "folder of the secrets that the policy may name for plugins, one file each")
}

// check returns what is wrong with the flags.
func (o *authorizationOptions) check() error {
	var both error
	if o.ConfigFile != "" && o.Webhook.KubeconfigFile != "" {
		both = errors.New("--authorization-config and --authorization-webhook-config-file cannot be given together: the configuration names its webhooks' files")
	}
	return errors.Join(both, checkFolder("--plugin-dir", o.plugins.Dir), checkFolder("--plugin-secrets-dir", o.plugins.SecretsDir))
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
