package authn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/renameio/v2"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/authn/authntest"
	"stele.dev/stele/core/auth/pki"
)

// client makes an authority and a certificate of it.
func client(t testing.TB) (*pki.Authority, *x509.Certificate) {
	t.Helper()
	ca, err := pki.LoadAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return ca, issued(t, ca, "alice", "devs")
}

// issued is a certificate for a user in groups.
func issued(t testing.TB, ca *pki.Authority, user string, groups ...string) *x509.Certificate {
	t.Helper()
	pair, err := ca.Issue(user, groups, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Leaf
}

// accepting are options with certificates of these authorities.
func accepting(t testing.TB, ca ...*pki.Authority) authn.Options {
	t.Helper()
	certificates := make([]*x509.Certificate, len(ca))
	for i := range ca {
		certificates[i] = ca[i].Cert
	}
	authorities, err := authn.NewAuthorities("", certificates...)
	if err != nil {
		t.Fatal(err)
	}
	return authn.Options{Authorities: authorities}
}

func newAuthenticator(t testing.TB, o authn.Options) *authn.Authenticator {
	t.Helper()
	a, err := authn.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// file makes one with a content.
func file(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// replace puts another content in a file's place.
func replace(t testing.TB, path, content string) {
	t.Helper()
	if err := renameio.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Error(err)
	}
}

// running runs an authenticator that looks at its files all the time.
func running(t testing.TB, o authn.Options) *authn.Authenticator {
	t.Helper()
	o.ReloadEvery = 2 * time.Millisecond
	a := newAuthenticator(t, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return a
}

// eventually waits until something holds that is bound to.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	late := time.After(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

// issuer starts one.
func issuer(t testing.TB) *authntest.Issuer {
	t.Helper()
	i := authntest.New()
	t.Cleanup(i.Close)
	return i
}

// trusting is an authenticator that can ask all its issuers.
func trusting(t testing.TB, o authn.Options, issuers ...*authntest.Issuer) *authn.Authenticator {
	t.Helper()
	if o.Configuration == "" {
		o.Configuration = file(t, authntest.Configuration(issuers...))
	}
	a := newAuthenticator(t, o)
	for _, i := range issuers {
		eventually(t, "the issuer is known", func() bool { return who(a, bearer(i.Token("probe", nil))) == "probe" })
	}
	return a
}

// request comes on a connection with a certificate.
func request(certificate *x509.Certificate) *http.Request {
	q := httptest.NewRequest("GET", "/", nil)
	q.TLS = &tls.ConnectionState{}
	if certificate != nil {
		q.TLS.PeerCertificates = []*x509.Certificate{certificate}
	}
	return q.WithContext(authn.WithConnection(q.Context()))
}

// bearer comes with a token.
func bearer(token string) *http.Request {
	q := request(nil)
	q.Header.Set("Authorization", "Bearer "+token)
	return q
}

// who sent a request: empty if they are not let in.
func who(a *authn.Authenticator, q *http.Request) string {
	u, err := a.Authenticate(q)
	if err != nil {
		return ""
	}
	return u.GetName()
}

func ofUser(u user.Info) []string { return append([]string{u.GetName()}, u.GetGroups()...) }

// metric is the sum of all values that an authenticator's metric has.
func metric(t testing.TB, a *authn.Authenticator, name string, labels ...string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(a)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.
	for _, f := range families {
		for _, m := range f.GetMetric() {
			matches := f.GetName() == name
			for _, l := range m.GetLabel() {
				matches = matches && (len(labels) == 0 || slices.Contains(labels, l.GetValue()))
			}
			if matches {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
