package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/spf13/pflag"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/tokens"
	"stele.dev/stele/projections/objects"
)

// serviceAccountOptions are the flags about the tokens that the control plane gives out. They
// have kube-apiserver's names.
type serviceAccountOptions struct {
	signingKeyFile string
	keyFiles       []string
	issuers        []string
	jwksURI        string
	audiences      []string
	maxExpiration  time.Duration
	bootstrap      bool
}

func (o *serviceAccountOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.signingKeyFile, "service-account-signing-key-file", "", "PEM file of the private key that signs the tokens of service accounts; of several the first signs, and all verify. It is read again when it changes (default: one that is made in the data directory)")
	f.StringArrayVar(&o.keyFiles, "service-account-key-file", nil, "PEM file of further keys, public or private, whose tokens of service accounts are valid; may be repeated. It is read again when it changes")
	f.StringArrayVar(&o.issuers, "service-account-issuer", []string{tokens.DefaultIssuer}, "issuer of the tokens of service accounts; may be repeated: the first issues, and tokens of all are valid")
	f.StringVar(&o.jwksURI, "service-account-jwks-uri", "", "where others get the keys that verify the tokens of service accounts (default: this server)")
	f.StringSliceVar(&o.audiences, "api-audiences", nil, "names of this API, one of which must be among the audiences of a service account's token (default: the issuers)")
	usage.DurationVar(f, &o.maxExpiration, "service-account-max-token-expiration", 0, "for how long the token of a service account is issued at most, 1h or longer; 0 for as long as is asked for")
	f.BoolVar(&o.bootstrap, "enable-bootstrap-token-auth", false, "accept bootstrap tokens: Secrets of type bootstrap.kubernetes.io/token in the namespace kube-system")
}

// check finds what is wrong with the flags by themselves.
func (o *serviceAccountOptions) check() error {
	// As kube-apiserver has it: what renews its token after some minutes shall not be too late.
	if o.maxExpiration != 0 && (o.maxExpiration < time.Hour || o.maxExpiration > 1<<32*time.Second) {
		return fmt.Errorf("--service-account-max-token-expiration %s: want 0, or between 1h and %s", o.maxExpiration, 1<<32*time.Second)
	}
	if o.jwksURI != "" {
		if u, err := url.Parse(o.jwksURI); err != nil || u.Scheme != "https" {
			return fmt.Errorf("--service-account-jwks-uri %s: want an https URL", o.jwksURI)
		}
	}
	if err := tokens.CheckIssuers(o.issuers); err != nil {
		return fmt.Errorf("--service-account-issuer: %w", err)
	}
	return nil
}

// issuer opens the keys, of which one is made where none is named, and makes what issues and
// verifies tokens. The address is that of the API.
func (o *serviceAccountOptions) issuer(dir *dataDir, address string, state func() *objects.State, logger *slog.Logger) (*tokens.Keys, *tokens.ServiceAccounts, error) {
	file := o.signingKeyFile
	if file == "" {
		file = dir.path("pki", "sa.key")
		if err := tokens.MakeKey(file); err != nil {
			return nil, nil, err
		}
	}
	keys, err := tokens.OpenKeys(file, o.keyFiles)
	if err != nil {
		return nil, nil, err
	}
	accounts, err := tokens.New(tokens.Options{
		Keys: keys, Issuers: o.issuers, Audiences: o.audiences, MaxExpiration: o.maxExpiration, Objects: state,
		JWKSURI: cmp.Or(o.jwksURI, "https://"+address+tokens.KeySetPath),
	})
	if err != nil {
		return nil, nil, err
	}
	if err := accounts.Discoverable(); err != nil {
		logger.Warn("the issuer of service accounts' tokens is not published", "error", err)
	}
	return keys, accounts, nil
}
