package main

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"stele.dev/stele/core/authn"
)

// oidcOptions are the flags about one issuer of JWTs. They have kube-apiserver's names and meanings.
type oidcOptions struct {
	authn.OIDC
	flags *pflag.FlagSet
}

func (o *oidcOptions) addFlags(f *pflag.FlagSet) {
	o.flags = f
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

// check finds what is wrong with which flags are given. A configuration file excludes them all.
func (o *oidcOptions) check(configuration string) error {
	given := false
	o.flags.Visit(func(f *pflag.Flag) { given = given || strings.HasPrefix(f.Name, "oidc-") })
	switch {
	case !given:
	case configuration != "":
		return errors.New("--authentication-config and --oidc-* flags exclude each other")
	case o.IssuerURL == "" || o.ClientID == "":
		return errors.New("--oidc-issuer-url and --oidc-client-id: both are needed where any --oidc-* flag is given")
	}
	return nil
}

// issuer is nil if there is none.
func (o *oidcOptions) issuer() *authn.OIDC {
	if o.IssuerURL == "" {
		return nil
	}
	return &o.OIDC
}
