package authn_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/auth/authn"
)

func TestACertificateIsItsUser(t *testing.T) {
	ca, certificate := client(t)
	a := newAuthenticator(t, accepting(t, ca))
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
	a := newAuthenticator(t, accepting(t, ca))
	if u, err := a.Authenticate(request(foreign)); !errors.Is(err, authn.ErrUnauthorized) {
		t.Errorf("got %v, %v", u, err)
	}
}

// Also on a connection on which it was once valid.
func TestACertificateIsRefusedOnceItHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, certificate := client(t)
		a := newAuthenticator(t, accepting(t, ca))
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
	a := newAuthenticator(t, authn.Options{TokenFile: file(t, "good,bob,b1,\"devs,ops\"\n")})
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

// Nor does a connection on which it was once valid outlive the authority's own certificate.
func TestACertificateIsRefusedOnceItsAuthorityHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority, certificate := shortly(t, time.Hour)
		authorities, err := authn.NewAuthorities("", authority)
		if err != nil {
			t.Fatal(err)
		}
		a := newAuthenticator(t, authn.Options{Authorities: authorities})
		q := request(certificate)
		time.Sleep(59 * time.Minute)
		if got := who(a, q); got != "bob" {
			t.Fatalf("a minute before: %q", got)
		}
		time.Sleep(2 * time.Minute)
		if got := who(a, q); got != "" {
			t.Errorf("a minute after: %q", got)
		}
	})
}

// shortly is an authority for a time, and a certificate of it for bob that would last longer.
func shortly(t *testing.T, life time.Duration) (authority, certificate *x509.Certificate) {
	t.Helper()
	now := time.Now()
	made := func(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
		template.SerialNumber, template.NotBefore = big.NewInt(1), now
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{Subject: pkix.Name{CommonName: "short"}, NotAfter: now.Add(life), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	authority = made(root, root, key, key)
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "bob"}, NotAfter: now.Add(2 * life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	return authority, made(leaf, authority, key, key)
}
