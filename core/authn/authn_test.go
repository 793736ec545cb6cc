package authn_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/authn"
	"stele.dev/stele/core/pki"
)

// client makes an authority and a certificate of it.
func client(t *testing.T) (*pki.Authority, *x509.Certificate) {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.LoadAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Client(dir, "alice", "alice", []string{"devs"})
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return ca, parsed.Leaf
}

func accepting(t *testing.T, ca *pki.Authority) authn.Options {
	t.Helper()
	authorities, err := authn.NewAuthorities("", ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	return authn.Options{Authorities: authorities}
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

func TestACertificateIsItsUser(t *testing.T) {
	ca, certificate := client(t)
	a, err := authn.New(accepting(t, ca))
	if err != nil {
		t.Fatal(err)
	}
	q := request(certificate)
	for range 2 { // the second time from the connection's memory
		u, err := a.Authenticate(q)
		if err != nil {
			t.Fatal(err)
		}
		if u.GetName() != "alice" || !slices.Equal(u.GetGroups(), []string{"devs", "system:authenticated"}) {
			t.Errorf("got %v of %v", u.GetName(), u.GetGroups())
		}
	}
}

func TestACertificateOfAnotherAuthorityIsRefused(t *testing.T) {
	ca, _ := client(t)
	_, foreign := client(t)
	a, err := authn.New(accepting(t, ca))
	if err != nil {
		t.Fatal(err)
	}
	if u, err := a.Authenticate(request(foreign)); !errors.Is(err, authn.ErrUnauthorized) {
		t.Errorf("got %v, %v", u, err)
	}
}

// Also on a connection on which it was once valid.
func TestACertificateIsRefusedOnceItHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, certificate := client(t)
		a, err := authn.New(accepting(t, ca))
		if err != nil {
			t.Fatal(err)
		}
		q := request(certificate)
		time.Sleep(time.Until(certificate.NotAfter) - time.Second)
		if _, err := a.Authenticate(q); err != nil {
			t.Fatalf("a second before: %v", err)
		}
		time.Sleep(2 * time.Second)
		if u, err := a.Authenticate(q); !errors.Is(err, authn.ErrUnauthorized) {
			t.Errorf("a second after: %v, %v", u, err)
		}
	})
}

func TestTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte("good,bob,b1,\"devs,ops\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := authn.New(authn.Options{TokenFile: file})
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]string{"Bearer good": "bob", "bearer good": "bob", "Bearer goo": "", "Bearer ": "", "Basic Z29vZDpnb29k": "", "good": ""} {
		q := request(nil)
		q.Header.Set("Authorization", header)
		u, err := a.Authenticate(q)
		if want == "" {
			if !errors.Is(err, authn.ErrUnauthorized) {
				t.Errorf("%q: got %v, %v", header, u, err)
			}
			continue
		}
		if err != nil || u.GetName() != want || !slices.Equal(u.GetGroups(), []string{"devs", "ops", "system:authenticated"}) {
			t.Errorf("%q: got %v, %v", header, u, err)
		}
	}
	if u, err := a.Authenticate(request(nil)); !errors.Is(err, authn.ErrUnauthorized) {
		t.Errorf("without credentials: %v, %v", u, err)
	}
}
