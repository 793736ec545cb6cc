package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"stele.dev/stele/core/serve/server"
)

// By default the server accepts what encrypts and authenticates at once; flags say otherwise, as those of kube-apiserver.
func TestVersionsAndCipherSuites(t *testing.T) {
	own := authority(t)
	certificate, err := own.ServerCertificate(t.TempDir(), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	const gcm, cbc = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"
	for _, tc := range []struct {
		name    string
		version string
		suites  []string
		offers  []uint16 // of a client of TLS 1.2
		want    bool
	}{
		{"the defaults take AES-GCM", "", nil, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}, true},
		{"the defaults refuse CBC", "", nil, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}, false},
		{"what the flag names is taken", "VersionTLS12", []string{gcm, cbc}, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}, true},
		{"what it does not name is refused", "", []string{gcm}, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}, false},
		{"TLS 1.2 is refused", "VersionTLS13", nil, nil, false},
	} {
		for _, authorities := range []bool{false, true} {
			t.Run(tc.name, func(t *testing.T) {
				parsed, err := server.ParseTLS(tc.version, tc.suites)
				if err != nil {
					t.Fatal(err)
				}
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				s := server.New(http.NotFoundHandler(), certificate.Get, nil, nil, slog.New(slog.DiscardHandler))
				if authorities {
					s = server.New(http.NotFoundHandler(), certificate.Get, func() []*x509.Certificate { return nil }, nil, slog.New(slog.DiscardHandler))
				}
				parsed.Configure(s)
				go s.ServeTLS(listener, "", "")
				defer s.Close()
				conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: own.Pool(), MaxVersion: tls.VersionTLS12, CipherSuites: tc.offers})
				if err == nil {
					conn.Close()
				}
				if (err == nil) != tc.want {
					t.Errorf("the handshake: %v", err)
				}
			})
		}
	}
	for _, tc := range []struct {
		version string
		suites  []string
		want    string
	}{
		{"VersionTLS9", nil, "--tls-min-version: "},
		{"VersionTLS11", nil, "--tls-min-version VersionTLS11: versions below TLS 1.2"},
		{"", []string{"NONE"}, "--tls-cipher-suites: "},
		{"", []string{cbc}, "HTTP/2 needs"},
	} {
		if _, err := server.ParseTLS(tc.version, tc.suites); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q %q: %v", tc.version, tc.suites, err)
		}
	}
}
