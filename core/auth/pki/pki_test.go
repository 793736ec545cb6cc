package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/auth/pki"
)

func authority(t *testing.T, dir string) *pki.Authority {
	t.Helper()
	ca, err := pki.LoadAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func leaf(t *testing.T, p pki.Pair) *x509.Certificate {
	t.Helper()
	parsed, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Leaf
}

func server(t *testing.T, dir string, hosts ...string) pki.Pair {
	t.Helper()
	p, err := authority(t, dir).Server(dir, hosts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCertificatesAreValidForWhatTheyAreFor(t *testing.T) {
	dir := t.TempDir()
	ca := authority(t, dir)
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if _, err := leaf(t, server(t, dir, "127.0.0.1", "localhost")).Verify(x509.VerifyOptions{Roots: ca.Pool(), DNSName: host}); err != nil {
			t.Error(err)
		}
	}
	p, err := ca.Client(dir, "admin", "admin", []string{"system:masters"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf(t, p).Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("a client's certificate can be a server's")
	}
	if _, err := leaf(t, p).Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
}

func TestCertificatesAreKeptAsLongAsTheyFit(t *testing.T) {
	dir := t.TempDir()
	first := server(t, dir, "localhost")
	if again := server(t, dir, "localhost"); !bytes.Equal(first.Cert, again.Cert) {
		t.Error("a certificate that fits was made again")
	}
	other := server(t, dir, "localhost", "example.com")
	if bytes.Equal(first.Cert, other.Cert) {
		t.Error("a certificate for other hosts was kept")
	}
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(other.Cert, server(t, dir, "localhost", "example.com").Cert) {
		t.Error("a certificate of another authority was kept")
	}
}

func TestCertificatesAreMadeAgainBeforeTheyExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		first := server(t, dir, "localhost")
		time.Sleep(time.Until(leaf(t, first).NotAfter) - 24*time.Hour)
		second := server(t, dir, "localhost")
		if left := time.Until(leaf(t, second).NotAfter); left < 300*24*time.Hour {
			t.Errorf("the certificate of the last day was kept: %v left", left)
		}
	})
}

// A certificate that is valid for as long as its authority is not made again for each connection.
func TestACertificateIsNotMadeAgainInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		ca := authority(t, dir)
		time.Sleep(time.Until(ca.Cert.NotAfter) - 10*24*time.Hour)
		first, err := ca.Server(dir, []string{"localhost"})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ca.Server(dir, []string{"localhost"}); err != nil || !bytes.Equal(first.Cert, again.Cert) {
			t.Errorf("it was made again: %v", err)
		}
	})
}

func TestClientsCertificatesLiveShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		ca := authority(t, dir)
		client := func(revoked ...*x509.Certificate) *x509.Certificate {
			t.Helper()
			p, err := ca.ClientExcept(dir, "admin", "admin", nil, func(c *x509.Certificate) bool {
				return slices.ContainsFunc(revoked, c.Equal)
			})
			if err != nil {
				t.Fatal(err)
			}
			return leaf(t, p)
		}
		first := client()
		if left := time.Until(first.NotAfter); left != 90*24*time.Hour {
			t.Errorf("it is valid for %v", left)
		}
		time.Sleep(60*24*time.Hour - time.Second)
		if !client().Equal(first) {
			t.Error("it was made again too early")
		}
		time.Sleep(time.Second)
		second := client()
		if second.Equal(first) {
			t.Error("it was kept in its last 30 days")
		}
		if third := client(second); third.Equal(second) || !client(second).Equal(third) {
			t.Error("a revoked one was kept, or the one after it was not")
		}
	})
}

func TestAServerThatRunsOnHasACertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, err := authority(t, dir).ServerCertificate(dir, []string{"localhost"})
		if err != nil {
			t.Fatal(err)
		}
		for range 30 { // months
			c, err := s.Get(nil)
			if err != nil || time.Until(c.Leaf.NotAfter) < 29*24*time.Hour {
				t.Fatalf("valid for %v, %v", time.Until(c.Leaf.NotAfter), err)
			}
			time.Sleep(30 * 24 * time.Hour)
		}
	})
}

// A clock that was ahead leaves certificates whose validity has not begun.
func TestCertificatesOfTheFutureAreMadeAgain(t *testing.T) {
	dir := t.TempDir()
	ahead := server(t, dir, "localhost") // made outside of the bubble, in which it is the year 2000
	key, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		now := server(t, dir, "localhost")
		if bytes.Equal(ahead.Cert, now.Cert) {
			t.Error("the server's certificate was kept")
		}
		a := authority(t, dir)
		options := x509.VerifyOptions{Roots: a.Pool(), CurrentTime: time.Now(), DNSName: "localhost"}
		if _, err := leaf(t, now).Verify(options); err != nil {
			t.Errorf("the certificate cannot be used now: %v", err)
		}
		if err := leaf(t, ahead).CheckSignatureFrom(a.Cert); err != nil {
			t.Errorf("what the authority signed before is not signed by it any more: %v", err)
		}
		if after, err := os.ReadFile(filepath.Join(dir, "ca.key")); err != nil || !bytes.Equal(key, after) {
			t.Errorf("the authority has another key, %v", err)
		}
	})
}

func TestAServerWhoseClockWasAheadHasACertificate(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, dir)
	s, err := a.ServerCertificate(dir, []string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if c, err := s.Get(nil); err != nil || time.Now().Before(c.Leaf.NotBefore) {
			t.Errorf("valid from %v, %v", c.Leaf.NotBefore, err)
		}
	})
}

func TestAnAuthorityWithoutItsKeyIsRefused(t *testing.T) {
	dir := t.TempDir()
	authority(t, dir)
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.LoadAuthority(dir); err == nil {
		t.Error("it was replaced, and with it all trust in it")
	}
}

// Whatever bit of it changes, an authority is the one that was made, or is refused.
func TestAnAuthorityThatWasChangedIsRefused(t *testing.T) {
	dir := t.TempDir()
	made := authority(t, dir)
	for _, name := range []string{"ca.crt", "ca.key"} {
		file := filepath.Join(dir, name)
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := range whole {
			changed := bytes.Clone(whole)
			changed[at] ^= 1
			if err := os.WriteFile(file, changed, 0o600); err != nil {
				t.Fatal(err)
			}
			if a, err := pki.LoadAuthority(dir); err == nil && !a.Cert.Equal(made.Cert) {
				t.Errorf("%s changed at %d is taken", name, at)
			}
		}
		for size := range whole {
			if err := os.WriteFile(file, whole[:size], 0o600); err != nil {
				t.Fatal(err)
			}
			if a, err := pki.LoadAuthority(dir); err == nil && !a.Cert.Equal(made.Cert) {
				t.Errorf("%s cut to %d bytes is taken", name, size)
			}
		}
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A first start may be killed between the two files.
func TestAKeyWithoutAnAuthorityIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	authority(t, dir)
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.OpenAuthority(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenAuthority = %v", err)
	}
	authority(t, dir)
}

func TestKeysAreForTheirOwnerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	server(t, dir, "localhost")
	for _, name := range []string{"", "ca.key", "server.key"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
}
