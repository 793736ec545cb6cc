package main

import (
	"fmt"

	"github.com/spf13/pflag"
	"stele.dev/stele/core/authn"
	"stele.dev/stele/core/pki"
)

// authenticationOptions are the flags about who is asking. They have kube-apiserver's names.
type authenticationOptions struct {
	clientCAFile string
	tokenFile    string
}

func (o *authenticationOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.clientCAFile, "client-ca-file", "", "PEM file of further authorities whose client certificates are accepted, beside the one in the data directory")
	f.StringVar(&o.tokenFile, "token-auth-file", "", "CSV file of static tokens: token,user,uid,\"group,group\"")
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
func (o *authenticationOptions) options(authorities *authn.Authorities) authn.Options {
	return authn.Options{Authorities: authorities, TokenFile: o.tokenFile}
}
