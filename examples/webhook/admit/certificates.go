package admit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// ensureCertificates makes an authority and a certificate for a name, unless the folder exists.
func ensureCertificates(dir, name string) error {
	if _, err := os.Stat(filepath.Join(dir, "tls.crt")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := write(dir, "tls.key", "PRIVATE KEY", der); err != nil {
		return err
	}
	if der, err = x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey); err != nil {
		return err
	}
	if err := write(dir, "ca.crt", "CERTIFICATE", der); err != nil {
		return err
	}
	if der, err = x509.CreateCertificate(rand.Reader, server, authority, &key.PublicKey, authorityKey); err != nil {
		return err
	}
	return write(dir, "tls.crt", "CERTIFICATE", der)
}

func write(dir, file, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
