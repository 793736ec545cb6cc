package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"stele.dev/stele/core/authn"
	"stele.dev/stele/core/pki"
)

// authenticationOptions are the flags about who is asking. They have kube-apiserver's names.
type authenticationOptions struct {
	clientCAFile  string
	tokenFile     string
	configuration string
	anonymous     bool
	flags         *pflag.FlagSet
}

func (o *authenticationOptions) addFlags(f *pflag.FlagSet) {
	o.flags = f
	f.StringVar(&o.clientCAFile, "client-ca-file", "", "PEM file of further authorities whose client certificates are accepted, beside the one in the data directory; read again when it changes")
	f.StringVar(&o.tokenFile, "token-auth-file", "", "CSV file of static tokens: token,user,uid,\"group,group\"; read again when it changes")
	f.StringVar(&o.configuration, "authentication-config", "", "file with kube-apiserver's AuthenticationConfiguration: issuers of JWTs, and what is open to nobody in particular; read again when it changes")
	f.BoolVar(&o.anonymous, "anonymous-auth", false, "whether requests without credentials are those of system:anonymous; if it is not said, /healthz, /livez, /readyz and /version are")
}

// authorities are those of client certificates: the control plane's own, and who is named.
func (o *authenticationOptions) authorities(ca *pki.Authority) (*authn.Authorities, error) {
	authorities, err := authn.NewAuthorities(o.clientCAFile, ca.Cert)
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	return authorities, nil
}

// options are for [authn.New].
func (o *authenticationOptions) options(authorities *authn.Authorities, logger *slog.Logger) authn.Options {
	options := authn.Options{Authorities: authorities, TokenFile: o.tokenFile, Configuration: o.configuration, Logger: logger}
	if o.flags.Changed("anonymous-auth") {
		options.Anonymous = &apiserver.AnonymousAuthConfig{Enabled: o.anonymous}
	}
	return options
}
