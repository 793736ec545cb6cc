package plane

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"slices"

	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/projections/audit/hashing"
	"stele.dev/stele/projections/objects"
)

// authenticate reads keys, certificates and all files about users.
func (p *Plane) authenticate(context.Context) (err error) {
	c := &p.config.Authentication
	unlock, err := pki.Lock(p.pki()) // replicas that share the folder may start at once
	if err != nil {
		return err
	}
	defer unlock()
	var secret []byte // of the authority: replicas with the same authority hash alike
	if p.config.Listener != nil {
		if p.authority, err = pki.LoadAuthority(p.pki()); err != nil {
			return err
		}
		if secret, err = p.authority.Secret(); err != nil {
			return err
		}
	}
	if p.hashes, err = hashing.Load(p.pki(), secret); err != nil {
		return err
	}
	if err := p.trustClients(c.ClientCAFile); err != nil {
		return err
	}
	if c.RevokedCertificates != "" {
		if p.revocations, err = authn.NewRevocations(c.RevokedCertificates, p.config.Logger); err != nil {
			return fmt.Errorf("--revoked-certificates: %w", err)
		}
	}
	if err := p.issueTokens(&c.ServiceAccounts); err != nil {
		return err
	}
	o := authn.Options{
		Authorities: p.clients, Revocations: p.revocations, TokenFile: c.TokenFile, Configuration: c.Configuration, OIDC: c.OIDC, Anonymous: c.Anonymous, Logger: p.config.Logger, ReloadEvery: c.ReloadEvery,
		ServiceAccounts: p.Accounts, FollowKeys: p.Keys.Follow, Audiences: p.Accounts.Audiences(), Disallowed: c.ServiceAccounts.Issuers,
	}
	if c.BootstrapTokens {
		o.BootstrapTokens = &tokens.Bootstrap{Objects: p.objects.State}
	}
	if c.Webhook.File != "" {
		c.Webhook.Audiences = o.Audiences
		if o.Webhook, err = authn.NewWebhook(c.Webhook); err != nil {
			return fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
		}
	}
	if err := p.trustFrontProxy(&c.FrontProxy); err != nil {
		return err
	}
	if p.frontProxy != nil {
		o.FrontProxy = p.frontProxy
	}
	p.failures = authn.NewFailureLog(authn.FailureOptions{Record: func(r *authn.FailureRecord) { p.Decisions.CountFailures(r) }, Logger: p.config.Logger})
	o.Failures, o.Attempts, o.Throttle = p.failures, p.failures, authn.NewThrottle(c.FailuresPerMinute)
	if p.Authenticator, err = authn.New(o); err != nil {
		return err
	}
	p.onClose(func() error { p.Authenticator.Close(); return nil })
	return nil
}

// trustClients reads the authorities of client certificates, if there are any.
func (p *Plane) trustClients(file string) (err error) {
	var own []*x509.Certificate
	if p.authority != nil {
		own = append(own, p.authority.Cert)
	} else if file == "" {
		return nil
	}
	if p.clients, err = authn.NewAuthorities(file, own...); err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	return nil
}

// trustFrontProxy reads the authorities of front proxies, if there are any. Options without an
// effect are not an error, as in kube-apiserver, but they are logged.
func (p *Plane) trustFrontProxy(o *authn.FrontProxyOptions) (err error) {
	if o.ClientCAFile == "" {
		if len(o.AllowedNames)+len(o.UsernameHeaders)+len(o.UIDHeaders)+len(o.GroupHeaders)+len(o.ExtraHeaderPrefixes) > 0 {
			p.config.Logger.Warn("no front proxy is believed: --requestheader-client-ca-file is missing beside the other flags on them")
		}
		return nil
	}
	if len(o.UsernameHeaders) == 0 {
		p.config.Logger.Warn("no front proxy is believed: --requestheader-username-headers does not say in which header it names the user")
	}
	o.Clients, o.Revocations = p.clients, p.revocations
	p.frontProxy, err = authn.NewFrontProxy(*o)
	return err
}

// issueTokens opens the keys that sign and verify tokens of service accounts.
func (p *Plane) issueTokens(o *ServiceAccounts) (err error) {
	if o.SigningKeyFile == "" {
		o.SigningKeyFile = p.pki("sa.key")
		if err := tokens.MakeKey(o.SigningKeyFile); err != nil {
			return err
		}
	}
	if p.Keys, err = tokens.OpenKeys(o.SigningKeyFile, o.KeyFiles); err != nil {
		return err
	}
	p.Accounts, err = tokens.New(tokens.Options{
		Keys: p.Keys, Issuers: o.Issuers, Audiences: o.Audiences, MaxExpiration: o.MaxExpiration, Objects: p.objects.State,
		Confirmed: func(ctx context.Context) (*objects.State, error) {
			tip, err := p.Committer.Confirm(ctx)
			if err != nil {
				return nil, err
			}
			return tip.Objects, nil
		},
		JWKSURI: cmp.Or(o.JWKSURI, "https://"+p.advertise+tokens.KeySetPath),
	})
	if err != nil {
		return err
	}
	if err := p.Accounts.Discoverable(); err != nil {
		p.config.Logger.Warn("the issuer of service accounts' tokens is not published", "error", err)
	}
	return nil
}

// clientAuthorities returns the authorities whose certificates clients are asked for: those of
// clients and of front proxies. Clients without such a certificate are not refused.
func (p *Plane) clientAuthorities() []*x509.Certificate {
	if p.frontProxy == nil {
		return p.clients.Certificates()
	}
	return slices.Concat(p.clients.Certificates(), p.frontProxy.Certificates())
}
