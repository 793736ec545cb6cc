// Package pki creates the certificates of a control plane that was given none: a certificate authority, a server
// certificate, and the administrator's client certificate. They are stored in a folder, and renewed before they expire
// or when they no longer fit.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

const (
	caLife = 10 * 365 * 24 * time.Hour
	// serverLife is the life of a server's certificate, and clientLife that of a client's: who has copied it is shut out
	// after that time, also if nobody has noticed.
	serverLife = 365 * 24 * time.Hour
	clientLife = 90 * 24 * time.Hour
	// renewBefore is how long before its expiry a certificate is renewed.
	renewBefore = 30 * 24 * time.Hour
	// backdate allows for clocks that are behind.
	backdate = time.Hour
)

// commonName is the name of authorities that this package created.
const commonName = "stele-ca"

// Authority is a certificate authority.
type Authority struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// PEM is the certificate as PEM.
	PEM []byte
}

// Pair is a certificate and its private key, both as PEM.
type Pair struct{ Cert, Key []byte }

// LoadAuthority reads ca.crt and ca.key from the folder, or creates them if there is no ca.crt. ca.crt is written
// last, so a key without it has not signed anything. Only the owner can read the folder and its files.
func LoadAuthority(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(filepath.Join(dir, "ca.crt")); !errors.Is(err, fs.ErrNotExist) {
		return OpenAuthority(dir)
	}
	pair, err := issue(nil, authorityTemplate(), caLife)
	if err != nil {
		return nil, err
	}
	if err := store(dir, "ca", pair); err != nil {
		return nil, err
	}
	return OpenAuthority(dir)
}

// Lock makes the folder if it is missing, and lets one process at a time create keys in it. Where folders cannot be
// locked, it does not wait.
func Lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	_ = unix.Flock(int(folder.Fd()), unix.LOCK_EX)
	return func() { folder.Close() }, nil
}

// OpenAuthority reads ca.crt and ca.key from the folder.
func OpenAuthority(dir string) (*Authority, error) {
	pair, err := load(dir, "ca")
	if err != nil {
		return nil, err
	}
	a, err := parseAuthority(pair)
	if err != nil {
		return nil, fmt.Errorf("%s and %s are not a certificate and its key: %w; restore both from a backup", filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"), err)
	}
	if !begun(a.Cert) {
		return a, a.restart(dir)
	}
	return a, nil
}

func parseAuthority(pair Pair) (*Authority, error) {
	parsed, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the key is not an ECDSA key")
	}
	c := parsed.Leaf
	if c.Subject.CommonName == commonName || c.Issuer.CommonName == commonName { // this package created it, not an operator
		if err := c.CheckSignatureFrom(c); err != nil {
			return nil, fmt.Errorf("the certificate has been changed: %w", err)
		}
	}
	return &Authority{Cert: c, key: key, PEM: pair.Cert}, nil
}

// begun reports whether a certificate is already valid. It is not if it was created while the clock was ahead.
func begun(c *x509.Certificate) bool { return !time.Now().Before(c.NotBefore) }

// Secret returns the bytes of the authority's private key, to derive other keys from.
func (a *Authority) Secret() ([]byte, error) { return a.key.Bytes() }

// restart renews the authority's certificate, valid from now, with the same key. So certificates that it has signed
// stay valid.
func (a *Authority) restart(dir string) error {
	template := authorityTemplate()
	template.SubjectKeyId = a.Cert.SubjectKeyId
	validFor(template, caLife)
	serial, err := newSerial()
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return err
	}
	if a.Cert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return WritePrivate(filepath.Join(dir, "ca.crt"), a.PEM)
}

// Fingerprint returns the SHA-256 of the authority's public key, in hexadecimal. A renewed certificate has the same.
func (a *Authority) Fingerprint() string { return Fingerprint(a.Cert) }

// Fingerprint returns the SHA-256 of the public key of a certificate, in hexadecimal (RFC 7469 calls it a pin).
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

func authorityTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
}

// Pool returns a pool with the authority's certificate.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	return pool
}

// OwnName is a name for which each certificate of [Authority.Server] is valid. A server that was given other certificates
// serves this one to clients that ask for the name.
const OwnName = "own.stele.internal"

// Server returns server.crt and server.key of the folder, valid for these hosts and for [OwnName].
func (a *Authority) Server(dir string, hosts []string) (Pair, error) {
	hosts = append(slices.Clip(hosts), OwnName)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "stele"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return a.loadOrIssue(dir, "server", template, serverLife, func(c *x509.Certificate) bool {
		return !slices.ContainsFunc(hosts, func(h string) bool { return c.VerifyHostname(h) != nil })
	})
}

// ServerCertificate is a server certificate that is renewed before it expires, also while the server runs. It is safe
// for concurrent use.
type ServerCertificate struct {
	authority *Authority
	dir       string
	hosts     []string
	current   atomic.Pointer[tls.Certificate]
	renewing  sync.Mutex
}

// ServerCertificate returns the certificate of [Authority.Server].
func (a *Authority) ServerCertificate(dir string, hosts []string) (*ServerCertificate, error) {
	s := &ServerCertificate{authority: a, dir: dir, hosts: hosts}
	return s, s.renew()
}

func (s *ServerCertificate) renew() error {
	pair, err := s.authority.Server(s.dir, s.hosts)
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err == nil {
		s.current.Store(&certificate)
	}
	return err
}

// Renew renews the certificate if that is due. If another goroutine does that, it returns nil.
func (s *ServerCertificate) Renew() error {
	if !s.authority.Due(s.current.Load().Leaf) || !s.renewing.TryLock() {
		return nil
	}
	defer s.renewing.Unlock()
	return s.renew()
}

// Get is for [tls.Config].GetCertificate. When a renewal is due, one handshake makes it, and others use the old
// certificate, as all do if it fails.
func (s *ServerCertificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	_ = s.Renew() // the next handshake tries again
	return s.current.Load(), nil
}

// Fingerprint returns that of the certificate in use. A renewed certificate has another one.
func (s *ServerCertificate) Fingerprint() string { return Fingerprint(s.current.Load().Leaf) }

// Client returns name.crt and name.key of the folder, for a user in groups. They are valid for 90 days, and issued again when
// 30 are left.
func (a *Authority) Client(dir, name, user string, groups []string) (Pair, error) {
	return a.ClientExcept(dir, name, user, groups, func(*x509.Certificate) bool { return false })
}

// ClientExcept is [Authority.Client] for a certificate that is also issued again if it is revoked.
func (a *Authority) ClientExcept(dir, name, user string, groups []string, revoked func(*x509.Certificate) bool) (Pair, error) {
	return a.loadOrIssue(dir, name, clientTemplate(user, groups), clientLife, func(c *x509.Certificate) bool {
		return c.Subject.CommonName == user && slices.Equal(c.Subject.Organization, groups) && !revoked(c)
	})
}

// Due reports whether a certificate must be renewed: it expires within 30 days, or is not valid yet. One that is valid for as long as
// the authority is not renewed, because the next one would not be valid for longer.
func (a *Authority) Due(c *x509.Certificate) bool {
	return time.Until(c.NotAfter) <= renewBefore && c.NotAfter.Before(a.Cert.NotAfter) || !begun(c)
}

// Issue creates a client certificate for a user in groups. It does not store it.
func (a *Authority) Issue(user string, groups []string, life time.Duration) (Pair, error) {
	return issue(a, clientTemplate(user, groups), life)
}

func clientTemplate(user string, groups []string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: user, Organization: groups}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// loadOrIssue reads a pair. It issues a new one unless the pair was issued by this authority, fits, and is valid long
// enough.
func (a *Authority) loadOrIssue(dir, name string, template *x509.Certificate, life time.Duration, fits func(*x509.Certificate) bool) (Pair, error) {
	if pair, err := load(dir, name); err == nil {
		if parsed, err := tls.X509KeyPair(pair.Cert, pair.Key); err == nil && parsed.Leaf.CheckSignatureFrom(a.Cert) == nil &&
			!a.Due(parsed.Leaf) && fits(parsed.Leaf) {
			return pair, nil
		}
	}
	pair, err := issue(a, template, life)
	if err != nil {
		return Pair{}, err
	}
	return pair, store(dir, name, pair)
}

// issue signs a certificate. Without an authority, the certificate is self-signed.
func issue(a *Authority, template *x509.Certificate, life time.Duration) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return Pair{}, err
	}
	validFor(template, life)
	parent, signer := template, key
	if a != nil {
		parent, signer = a.Cert, a.key
		if template.NotAfter.After(a.Cert.NotAfter) {
			template.NotAfter = a.Cert.NotAfter
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

func validFor(template *x509.Certificate, life time.Duration) {
	now := time.Now()
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(life)
}

func load(dir, name string) (p Pair, err error) {
	if p.Cert, err = os.ReadFile(filepath.Join(dir, name+".crt")); err != nil {
		return p, err
	}
	p.Key, err = os.ReadFile(filepath.Join(dir, name+".key"))
	return p, err
}

// store writes the key first, so that there is never a certificate without its key.
func store(dir, name string, p Pair) error {
	if err := WritePrivate(filepath.Join(dir, name+".key"), p.Key); err != nil {
		return err
	}
	return WritePrivate(filepath.Join(dir, name+".crt"), p.Cert)
}

// WritePrivate replaces a file atomically. Only the owner can read it.
func WritePrivate(path string, data []byte) error {
	return renameio.WriteFile(path, data, 0o600)
}
