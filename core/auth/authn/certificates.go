package authn

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	authx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/cert"
	"stele.dev/stele/limits/reload"
)

// Authorities are certificate authorities: fixed ones, and those of a file that may change. It is safe for concurrent
// use.
type Authorities struct {
	given   []*x509.Certificate
	file    string
	content []byte // of the file, when it was first read
	current atomic.Pointer[bundle]
	// changing, if not nil, calls change to install the next certificates, or returns why they are not allowed.
	changing func(next []*x509.Certificate, change func()) error
}

// bundle is the authorities at one time. A new bundle means that they have changed.
type bundle struct {
	all    []*x509.Certificate
	verify x509.VerifyOptions
}

// NewAuthorities reads the PEM file, unless its name is empty.
func NewAuthorities(file string, given ...*x509.Certificate) (*Authorities, error) {
	a := &Authorities{given: given, file: file}
	return a, a.open()
}

func (a *Authorities) open() (err error) {
	if a.file != "" {
		if a.content, err = reload.Read(a.file); err != nil {
			return err
		}
	}
	return a.load(context.Background(), a.content)
}

func (a *Authorities) load(_ context.Context, content []byte) error {
	b := &bundle{all: a.given[:len(a.given):len(a.given)], verify: authx509.DefaultVerifyOptions()}
	if a.file != "" {
		certificates, err := cert.ParseCertsPEM(content)
		if err != nil {
			return fmt.Errorf("%s: %w", a.file, err)
		}
		b.all = append(b.all, certificates...)
	}
	b.verify.Roots = x509.NewCertPool()
	for _, c := range b.all {
		b.verify.Roots.AddCert(c)
	}
	if a.changing == nil {
		a.current.Store(b)
	} else if err := a.changing(b.all, func() { a.current.Store(b) }); err != nil {
		return fmt.Errorf("%s: %w", a.file, err)
	}
	return nil
}

// Certificates returns the current certificates of the authorities. Callers must not change them.
func (a *Authorities) Certificates() []*x509.Certificate { return a.current.Load().all }

// VerifyOptions returns the options to verify client certificates of the current authorities.
func (a *Authorities) VerifyOptions() (x509.VerifyOptions, bool) {
	return a.current.Load().verify, true
}

// Connection caches, for one TLS connection, the user of its client certificate.
type Connection struct{ verified atomic.Pointer[verified] }

type verified struct {
	user    user.Info
	by      *bundle
	revoked *revoked // the revocations that do not have it
	until   time.Time
}

type connectionKey struct{}

// WithConnection is for http.Server.ConnContext.
func WithConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, connectionKey{}, &Connection{})
}

// certificates authenticates the client certificate of a connection.
type certificates struct {
	authorities *Authorities
	revocations *Revocations
	throttle    *Throttle
	verify      authenticator.Request
}

func newCertificates(a *Authorities, r *Revocations, t *Throttle) *certificates {
	c := &certificates{authorities: a, revocations: r, throttle: t}
	c.verify = authx509.NewDynamic(a.VerifyOptions, authx509.UserConversionFunc(c.lasting))
	return c
}

// lasting returns the user of a certificate chain, and the time until which all of the chain is valid.
func (c *certificates) lasting(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
	if err := c.revocations.check(ByCertificate, chain); err != nil {
		return nil, false, err
	}
	resp, ok, err := authx509.CommonNameUserConversion(chain)
	if err != nil || !ok {
		return nil, false, err
	}
	until := chain[0].NotAfter
	for _, c := range chain[1:] {
		if c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	resp.User = &expiringUser{resp.User, until}
	return resp, true, nil
}

// user returns the user of the connection's certificate. It verifies the certificate once. After that it only checks
// that the chain has not expired, and that the authorities and the revocations are the same. It returns nil if the certificate names no user.
func (c *certificates) user(r *http.Request) (user.Info, error) {
	// These are loaded first: newer ones only cause another verification.
	now, revoked := c.authorities.current.Load(), c.revocations.now()
	conn, _ := r.Context().Value(connectionKey{}).(*Connection)
	if conn != nil {
		if v := conn.verified.Load(); v != nil && v.by == now && v.revoked == revoked && time.Now().Before(v.until) {
			return v.user, nil
		}
	}
	var u user.Info
	err := c.throttle.check(r, c.throttle.hashCertificate(r.TLS.PeerCertificates[0].Raw), func() (bool, error) {
		resp, ok, err := c.verify.AuthenticateRequest(r)
		if err != nil || !ok {
			return false, ByCertificate.rejects(err)
		}
		known := resp.User.(*expiringUser)
		if err := Bounded(known); err != nil {
			return false, ByCertificate.rejects(err)
		}
		u = authenticated(known.Info)
		if conn != nil {
			conn.verified.Store(&verified{u, now, revoked, known.until})
		}
		return true, nil
	})
	return u, err
}
