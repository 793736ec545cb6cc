package tokens_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/run/plane/planetest"
)

// BenchmarkAuthenticate compares what it takes to find out who asks. The difference between a
// service account's token and a certificate is to be below 10 µs.
func BenchmarkAuthenticate(b *testing.B) {
	p := planetest.NewPlane(b)
	p.Account(b, "robot")
	p.Must(b, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"bound"}}`)
	dir := b.TempDir()
	ca, err := pki.LoadAuthority(dir)
	if err != nil {
		b.Fatal(err)
	}
	pair, err := ca.Client(dir, "alice", "alice", []string{"devs"})
	if err != nil {
		b.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		b.Fatal(err)
	}
	authorities, err := authn.NewAuthorities("", ca.Cert)
	if err != nil {
		b.Fatal(err)
	}
	authenticator, err := authn.New(authn.Options{Authorities: authorities, ServiceAccounts: p.Accounts, Audiences: p.Accounts.Audiences()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(authenticator.Close)
	run := func(b *testing.B, q *http.Request, token string) {
		b.ReportAllocs()
		for b.Loop() {
			if token != "" {
				q.Header.Set("Authorization", token)
			}
			if _, err := authenticator.Authenticate(q); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("certificate", func(b *testing.B) {
		q := httptest.NewRequest("GET", planetest.WidgetsPath, nil)
		q.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate.Leaf}}
		run(b, q.WithContext(authn.WithConnection(q.Context())), "")
	})
	for name, spec := range map[string]string{"token": "", "token bound to a Secret": `"boundObjectRef":{"kind":"Secret","apiVersion":"v1","name":"bound"}`} {
		b.Run(name, func(b *testing.B) {
			run(b, httptest.NewRequest("GET", planetest.WidgetsPath, nil), "Bearer "+p.Token(b, "robot", spec))
		})
	}
}
