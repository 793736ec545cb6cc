package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/pki"
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
