// Package server serves a handler over TLS with HTTP/1.1 and HTTP/2.
package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

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
		ClientAuth:     tls.RequestClientCert,
		NextProtos:     []string{"h2", "http/1.1"},
	}
	if clientCAs != nil {
		config.GetConfigForClient = acceptable(config.Clone(), clientCAs)
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
