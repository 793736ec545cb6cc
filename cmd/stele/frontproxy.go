package main

import (
	"crypto/x509"
	"log/slog"
	"slices"

	"github.com/spf13/pflag"
	"stele.dev/stele/core/authn"
)

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

// acceptable are the authorities whose certificates clients are asked for: those of clients and of proxies. A client
// that has none of them may show nothing.
func acceptable(clients *authn.Authorities, proxies *authn.FrontProxy) func() []*x509.Certificate {
	if proxies == nil {
		return clients.Certificates
	}
	return func() []*x509.Certificate { return slices.Concat(clients.Certificates(), proxies.Certificates()) }
}
