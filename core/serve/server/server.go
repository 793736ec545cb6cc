// Package server serves a handler over TLS with HTTP/1.1 and HTTP/2.
package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	cliflag "k8s.io/component-base/cli/flag"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/limits/connections"
)

// New returns a server. certificate returns the server's certificate for each handshake. clientCAs, which may be nil,
// returns the authorities of which clients are told to send a certificate. The pipeline verifies client certificates
// per request, so that a bad one gets an answer. guard limits connections and what they may do; without one the default
// limits hold of which a server knows by itself.
func New(handler http.Handler, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), clientCAs func() []*x509.Certificate, guard *connections.Guard, logger *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	config := &tls.Config{
		GetCertificate: certificate,
		MinVersion:     tls.VersionTLS12,
		CipherSuites:   secureSuites,
		ClientAuth:     tls.RequestClientCert,
		NextProtos:     []string{"h2", "http/1.1"},
	}
	if clientCAs != nil {
		config.GetConfigForClient = acceptable(config, clientCAs)
	}
	s := &http.Server{
		Handler:   handler,
		TLSConfig: config,
		Protocols: protocols,
		HTTP2: &http.HTTP2Config{
			// These pings close connections of dead clients, which would keep their watches.
			SendPingTimeout:  30 * time.Second,
			PingTimeout:      15 * time.Second,
			WriteByteTimeout: 60 * time.Second,
		},
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return authn.WithConnection(ctx) },
		ErrorLog:    slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	if guard == nil {
		connections.Limits{}.WithDefaults(0).Configure(s)
	} else {
		guard.Attach(s)
	}
	return s
}

// secureSuites are those of TLS 1.2 that encrypt and authenticate at once, and keep former connections secret. Those of TLS 1.3
// all do.
var secureSuites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// TLS says which versions and cipher suites a server accepts. Its fields are those of [tls.Config]; the defaults are TLS 1.2 and the
// suites with authenticated encryption.
type TLS struct {
	MinVersion   uint16
	CipherSuites []uint16
}

// ParseTLS parses the values of the flags --tls-min-version and --tls-cipher-suites, as kube-apiserver does. It refuses versions
// below TLS 1.2.
func ParseTLS(version string, suites []string) (t TLS, err error) {
	if t.MinVersion, err = cliflag.TLSVersion(version); err != nil {
		return t, fmt.Errorf("--tls-min-version: %w", err)
	}
	if version != "" && t.MinVersion < tls.VersionTLS12 {
		return t, fmt.Errorf("--tls-min-version %s: versions below TLS 1.2 are not safe and not served; use VersionTLS12 or VersionTLS13", version)
	}
	if t.CipherSuites, err = cliflag.TLSCipherSuites(suites); err != nil {
		return t, fmt.Errorf("--tls-cipher-suites: %w", err)
	}
	usable := func(id uint16) bool { // HTTP/2 needs one of them
		return id == tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 || id == tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
	}
	if len(t.CipherSuites) > 0 && t.MinVersion < tls.VersionTLS13 && !slices.ContainsFunc(t.CipherSuites, usable) {
		return t, errors.New("--tls-cipher-suites: HTTP/2 needs TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 among them")
	}
	return t, nil
}

// Configure sets what a server of [New] accepts. It must be called before the server serves.
func (t TLS) Configure(s *http.Server) {
	s.TLSConfig.MinVersion = max(s.TLSConfig.MinVersion, t.MinVersion)
	if len(t.CipherSuites) > 0 {
		s.TLSConfig.CipherSuites = t.CipherSuites
	}
}

// acceptable gives each handshake a configuration with the current authorities.
func acceptable(base *tls.Config, authorities func() []*x509.Certificate) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	type made struct {
		of     []*x509.Certificate
		config *tls.Config
	}
	var last atomic.Pointer[made]
	return func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := authorities()
		m := last.Load()
		if m == nil || !slices.Equal(m.of, now) {
			m = &made{of: now, config: base.Clone()}
			m.config.ClientCAs = x509.NewCertPool()
			for _, c := range now {
				m.config.ClientCAs.AddCert(c)
			}
			last.Store(m)
		}
		return m.config, nil
	}
}
