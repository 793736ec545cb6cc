// Package server speaks TLS and HTTP, in versions 1.1 and 2, for a handler.
package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"time"

	"stele.dev/stele/core/authn"
)

// New makes a server with the certificate that is had for each handshake. clientCA, which
// may be nil, is what clients are told to have certificates of; those are verified per
// request, so that a bad one gets an answer.
func New(handler http.Handler, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), clientCA *x509.CertPool, logger *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler: handler,
		TLSConfig: &tls.Config{
			GetCertificate: certificate,
			MinVersion:     tls.VersionTLS12,
			ClientAuth:     tls.RequestClientCert,
			ClientCAs:      clientCA,
		},
		Protocols: protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250,
			// A body may be 3 MiB; windows this large take it without waiting.
			MaxReceiveBufferPerStream:     256 << 10,
			MaxReceiveBufferPerConnection: 1 << 20,
			// Clients that have gone without a word hold watches.
			SendPingTimeout:  30 * time.Second,
			PingTimeout:      15 * time.Second,
			WriteByteTimeout: 60 * time.Second,
		},
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    1 << 20,
		ConnContext:       func(ctx context.Context, _ net.Conn) context.Context { return authn.WithConnection(ctx) },
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
