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
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
)

// FrontProxyOptions for [NewFrontProxy]. The names are those of kube-apiserver's flags --requestheader-*.
type FrontProxyOptions struct {
	// ClientCAFile are the authorities of proxies' certificates, as PEM.
	ClientCAFile string
	// AllowedNames are the common names that a proxy's certificate may have; none for all.
	AllowedNames []string
	// Where a proxy says who asks. Of the first header with a value that is the user, and the uid; of groups
	// and extra fields all count.
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes []string
	// Clients are the authorities of clients' own certificates; nil if there are none. Where proxies' authorities
	// answer for one of them AllowedNames must say whose certificates are proxies'. Neither file is changed otherwise.
	Clients *Authorities
}

// FrontProxy believes a proxy who asks. The proxy shows a certificate of an authority that signs for nothing
// else, and names the user in headers. Without that certificate the headers mean nothing, and whoever has
// another credential is who that says. The [Authenticator] that it is part of reads the authorities anew when they
// change, and removes the headers. It implements authenticator.Request, and is safe for concurrent use.
type FrontProxy struct {
	options     FrontProxyOptions
	authorities *Authorities
	headers     authenticator.Request // looks at the headers, of who has a certificate
}

// NewFrontProxy reads the file of authorities. The error says what is wrong with the options.
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
	p.headers = headerrequest.NewDynamicVerifyOptionsSecure(
		p.authorities.VerifyOptions,
		headerrequest.StaticStringSlice(o.AllowedNames), headerrequest.StaticStringSlice(o.UsernameHeaders), headerrequest.StaticStringSlice(o.UIDHeaders),
		headerrequest.StaticStringSlice(o.GroupHeaders), headerrequest.StaticStringSlice(o.ExtraHeaderPrefixes),
	)
	return p, nil
}

// open reads the authorities. Where nothing else tells proxies from clients, neither's authorities can become such that
// a client's certificate is a proxy's. kube-apiserver compares them only when it starts, and only by whether they are the same.
func (p *FrontProxy) open() error {
	clients := p.options.Clients
	if len(p.options.AllowedNames) > 0 || clients == nil {
		return p.authorities.open()
	}
	var apart sync.Mutex // held to compare them, and to change either
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

// answerFor tells whether what some authorities have signed is taken for what others have, now or later: one is the same, has
// the same key, or is below one of the others.
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

// Certificates are those of the authorities of proxies, now. They must not be changed.
func (p *FrontProxy) Certificates() []*x509.Certificate { return p.authorities.Certificates() }

// Options are those that it was made with.
func (p *FrontProxy) Options() FrontProxyOptions { return p.options }

// AuthenticateRequest implements authenticator.Request. Who names no user says nothing about a proxy, and their certificate
// is not looked at here.
func (p *FrontProxy) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if !slices.ContainsFunc(p.options.UsernameHeaders, func(name string) bool { return r.Header.Get(name) != "" }) {
		return nil, false, nil
	}
	return p.headers.AuthenticateRequest(r)
}

// The headers that are usual. They mean nothing unless options name them, and are kept from what comes after
// all the same.
var usualHeaders = FrontProxyOptions{
	UsernameHeaders: []string{"X-Remote-User"}, UIDHeaders: []string{"X-Remote-Uid"}, GroupHeaders: []string{"X-Remote-Group"}, ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
}

// Forget removes from a request's headers those in which a proxy says who asks, and the usual ones, in any
// spelling: some servers take X_Remote_User for X-Remote-User. Nothing that comes after authentication may believe
// them. p may be nil, if no proxy is believed.
func (p *FrontProxy) Forget(h http.Header) {
	for name := range h {
		if usualHeaders.says(name) || p != nil && p.options.says(name) {
			delete(h, name)
		}
	}
}

// says tells whether a header says who asks.
func (o *FrontProxyOptions) says(name string) bool {
	for _, names := range [][]string{o.UsernameHeaders, o.UIDHeaders, o.GroupHeaders} {
		for _, n := range names {
			if len(name) == len(n) && begins(name, n) {
				return true
			}
		}
	}
	return slices.ContainsFunc(o.ExtraHeaderPrefixes, func(prefix string) bool { return begins(name, prefix) })
}

// begins tells whether a header's name has a prefix, in any spelling.
func begins(name, prefix string) bool {
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
