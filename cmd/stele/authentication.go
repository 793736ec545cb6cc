package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/authn"
	"stele.dev/stele/core/pki"
	"stele.dev/stele/core/tokens"
	"stele.dev/stele/projections/objects"
)

// authenticationOptions are the flags about who is asking. They have kube-apiserver's names.
type authenticationOptions struct {
	clientCAFile  string
	tokenFile     string
	configuration string
	anonymous     bool
	flags         *pflag.FlagSet

	serviceAccounts serviceAccountOptions
	webhook         tokenWebhookOptions
	frontProxy      frontProxyOptions
	oidc            oidcOptions
}

func (o *authenticationOptions) addFlags(f *pflag.FlagSet) {
	o.flags = f
	o.serviceAccounts.addFlags(f)
	o.webhook.addFlags(f)
	o.frontProxy.addFlags(f)
	o.oidc.addFlags(f)
	f.StringVar(&o.clientCAFile, "client-ca-file", "", "PEM file of further authorities whose client certificates are accepted, beside the one in the data directory; read again when it changes")
	f.StringVar(&o.tokenFile, "token-auth-file", "", "CSV file of static tokens: token,user,uid,\"group,group\"; read again when it changes")
	f.StringVar(&o.configuration, "authentication-config", "", "file with kube-apiserver's AuthenticationConfiguration: issuers of JWTs, and what is open to nobody in particular; read again when it changes")
	f.BoolVar(&o.anonymous, "anonymous-auth", false, "whether requests without credentials are those of system:anonymous; if it is not said, /healthz, /livez, /readyz and /version are")
}

// check finds what is wrong with the flags by themselves.
func (o *authenticationOptions) check() error {
	return errors.Join(o.serviceAccounts.check(), o.webhook.check(), o.oidc.check(o.configuration))
}

// authentication is all that finds out who is asking.
type authentication struct {
	*authn.Authenticator
	clients  *authn.Authorities
	proxies  *authn.FrontProxy // nil if none is believed
	accounts *tokens.ServiceAccounts
	failures *authn.FailureLog
}

// new makes it. The address is that of the API, and state that of the tip.
func (o *authenticationOptions) new(dir *dataDir, ca *pki.Authority, address string, state func() *objects.State, logger *slog.Logger) (*authentication, error) {
	a := &authentication{}
	var err error
	if a.clients, err = authn.NewAuthorities(o.clientCAFile, ca.Cert); err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	var keys *tokens.Keys
	if keys, a.accounts, err = o.serviceAccounts.issuer(dir, address, state, logger); err != nil {
		return nil, err
	}
	ways := authn.Options{
		Authorities: a.clients, TokenFile: o.tokenFile, Configuration: o.configuration, OIDC: o.oidc.issuer(), Logger: logger,
		ServiceAccounts: a.accounts, FollowKeys: keys.Follow, Audiences: a.accounts.Audiences(), Disallowed: o.serviceAccounts.issuers,
	}
	if o.flags.Changed("anonymous-auth") {
		ways.Anonymous = &apiserver.AnonymousAuthConfig{Enabled: o.anonymous}
	}
	if o.serviceAccounts.bootstrap {
		ways.BootstrapTokens = &tokens.Bootstrap{Objects: state}
	}
	if ways.Webhook, err = o.webhook.authenticator(ways.Audiences); err != nil {
		return nil, err
	}
	if a.proxies, err = o.frontProxy.frontProxy(a.clients, logger); err != nil {
		return nil, err
	}
	if a.proxies != nil {
		ways.FrontProxy = a.proxies
	}
	if a.failures, err = authn.NewFailureLog(authn.FailureOptions{File: dir.path("audit", "authentication-failures.log"), Logger: logger}); err != nil {
		return nil, err
	}
	ways.Failures, ways.Attempts = a.failures, a.failures
	a.Authenticator, err = authn.New(ways)
	return a, err
}

// acceptable are the authorities whose certificates clients are asked for: those of clients and of proxies. A client
// that has none of them may show nothing.
func (a *authentication) acceptable() []*x509.Certificate {
	if a.proxies == nil {
		return a.clients.Certificates()
	}
	return slices.Concat(a.clients.Certificates(), a.proxies.Certificates())
}

// tokenWebhookOptions are the flags about a server that is asked whose tokens are. They have kube-apiserver's names.
type tokenWebhookOptions struct {
	file, version string
	cacheTTL      time.Duration
}

func (o *tokenWebhookOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.file, "authentication-token-webhook-config-file", "", "kubeconfig of a server that is asked by TokenReview whose bearer tokens are; read again when it changes, or its certificates do")
	f.StringVar(&o.version, "authentication-token-webhook-version", "v1", "version of TokenReview that it is asked by: v1 or v1beta1")
	usage.DurationVar(f, &o.cacheTTL, "authentication-token-webhook-cache-ttl", 2*time.Minute, "how long its answer that a token is valid is used again")
}

// check finds what is wrong with the flags by themselves.
func (o *tokenWebhookOptions) check() error {
	if o.cacheTTL < 0 {
		return fmt.Errorf("--authentication-token-webhook-cache-ttl %s: want a duration that is not negative", o.cacheTTL)
	}
	if o.version != "v1" && o.version != "v1beta1" {
		return fmt.Errorf("--authentication-token-webhook-version %q: want v1 or v1beta1", o.version)
	}
	return nil
}

// authenticator is nil without an error if nobody is to be asked.
func (o *tokenWebhookOptions) authenticator(audiences authenticator.Audiences) (authenticator.Token, error) {
	if o.file == "" {
		return nil, nil
	}
	w, err := authn.NewWebhook(authn.WebhookOptions{File: o.file, Version: o.version, CacheTTL: o.cacheTTL, Audiences: audiences})
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	return w, nil
}

// frontProxyOptions are the flags about proxies that say who asks. They have kube-apiserver's names.
type frontProxyOptions struct{ authn.FrontProxyOptions }

func (o *frontProxyOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.ClientCAFile, "requestheader-client-ca-file", "", "PEM file of the authorities of front proxies, which may say in headers who asks; read again when it changes")
	f.StringSliceVar(&o.AllowedNames, "requestheader-allowed-names", nil, "common names that a front proxy's certificate may have; none for all that these authorities have signed")
	f.StringSliceVar(&o.UsernameHeaders, "requestheader-username-headers", nil, "headers in which a front proxy names the user, as X-Remote-User; the first that has a value counts")
	f.StringSliceVar(&o.UIDHeaders, "requestheader-uid-headers", nil, "headers in which a front proxy says the user's uid, as X-Remote-Uid")
	f.StringSliceVar(&o.GroupHeaders, "requestheader-group-headers", nil, "headers in which a front proxy names the user's groups, as X-Remote-Group")
	f.StringSliceVar(&o.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", nil, "beginnings of headers in which a front proxy says more of the user, as X-Remote-Extra-")
}

// frontProxy is nil without an error if no proxy is believed. Flags that come to nothing by themselves are no
// error, as in kube-apiserver, but hardly what somebody wanted.
func (o *frontProxyOptions) frontProxy(clients *authn.Authorities, logger *slog.Logger) (*authn.FrontProxy, error) {
	if o.ClientCAFile == "" {
		if len(o.AllowedNames)+len(o.UsernameHeaders)+len(o.UIDHeaders)+len(o.GroupHeaders)+len(o.ExtraHeaderPrefixes) > 0 {
			logger.Warn("no front proxy is believed: --requestheader-client-ca-file is missing beside the other flags on them")
		}
		return nil, nil
	}
	if len(o.UsernameHeaders) == 0 {
		logger.Warn("no front proxy is believed: --requestheader-username-headers does not say in which header it names the user")
	}
	o.Clients = clients
	return authn.NewFrontProxy(o.FrontProxyOptions)
}
