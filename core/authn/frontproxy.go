package authn

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	authx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/client-go/util/cert"
	"stele.dev/stele/core/reload"
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
	options FrontProxyOptions
	content []byte // of the file, at the beginning
	ca      atomic.Pointer[authority]
	headers authenticator.Request // looks at the headers, of who has a certificate
	apart   sync.Mutex            // held to compare the authorities of proxies and clients, and to change either
}

// authority is a file of certificates.
type authority struct {
	certificates []*x509.Certificate
	verify       x509.VerifyOptions
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
	p := &FrontProxy{options: o}
	var err error
	if p.content, err = reload.Read(o.ClientCAFile); err == nil {
		err = p.load(context.Background(), p.content)
	}
	if err != nil {
		return nil, fmt.Errorf("--requestheader-client-ca-file %s: %w", o.ClientCAFile, err)
	}
	if len(o.AllowedNames) == 0 && o.Clients != nil {
		o.Clients.changing = p.changeClients
	}
	p.headers = headerrequest.NewDynamicVerifyOptionsSecure(
		func() (x509.VerifyOptions, bool) { return p.ca.Load().verify, true },
		headerrequest.StaticStringSlice(o.AllowedNames), headerrequest.StaticStringSlice(o.UsernameHeaders), headerrequest.StaticStringSlice(o.UIDHeaders),
		headerrequest.StaticStringSlice(o.GroupHeaders), headerrequest.StaticStringSlice(o.ExtraHeaderPrefixes),
	)
	return p, nil
}

// load takes other authorities. kube-apiserver compares them with those of clients only when it starts, and only by
// whether they are the same.
func (p *FrontProxy) load(_ context.Context, content []byte) error {
	certificates, err := cert.ParseCertsPEM(content)
	if err != nil {
		return err
	}
	a := &authority{certificates: certificates, verify: authx509.DefaultVerifyOptions()}
	a.verify.Roots = x509.NewCertPool()
	for _, c := range certificates {
		a.verify.Roots.AddCert(c)
	}
	p.apart.Lock()
	defer p.apart.Unlock()
	if len(p.options.AllowedNames) == 0 && p.options.Clients != nil && a.answersFor(p.options.Clients.Certificates()) {
		return errOverlap
	}
	p.ca.Store(a)
	return nil
}

// changeClients lets the authorities of clients change, unless one of those to come makes proxies of clients.
func (p *FrontProxy) changeClients(next []*x509.Certificate, change func()) error {
	p.apart.Lock()
	defer p.apart.Unlock()
	if p.ca.Load().answersFor(next) {
		return errOverlap
	}
	change()
	return nil
}

// follow implements followed.
func (p *FrontProxy) follow(f *files) {
	f.follow("requestheader-client-ca-file", p.options.ClientCAFile, p.content, p.load, nil)
}

var errOverlap = errors.New("an authority of front proxies is one of clients as well, or has signed one: without --requestheader-allowed-names, each client could say to be anybody")

// answersFor tells whether what one of these authorities has signed is taken for what this one has: it is the same, has
// the same key, or is below it.
func (a *authority) answersFor(others []*x509.Certificate) bool {
	return slices.ContainsFunc(others, func(c *x509.Certificate) bool {
		if slices.ContainsFunc(a.certificates, func(own *x509.Certificate) bool {
			return bytes.Equal(own.RawSubjectPublicKeyInfo, c.RawSubjectPublicKeyInfo)
		}) {
			return true
		}
		_, err := c.Verify(x509.VerifyOptions{Roots: a.verify.Roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err == nil
	})
}

// Certificates are those of the authorities of proxies, now. They must not be changed.
func (p *FrontProxy) Certificates() []*x509.Certificate { return p.ca.Load().certificates }

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
