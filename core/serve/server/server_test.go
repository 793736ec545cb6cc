package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/serve/server"
)

func authority(t *testing.T) *pki.Authority {
	t.Helper()
	ca, err := pki.LoadAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// Clients that have several certificates choose by that, and browsers ask only then.
func TestClientsAreToldWhoseCertificatesAreAccepted(t *testing.T) {
	own, first, second := authority(t), authority(t), authority(t)
	certificate, err := own.ServerCertificate(t.TempDir(), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	var accepted atomic.Pointer[[]*x509.Certificate]
	accepted.Store(&[]*x509.Certificate{own.Cert, first.Cert})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(r.Proto)) })
	s := server.New(handler, certificate.Get, func() []*x509.Certificate { return *accepted.Load() }, nil, slog.New(slog.DiscardHandler))
	go s.ServeTLS(listener, "", "")
	defer s.Close()

	// told is what a new connection is told, and that it is one of HTTP/2.
	told := func() (subjects [][]byte) {
		t.Helper()
		dialer := tls.Dialer{Config: &tls.Config{RootCAs: own.Pool(), NextProtos: []string{"h2"}, GetClientCertificate: func(i *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			subjects = i.AcceptableCAs
			return &tls.Certificate{}, nil
		}}}
		conn, err := dialer.DialContext(context.Background(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		state := conn.(*tls.Conn).ConnectionState()
		if state.NegotiatedProtocol != "h2" {
			t.Errorf("it speaks %q", state.NegotiatedProtocol)
		}
		return subjects
	}
	for _, now := range [][]*x509.Certificate{{own.Cert, first.Cert}, {own.Cert, second.Cert, first.Cert}, {own.Cert}} {
		accepted.Store(&now)
		want := make([][]byte, len(now))
		for i, c := range now {
			want[i] = c.RawSubject
		}
		if got := told(); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("told of %d authorities, not of %d", len(got), len(want))
		}
	}
}
