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
	"stele.dev/stele/core/authn"
	"stele.dev/stele/core/plane"
	"stele.dev/stele/core/tokens"
)

// authenticationOptions are the flags about authentication. They have kube-apiserver's names and
// meanings.
type authenticationOptions struct {
	plane.Authentication
	anonymous bool
	oidc      authn.OIDC
	flags     *pflag.FlagSet
}

func (o *authenticationOptions) addFlags(f *pflag.FlagSet) {
	o.flags = f
	f.StringVar(&o.ClientCAFile, "client-ca-file", "", "PEM file of further authorities whose client certificates are accepted, beside the one in the data directory; read again when it changes")
	f.StringVar(&o.TokenFile, "token-auth-file", "", "CSV file of static tokens: token,user,uid,\"group,group\"; read again when it changes")
	f.StringVar(&o.Configuration, "authentication-config", "", "file with kube-apiserver's AuthenticationConfiguration: issuers of JWTs, and what is open to nobody in particular; read again when it changes")
	f.BoolVar(&o.anonymous, "anonymous-auth", false, "whether requests without credentials are those of system:anonymous; if it is not said, /healthz, /livez, /readyz and /version are")
	f.StringVar(&o.Webhook.File, "authentication-token-webhook-config-file", "", "kubeconfig of a server that is asked by TokenReview whose bearer tokens are; read again when it changes, or its certificates do")
	f.StringVar(&o.Webhook.Version, "authentication-token-webhook-version", "v1", "version of TokenReview that it is asked by: v1 or v1beta1")
	usage.DurationVar(f, &o.Webhook.CacheTTL, "authentication-token-webhook-cache-ttl", 2*time.Minute, "how long its answer that a token is valid is used again")
	addServiceAccountFlags(f, &o.ServiceAccounts)
	f.BoolVar(&o.BootstrapTokens, "enable-bootstrap-token-auth", false, "accept bootstrap tokens: Secrets of type bootstrap.kubernetes.io/token in the namespace kube-system")
	addFrontProxyFlags(f, &o.FrontProxy)
	addOIDCFlags(f, &o.oidc)
}

func addServiceAccountFlags(f *pflag.FlagSet, o *plane.ServiceAccounts) {
	f.StringVar(&o.SigningKeyFile, "service-account-signing-key-file", "", "PEM file of the private key that signs the tokens of service accounts; of several the first signs, and all verify. It is read again when it changes (default: one that is made in the data directory)")
	f.StringArrayVar(&o.KeyFiles, "service-account-key-file", nil, "PEM file of further keys, public or private, whose tokens of service accounts are valid; may be repeated. It is read again when it changes")
	f.StringArrayVar(&o.Issuers, "service-account-issuer", []string{tokens.DefaultIssuer}, "issuer of the tokens of service accounts; may be repeated: the first issues, and tokens of all are valid")
	f.StringVar(&o.JWKSURI, "service-account-jwks-uri", "", "where others get the keys that verify the tokens of service accounts (default: this server)")
	f.StringSliceVar(&o.Audiences, "api-audiences", nil, "names of this API, one of which must be among the audiences of a service account's token (default: the issuers)")
	usage.DurationVar(f, &o.MaxExpiration, "service-account-max-token-expiration", 0, "for how long the token of a service account is issued at most, 1h or longer; 0 for as long as is asked for")
}

func addFrontProxyFlags(f *pflag.FlagSet, o *authn.FrontProxyOptions) {
	f.StringVar(&o.ClientCAFile, "requestheader-client-ca-file", "", "PEM file of the authorities of front proxies, which may say in headers who asks; read again when it changes")
	f.StringSliceVar(&o.AllowedNames, "requestheader-allowed-names", nil, "common names that a front proxy's certificate may have; none for all that these authorities have signed")
	f.StringSliceVar(&o.UsernameHeaders, "requestheader-username-headers", nil, "headers in which a front proxy names the user, as X-Remote-User; the first that has a value counts")
	f.StringSliceVar(&o.UIDHeaders, "requestheader-uid-headers", nil, "headers in which a front proxy says the user's uid, as X-Remote-Uid")
	f.StringSliceVar(&o.GroupHeaders, "requestheader-group-headers", nil, "headers in which a front proxy names the user's groups, as X-Remote-Group")
	f.StringSliceVar(&o.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", nil, "beginnings of headers in which a front proxy says more of the user, as X-Remote-Extra-")
}

func addOIDCFlags(f *pflag.FlagSet, o *authn.OIDC) {
	f.StringVar(&o.IssuerURL, "oidc-issuer-url", "", "https URL of an issuer of JWTs by OpenID Connect, whose tokens are valid; for several, and rules about claims, there is --authentication-config")
	f.StringVar(&o.ClientID, "oidc-client-id", "", "client ID that a token of this issuer has to be for; needed beside --oidc-issuer-url")
	f.StringVar(&o.CAFile, "oidc-ca-file", "", "PEM file of the authorities of this issuer's own certificate; read again when it changes (default: those of the system)")
	f.StringVar(&o.UsernameClaim, "oidc-username-claim", "sub", "claim that names the user; others than sub need not be unique or stay the same")
	f.StringVar(&o.UsernamePrefix, "oidc-username-prefix", "", "what is put before usernames, '-' for nothing (default: the issuer's URL and #, but for the claim email)")
	f.StringVar(&o.GroupsClaim, "oidc-groups-claim", "", "claim that names the user's groups: a string, or a list of them")
	f.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", "", "what is put before groups")
	f.StringSliceVar(&o.SigningAlgs, "oidc-signing-algs", []string{"RS256"}, "algorithms with which tokens of this issuer may be signed: RS256, RS384, RS512, ES256, ES384, ES512, PS256, PS384, PS512")
	f.Var(cliflag.NewMapStringStringNoSplit(&o.RequiredClaims), "oidc-required-claim", "claim=value that a token of this issuer has to have; may be repeated")
}

// check returns what is wrong with the flags, and sets the fields that depend on which flags are
// given.
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
	// The same bounds as in kube-apiserver: a client that renews its token every few minutes must not be too late.
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

// checkOIDC returns what is wrong with the combination of OIDC flags. A configuration file excludes them all.
func (o *authenticationOptions) checkOIDC() error {
	given := false
	o.flags.Visit(func(f *pflag.Flag) { given = given || strings.HasPrefix(f.Name, "oidc-") })
	switch {
	case !given:
	case o.Configuration != "":
		return errors.New("--authentication-config and --oidc-* flags exclude each other")
	case o.oidc.IssuerURL == "" || o.oidc.ClientID == "":
		return errors.New("--oidc-issuer-url and --oidc-client-id: both are needed where any --oidc-* flag is given")
	}
	return nil
}
