package aggregation

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"stele.dev/stele/policy"
)

const (
	// maxHeader bounds the header of an answer.
	maxHeader = 256 << 10
	// idleConnections is how many connections without requests are kept for a server, for idleTime.
	idleConnections = 32
	idleTime        = 90 * time.Second
	// pingAfter is how long a connection of HTTP/2 may be silent before the server must answer a ping within pingTime.
	pingAfter = 30 * time.Second
	pingTime  = 15 * time.Second
)

// transports are the connections to one server. They follow no redirects, use no proxy of the environment, and connect to no
// address that the policy does not allow, whatever the name of the server resolves to.
type transports struct {
	// requests speaks HTTP/2 if the server does. upgrades speaks HTTP/1.1, which alone can be upgraded.
	requests, upgrades *http.Transport
}

// newTransports makes the connections to a server. certificate returns the client certificate of this one.
func newTransports(a *policy.Aggregate, certificate func() (*tls.Certificate, error)) (*transports, error) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: a.ServerName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if certificate == nil {
				return &tls.Certificate{}, nil
			}
			return certificate()
		},
	}
	if a.CABundle != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(a.CABundle)) {
			return nil, errors.New("its caBundle has no certificate")
		}
	}
	dialer := &net.Dialer{Timeout: a.ConnectTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if why := policy.WrongAggregateAddress(at.Addr(), a.Private); why != "" {
			return errors.New(why)
		}
		return nil
	}}
	made := func(config *tls.Config) *http.Transport {
		return &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: config, TLSHandshakeTimeout: a.ConnectTimeout, ResponseHeaderTimeout: a.AnswerTimeout,
			MaxResponseHeaderBytes: maxHeader, MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleTime, DisableCompression: true,
			HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTime},
		}
	}
	t := &transports{requests: made(config), upgrades: made(config.Clone())}
	t.requests.ForceAttemptHTTP2 = true
	t.upgrades.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{} // no HTTP/2
	return t, nil
}

// close closes the connections that have no requests.
func (t *transports) close() {
	for _, x := range []*http.Transport{t.requests, t.upgrades} {
		if x != nil {
			x.CloseIdleConnections()
		}
	}
}

// addressOf parses the URL of a server.
func addressOf(a *policy.Aggregate) (*url.URL, error) {
	u, err := url.Parse(a.URL)
	if err != nil {
		return nil, fmt.Errorf("its url cannot be read: %w", err)
	}
	return u, nil
}
