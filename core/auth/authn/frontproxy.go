package authn

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	authx509 "k8s.io/apiserver/pkg/authentication/request/x509"
)

// FrontProxyOptions are the options of [NewFrontProxy], named like kube-apiserver's flags --requestheader-*.
type FrontProxyOptions struct {
	// ClientCAFile is a PEM file with the certificate authorities of proxies.
	ClientCAFile string
	// AllowedNames are the allowed common names of proxy certificates; empty allows all.
	AllowedNames []string
	// These headers name the user. The first header with a value gives the user, and the UID; groups and extra fields
	// are collected from all headers.
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes []string
	// Clients are the certificate authorities of client certificates; nil if there are none. If an authority is in
	// both, AllowedNames must tell which certificates are proxies'. A reload that breaks this rule is refused.
	Clients *Authorities
	// Revocations are certificates of proxies that are refused; nil for none.
	Revocations *Revocations
}

// FrontProxy authenticates requests through a proxy. The proxy presents a certificate of its own certificate
// authority, and names the user in headers. Without that certificate the headers are ignored, and other credentials
// count. The [Authenticator] reloads the authorities when they change, and removes the headers. FrontProxy implements
// authenticator.Request, and is safe for concurrent use.
type FrontProxy struct {
	options     FrontProxyOptions
	authorities *Authorities
	headers     authenticator.Request // reads the headers of a request with a proxy certificate
}

// NewFrontProxy reads the file of authorities. Its error tells which option is wrong.
func NewFrontProxy(o FrontProxyOptions) (*FrontProxy, error) {
	for flag, values := range map[string]*[]string{
		"requestheader-username-headers": &o.UsernameHeaders, "requestheader-uid-headers": &o.UIDHeaders, "requestheader-group-headers": &o.GroupHeaders,
		"requestheader-extra-headers-prefix": &o.ExtraHeaderPrefixes, "requestheader-allowed-names": &o.AllowedNames,
	} {
		*values = slices.Clone(*values)
		for i, v := range *values {
			(*values)[i] = strings.TrimSpace(v)
		}
		if slices.Contains(*values, "") {
			return nil, fmt.Errorf("--%s: a value is empty", flag)
		}
	}
	p := &FrontProxy{options: o, authorities: &Authorities{file: o.ClientCAFile}}
	if err := p.open(); err != nil {
		return nil, fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	p.headers = authx509.NewDynamicCAVerifier(p.authorities.VerifyOptions, authenticator.RequestFunc(p.authenticateHeaders), authx509.StaticStringSlice(o.AllowedNames))
	return p, nil
}

// open reads the authorities. Without AllowedNames, it also prevents a reload of either authorities after which a
// client certificate would pass as a proxy certificate. kube-apiserver compares them only at its start, and only for
// equality.
func (p *FrontProxy) open() error {
	clients := p.options.Clients
	if len(p.options.AllowedNames) > 0 || clients == nil {
		return p.authorities.open()
	}
	var apart sync.Mutex // held while they are compared and changed
	unless := func(overlap func(next []*x509.Certificate) bool) func([]*x509.Certificate, func()) error {
		return func(next []*x509.Certificate, change func()) error {
			apart.Lock()
			defer apart.Unlock()
			if overlap(next) {
				return errOverlap
			}
			change()
			return nil
		}
	}
	p.authorities.changing = unless(func(next []*x509.Certificate) bool { return answerFor(next, clients.Certificates()) })
	if err := p.authorities.open(); err != nil {
		return err
	}
	clients.changing = unless(func(next []*x509.Certificate) bool { return answerFor(p.Certificates(), next) })
	return nil
}

// follow implements followed.
func (p *FrontProxy) follow(f *files) {
	f.followAuthorities("requestheader-client-ca-file", p.authorities)
}

var errOverlap = errors.New("an authority of front proxies is one of clients as well, or has signed one: without --requestheader-allowed-names, each client could say to be anybody")

// answerFor reports whether a certificate of some authorities may verify with the others, now or later: an authority
// is the same, has the same key, or is signed by one of the others.
func answerFor(authorities, others []*x509.Certificate) bool {
	roots := x509.NewCertPool()
	for _, own := range authorities {
		roots.AddCert(own)
	}
	return slices.ContainsFunc(others, func(c *x509.Certificate) bool {
		if slices.ContainsFunc(authorities, func(own *x509.Certificate) bool {
			return bytes.Equal(own.RawSubjectPublicKeyInfo, c.RawSubjectPublicKeyInfo)
		}) {
			return true
		}
		return slices.ContainsFunc(authorities, func(own *x509.Certificate) bool {
			at := time.Now()
			for _, begins := range []time.Time{c.NotBefore, own.NotBefore} {
				if begins.After(at) {
					at = begins
				}
			}
			_, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			return err == nil
		})
	})
}

// Certificates returns the current certificates of the authorities of proxies. Callers must not change them.
func (p *FrontProxy) Certificates() []*x509.Certificate { return p.authorities.Certificates() }

// Options returns the options of the proxy.
func (p *FrontProxy) Options() FrontProxyOptions { return p.options }

// AuthenticateRequest implements authenticator.Request. A request that names no user is not from a proxy, and its
// certificate is not checked here.
func (p *FrontProxy) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if !slices.ContainsFunc(p.options.UsernameHeaders, func(name string) bool { return r.Header.Get(name) != "" }) {
		return nil, false, nil
	}
	resp, ok, err := p.headers.AuthenticateRequest(r)
	if ok && err == nil {
		err = p.options.Revocations.check(ByFrontProxy, r.TLS.PeerCertificates)
	}
	return resp, ok && err == nil, err
}

// usualHeaders are the usual headers. They are removed from the request even if the options do not name them.
var usualHeaders = FrontProxyOptions{
	UsernameHeaders: []string{"X-Remote-User"}, UIDHeaders: []string{"X-Remote-Uid"}, GroupHeaders: []string{"X-Remote-Group"}, ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
}

// Forget removes the headers that name a user, and the usual ones, in any spelling: some servers treat X_Remote_User
// as X-Remote-User. So nothing after authentication can rely on them. p may be nil.
func (p *FrontProxy) Forget(h http.Header) {
	for name := range h {
		if usualHeaders.namesUser(name) || p != nil && p.options.namesUser(name) {
			delete(h, name)
		}
	}
}

// namesUser reports whether a header names the user.
func (o *FrontProxyOptions) namesUser(name string) bool {
	for _, names := range [][]string{o.UsernameHeaders, o.UIDHeaders, o.GroupHeaders} {
		for _, n := range names {
			if len(name) == len(n) && hasPrefixFold(name, n) {
				return true
			}
		}
	}
	return slices.ContainsFunc(o.ExtraHeaderPrefixes, func(prefix string) bool { return hasPrefixFold(name, prefix) })
}

// hasPrefixFold reports whether a header name has a prefix, in any spelling.
func hasPrefixFold(name, prefix string) bool {
	if len(name) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if spelled(name[i]) != spelled(prefix[i]) {
			return false
		}
	}
	return true
}

func spelled(c byte) byte {
	switch {
	case c == '_':
		return '-'
	case 'A' <= c && c <= 'Z':
		return c + 'a' - 'A'
	}
	return c
}
