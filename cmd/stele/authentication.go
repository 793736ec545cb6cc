package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/apis/apiserver"
	cliflag "k8s.io/component-base/cli/flag"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/core/run/plane"
)

// authenticationOptions are the flags about authentication. They have the names and meanings of kube-apiserver's.
type authenticationOptions struct {
	plane.Authentication
	anonymous bool
	oidc      authn.OIDC
	flags     *pflag.FlagSet
}

func (o *authenticationOptions) addFlags(f *pflag.FlagSet) {
	o.flags = f
	f.StringVar(&o.ClientCAFile, "client-ca-file", "", "PEM file of more certificate authorities for client certificates, besides the one in the data directory; reloaded when it changes")
	f.StringVar(&o.RevokedCertificates, "revoked-certificates", "", "file of client certificates that are refused, one a line: a SHA-256 fingerprint, or serial=NUMBER in hexadecimal; reloaded when it changes")
	f.StringVar(&o.TokenFile, "token-auth-file", "", "CSV file of static tokens: token,user,uid,\"group,group\"; reloaded when it changes")
	f.StringVar(&o.Configuration, "authentication-config", "", "file with kube-apiserver's AuthenticationConfiguration: issuers of JWTs, and paths for anonymous requests; reloaded when it changes")
	f.BoolVar(&o.anonymous, "anonymous-auth", false, "accept requests without credentials, as the user system:anonymous (default: only for /healthz, /livez, /readyz and /version)")
	f.StringVar(&o.Webhook.File, "authentication-token-webhook-config-file", "", "kubeconfig of a webhook that authenticates bearer tokens by TokenReviews; reloaded when the file or its certificates change")
	f.StringVar(&o.Webhook.Version, "authentication-token-webhook-version", "v1", "version of the TokenReviews that this webhook gets: v1 or v1beta1")
	usage.DurationVar(f, &o.Webhook.CacheTTL, "authentication-token-webhook-cache-ttl", 2*time.Minute, "how long an accepted token is cached")
	addServiceAccountFlags(f, &o.ServiceAccounts)
	f.BoolVar(&o.BootstrapTokens, "enable-bootstrap-token-auth", false, "accept bootstrap tokens: Secrets of type bootstrap.kubernetes.io/token in the namespace kube-system")
	addFrontProxyFlags(f, &o.FrontProxy)
	addOIDCFlags(f, &o.oidc)
}

func addServiceAccountFlags(f *pflag.FlagSet, o *plane.ServiceAccounts) {
	f.StringVar(&o.SigningKeyFile, "service-account-signing-key-file", "", "PEM file of the private key that signs service account tokens; if it has several keys, the first signs and all verify; reloaded when it changes (default: a key in the data directory)")
	f.StringArrayVar(&o.KeyFiles, "service-account-key-file", nil, "PEM file of more keys, public or private, that verify service account tokens; may be repeated; reloaded when it changes")
	f.StringArrayVar(&o.Issuers, "service-account-issuer", []string{tokens.DefaultIssuer}, "issuer of service account tokens; may be repeated: new tokens have the first, and tokens of all are valid")
	f.StringVar(&o.JWKSURI, "service-account-jwks-uri", "", "URL of the keys that verify service account tokens, for other programs (default: that of this server)")
	f.StringSliceVar(&o.Audiences, "api-audiences", nil, "audiences of this API; a service account token must have one of them (default: the issuers)")
	usage.DurationVar(f, &o.MaxExpiration, "service-account-max-token-expiration", 0, "longest life of a service account token, 1h or longer; 0 for no limit")
}

func addFrontProxyFlags(f *pflag.FlagSet, o *authn.FrontProxyOptions) {
	f.StringVar(&o.ClientCAFile, "requestheader-client-ca-file", "", "PEM file of the certificate authorities of front proxies, which name the user in headers; reloaded when it changes")
	f.StringSliceVar(&o.AllowedNames, "requestheader-allowed-names", nil, "common names of the certificates of front proxies (default: all certificates of these authorities)")
	f.StringSliceVar(&o.UsernameHeaders, "requestheader-username-headers", nil, "headers with the user name, such as X-Remote-User; the first one with a value counts")
	f.StringSliceVar(&o.UIDHeaders, "requestheader-uid-headers", nil, "headers with the user's uid, such as X-Remote-Uid")
	f.StringSliceVar(&o.GroupHeaders, "requestheader-group-headers", nil, "headers with the user's groups, such as X-Remote-Group")
	f.StringSliceVar(&o.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", nil, "prefixes of headers with extra attributes of the user, such as X-Remote-Extra-")
}

func addOIDCFlags(f *pflag.FlagSet, o *authn.OIDC) {
	f.StringVar(&o.IssuerURL, "oidc-issuer-url", "", "https URL of an OpenID Connect issuer whose tokens are accepted; for several issuers, and rules about claims, use --authentication-config")
	f.StringVar(&o.ClientID, "oidc-client-id", "", "client ID that must be an audience of the tokens; required with --oidc-issuer-url")
	f.StringVar(&o.CAFile, "oidc-ca-file", "", "PEM file of the certificate authorities of the issuer's server; reloaded when it changes (default: those of the system)")
	f.StringVar(&o.UsernameClaim, "oidc-username-claim", "sub", "claim with the user name; claims other than sub may not be unique, and may change")
	f.StringVar(&o.UsernamePrefix, "oidc-username-prefix", "", "prefix of user names, '-' for none (default: the issuer's URL and #, except for the claim email)")
	f.StringVar(&o.GroupsClaim, "oidc-groups-claim", "", "claim with the user's groups: a string, or a list of strings")
	f.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", "", "prefix of groups")
	f.StringSliceVar(&o.SigningAlgs, "oidc-signing-algs", []string{"RS256"}, "accepted signing algorithms of tokens: RS256, RS384, RS512, ES256, ES384, ES512, PS256, PS384, PS512")
	f.Var(cliflag.NewMapStringStringNoSplit(&o.RequiredClaims), "oidc-required-claim", "claim=value that tokens must have; may be repeated")
}

// check returns an error for wrong flags, and sets the fields that depend on which flags are given.
func (o *authenticationOptions) check() error {
	if o.flags.Changed("anonymous-auth") {
		o.Anonymous = &apiserver.AnonymousAuthConfig{Enabled: o.anonymous}
	}
	if o.oidc.IssuerURL != "" {
		o.OIDC = &o.oidc
	}
	return errors.Join(checkServiceAccounts(&o.ServiceAccounts), checkTokenWebhook(&o.Webhook), o.checkOIDC())
}

func checkServiceAccounts(o *plane.ServiceAccounts) error {
	// These are the bounds of kube-apiserver. A shorter token could expire before the client renews it.
	if o.MaxExpiration != 0 && (o.MaxExpiration < time.Hour || o.MaxExpiration > 1<<32*time.Second) {
		return fmt.Errorf("--service-account-max-token-expiration %s: want 0, or between 1h and %s", o.MaxExpiration, 1<<32*time.Second)
	}
	if o.JWKSURI != "" {
		if u, err := url.Parse(o.JWKSURI); err != nil || u.Scheme != "https" {
			return fmt.Errorf("--service-account-jwks-uri %s: want an https URL", o.JWKSURI)
		}
	}
	if err := tokens.CheckIssuers(o.Issuers); err != nil {
		return fmt.Errorf("--service-account-issuer: %w", err)
	}
	return nil
}

func checkTokenWebhook(o *authn.WebhookOptions) error {
	if o.CacheTTL < 0 {
		return fmt.Errorf("--authentication-token-webhook-cache-ttl %s: want a duration that is not negative", o.CacheTTL)
	}
	if o.Version != "v1" && o.Version != "v1beta1" {
		return fmt.Errorf("--authentication-token-webhook-version %q: want v1 or v1beta1", o.Version)
	}
	return nil
}

// checkOIDC returns an error if the --oidc-* flags are incomplete or contradict --authentication-config.
func (o *authenticationOptions) checkOIDC() error {
	given := false
	o.flags.VisitAll(func(f *pflag.Flag) { given = given || f.Changed && strings.HasPrefix(f.Name, "oidc-") })
	switch {
	case !given:
	case o.Configuration != "":
		return errors.New("--authentication-config and --oidc-* flags cannot be given together")
	case o.oidc.IssuerURL == "" || o.oidc.ClientID == "":
		return errors.New("--oidc-* flags need both --oidc-issuer-url and --oidc-client-id")
	}
	return nil
}
