package etcdlog_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/eventlog/etcdlog/etcdtest"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign makes a certificate; by itself if the authority has none yet.
func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) write(cert *x509.Certificate, key *ecdsa.PrivateKey, certFile, keyFile string) {
	a.t.Helper()
	writePEM(a.t, certFile, "CERTIFICATE", cert.Raw)
	if keyFile == "" {
		return
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	writePEM(a.t, keyFile, "EC PRIVATE KEY", der)
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Certificates of both sides are replaced while a log is open; connections that are made later use the new ones.
func TestCertificatesThatAreReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	server, client := newAuthority(t, "servers"), newAuthority(t, "clients")
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	serve := func(a *authority, address string) {
		cert, key := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "etcd"}, IPAddresses: []net.IP{net.ParseIP(address)}, ExtKeyUsage: usage})
		a.write(cert, key, file("server.crt"), file("server.key"))
	}
	ask := func(a *authority) {
		cert, key := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "stele"}, ExtKeyUsage: usage})
		a.write(cert, key, file("client.crt"), file("client.key"))
	}
	serve(server, "127.0.0.1")
	ask(client)
	server.write(server.cert, nil, file("servers.crt"), "")
	client.write(client.cert, nil, file("clients.crt"), "")
	// The test's own connection to the member uses the member's certificate.
	both, err := os.ReadFile(file("servers.crt"))
	if err != nil {
		t.Fatal(err)
	}
	clients, err := os.ReadFile(file("clients.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("trusted.crt"), append(both, clients...), 0o600); err != nil {
		t.Fatal(err)
	}
	c := etcdtest.Start(t, 1, etcdtest.TLS(file("server.crt"), file("server.key"), file("trusted.crt")))
	o := etcdlog.DialOptions{Endpoints: c.Endpoints(), CAFile: file("servers.crt"), CertFile: file("client.crt"), KeyFile: file("client.key")}
	w := newWriter(t, o)
	w.must()
	if _, known := w.backend.OthersTime(); !known {
		t.Error("the member's time is not known")
	}

	refused := func(name, want string) {
		t.Helper()
		if b, err := etcdlog.Dial(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", name, b, err, want)
		}
	}
	unknown := newAuthority(t, "unknown")
	ask(unknown)
	refused("a client certificate of an unknown authority", "does not accept the client certificate")
	ask(client)
	unknown.write(unknown.cert, nil, file("servers.crt"), "")
	refused("a server certificate of an unknown authority", "unknown authority")

	next := newAuthority(t, "next servers")
	serve(next, "127.0.0.1") // etcd reads it for each connection
	next.write(next.cert, nil, file("servers.crt"), "")
	c.Kill(0)
	c.Restart(0)
	eventually(t, func() error { _, err := w.append(t.Context()); return err })

	serve(next, "127.0.0.2")
	refused("a server certificate of another address", "127.0.0.1")
}
