package client

import (
	"crypto/tls"
	"errors"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"stele.dev/stele/core/auth/pki"
)

// errOtherKey says that a server does not have the key that its replica says.
var errOtherKey = errors.New("the server at this address has another key than its lease says, so no credentials are sent there; if its certificate was renewed just now, try again in 10 seconds")

// pinned returns a config that verifies servers as the given one does, and besides sends nothing to a server whose public key has
// another fingerprint.
func pinned(config *rest.Config, fingerprint string) (*rest.Config, error) {
	made, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	secure, err := transport.TLSConfigFor(made)
	if err != nil {
		return nil, err
	}
	secure.VerifyConnection = func(state tls.ConnectionState) error { // also called when a session is resumed
		if pki.Fingerprint(state.PeerCertificates[0]) != fingerprint {
			return errOtherKey
		}
		return nil
	}
	base := &http.Transport{TLSClientConfig: secure, Proxy: made.Proxy, DisableCompression: made.DisableCompression}
	if made.DialHolder != nil {
		base.DialContext = made.DialHolder.Dial
	}
	wrapped, err := transport.HTTPWrappersForConfig(made, utilnet.SetTransportDefaults(base))
	if err != nil {
		return nil, err
	}
	its := rest.AnonymousClientConfig(config) // the transport adds the credentials
	its.TLSClientConfig, its.Dial, its.Proxy, its.Transport = rest.TLSClientConfig{}, nil, nil, wrapped
	return its, nil
}
