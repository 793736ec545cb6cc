package authn_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"
)

// messages are what a logger was told, by any goroutine.
type messages struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newMessages() *messages { return &messages{} }

func (m *messages) logger() *slog.Logger { return slog.New(slog.NewTextHandler(m, nil)) }

func (m *messages) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.Write(b)
}

func (m *messages) count(part string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Count(m.text.String(), part)
}

// signer is a certificate authority that signs anything.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newSigner(t testing.TB, name string) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{key: key}
	s.cert = sign(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, key)
	s.pem = pemOf(s.cert.Raw)
	return s
}

// below is an authority that this one has signed.
func (s *signer) below(t testing.TB, name string, change ...func(*x509.Certificate)) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	for _, c := range change {
		c(template)
	}
	cert := sign(t, s, template, key)
	return &signer{cert, key, pemOf(cert.Raw)}
}

// renewed is the same authority with another certificate.
func (s *signer) renewed(t testing.TB) *signer {
	t.Helper()
	cert := sign(t, nil, &x509.Certificate{
		Subject: s.cert.Subject, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
	}, s.key)
	return &signer{cert, s.key, pemOf(cert.Raw)}
}

// issue makes a certificate for clients that lasts an hour, but for what change says.
func (s *signer) issue(t testing.TB, name string, change func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if change != nil {
		change(template)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, s, template, key)
}

func sign(t testing.TB, by *signer, template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(1)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signs := template, key
	if by != nil {
		parent, signs = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signs)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func pemOf(certificate []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}
