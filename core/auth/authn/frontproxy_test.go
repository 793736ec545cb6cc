package authn_test

import (
	"crypto/x509"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/auth/authn"
)

// frontProxies are options by which proxies of an authority are believed, with a name and usual headers.
func frontProxies(t testing.TB, ca *signer) authn.FrontProxyOptions {
	t.Helper()
	o := authn.FrontProxyOptions{
		ClientCAFile: filepath.Join(t.TempDir(), "proxies.crt"), AllowedNames: []string{"front-proxy"},
		UsernameHeaders: []string{"X-Remote-User"}, UIDHeaders: []string{"X-Remote-Uid"},
		GroupHeaders: []string{"X-Remote-Group"}, ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
	}
	replace(t, o.ClientCAFile, string(ca.pem))
	return o
}

func newFrontProxy(t testing.TB, o authn.FrontProxyOptions) *authn.FrontProxy {
	t.Helper()
	p, err := authn.NewFrontProxy(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// proxied is a request of a proxy for alice.
func proxied(certificate *x509.Certificate) *http.Request {
	q := request(certificate)
	q.Header.Set("X-Remote-User", "alice")
	q.Header.Set("X-Remote-Uid", "7")
	q.Header.Add("X-Remote-Group", "devs")
	q.Header.Add("X-Remote-Group", "ops")
	q.Header.Set("X-Remote-Extra-Example.com%2fscope", "wide")
	return q
}

func TestAFrontProxyIsBelieved(t *testing.T) {
	ca := newSigner(t, "proxies")
	p := newFrontProxy(t, frontProxies(t, ca))
	resp, ok, err := p.AuthenticateRequest(proxied(ca.issue(t, "front-proxy", nil)))
	if err != nil || !ok {
		t.Fatalf("%v, %v", ok, err)
	}
	u := resp.User
	if u.GetName() != "alice" || u.GetUID() != "7" || !slices.Equal(u.GetGroups(), []string{"devs", "ops"}) {
		t.Errorf("it is %+v", u)
	}
	if diff := cmp.Diff(map[string][]string{"example.com/scope": {"wide"}}, u.GetExtra()); diff != "" {
		t.Errorf("extra (-want +got):\n%s", diff)
	}
}

func TestNobodyElseIsAFrontProxy(t *testing.T) {
	ca, clients := newSigner(t, "proxies"), newSigner(t, "clients")
	p := newFrontProxy(t, frontProxies(t, ca))
	for name, c := range map[string]struct {
		certificate *x509.Certificate
		silent      bool // it is no error, but nobody
	}{
		"no certificate":           {nil, true},
		"a client's certificate":   {clients.issue(t, "front-proxy", nil), false},
		"another name":             {ca.issue(t, "front-proxy2", nil), false},
		"no name":                  {ca.issue(t, "", nil), false},
		"name in another case":     {ca.issue(t, "Front-Proxy", nil), false},
		"the name as organization": {ca.issue(t, "x", func(c *x509.Certificate) { c.Subject.Organization = []string{"front-proxy"} }), false},
		"the name as DNS name":     {ca.issue(t, "x", func(c *x509.Certificate) { c.DNSNames = []string{"front-proxy"} }), false},
		"a server's certificate": {ca.issue(t, "front-proxy", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), false},
		"an expired certificate": {ca.issue(t, "front-proxy", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
		}), false},
		"a self-signed certificate":           {newSigner(t, "front-proxy").cert, false},
		"an authority of the same name's own": {newSigner(t, "proxies").issue(t, "front-proxy", nil), false},
	} {
		resp, ok, err := p.AuthenticateRequest(proxied(c.certificate))
		if ok || resp != nil || (err == nil) != c.silent {
			t.Errorf("%s: %+v, %v, %v", name, resp, ok, err)
		}
	}
}

func TestWithoutAllowedNamesAnyCertificateOfTheAuthorityIsAProxys(t *testing.T) {
	ca := newSigner(t, "proxies")
	o := frontProxies(t, ca)
	o.AllowedNames = nil
	if _, ok, err := newFrontProxy(t, o).AuthenticateRequest(proxied(ca.issue(t, "anything", nil))); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}

// Only those that are spelled as configured mean anything, and nobody after this may be told otherwise.
func TestHeadersOfProxiesAreForgottenInAnySpelling(t *testing.T) {
	o := frontProxies(t, newSigner(t, "proxies"))
	o.UsernameHeaders = []string{"X-Remote-User", "X-Company-User"}
	o.ExtraHeaderPrefixes = append(o.ExtraHeaderPrefixes, "X-Company-Extra-")
	configured := newFrontProxy(t, o)
	usual := []string{
		"X-Remote-User", "x-remote-user", "X_Remote_User", "x-REMOTE_user", "X-Remote-Uid", "X-Remote-UID", "X_REMOTE_UID", "X-Remote-Group", "x_remote_group",
		"X-Remote-Extra-Scope", "X_Remote_Extra_Scope", "x-remote-extra-", "X-Remote-Extra-Authentication.kubernetes.io%2fx",
	}
	own := []string{"X-Company-User", "x_company_USER", "X-Company-Extra-A", "X_COMPANY_EXTRA_A"}
	others := []string{"X-Remote", "X-Remote-Users", "X-Remote-Use", "X-Remote-Groups", "X-Remote-Extr", "Accept", "Impersonate-User", "X-Forwarded-For", ""}
	for _, c := range []struct {
		name      string
		p         *authn.FrontProxy
		gone, not []string
	}{
		{"none is configured", nil, usual, slices.Concat(own, others)},
		{"one is configured", configured, slices.Concat(usual, own), others},
	} {
		h := http.Header{}
		for _, name := range slices.Concat(c.gone, c.not) {
			h[name] = []string{"root"} // as a request may have them that came over no network
		}
		c.p.Forget(h)
		for _, name := range c.gone {
			if _, ok := h[name]; ok {
				t.Errorf("%s: %q is there", c.name, name)
			}
		}
		for _, name := range c.not {
			if _, ok := h[name]; !ok {
				t.Errorf("%s: %q is gone", c.name, name)
			}
		}
	}
}

func TestAuthoritiesOfProxiesAreReadAnew(t *testing.T) {
	before, after := newSigner(t, "proxies"), newSigner(t, "proxies")
	o := frontProxies(t, before)
	p := newFrontProxy(t, o)
	log := newMessages()
	running(t, authn.Options{FrontProxy: p, Logger: log.logger()})
	old, young := before.issue(t, "front-proxy", nil), after.issue(t, "front-proxy", nil)
	believed := func(c *x509.Certificate) bool { _, ok, _ := p.AuthenticateRequest(proxied(c)); return ok }

	replace(t, o.ClientCAFile, "no certificate")
	eventually(t, "it is said", func() bool { return log.count("stays in use") == 1 })
	if !believed(old) || believed(young) {
		t.Error("a file without certificates was used")
	}
	replace(t, o.ClientCAFile, string(after.pem))
	eventually(t, "the new file is used", func() bool { return believed(young) })
	if believed(old) {
		t.Error("the old one is used as well")
	}
	if !slices.EqualFunc(p.Certificates(), []*x509.Certificate{after.cert}, (*x509.Certificate).Equal) {
		t.Errorf("the authorities are said to be %v", p.Certificates())
	}
}

// Otherwise every client could say to be anybody.
func TestAnAuthorityOfClientsAndProxiesNeedsNamesOfProxies(t *testing.T) {
	proxies, clients := newSigner(t, "proxies"), newSigner(t, "clients")
	below := proxies.below(t, "clients below proxies")
	soon := proxies.below(t, "clients below proxies, later", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(time.Minute), time.Now().Add(time.Hour)
	})
	for _, c := range []struct {
		name    string
		file    []byte
		clients *signer
		names   []string
		refused bool
	}{
		{"the same without names", clients.pem, clients, nil, true},
		{"one in common without names", slices.Concat(proxies.pem, clients.pem), clients, nil, true},
		{"the same key without names", clients.renewed(t).pem, clients, nil, true},
		{"one below without names", proxies.pem, below, nil, true},
		{"one below that is not valid yet", proxies.pem, soon, nil, true},
		{"the same with names", clients.pem, clients, []string{"front-proxy"}, false},
		{"one below with names", proxies.pem, below, []string{"front-proxy"}, false},
		{"another without names", proxies.pem, clients, nil, false},
		{"one above without names", below.pem, proxies, nil, false},
	} {
		o := frontProxies(t, proxies)
		replace(t, o.ClientCAFile, string(c.file))
		o.AllowedNames, o.Clients = c.names, authorities(t, c.clients)
		_, err := authn.NewFrontProxy(o)
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "--requestheader-allowed-names") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Whom an event cannot name as they are called would be somebody else there.
func TestWhomAnEventCannotNameIsNobody(t *testing.T) {
	ca := newSigner(t, "proxies")
	a := newAuthenticator(t, authn.Options{FrontProxy: newFrontProxy(t, frontProxies(t, ca))})
	proxy := ca.issue(t, "front-proxy", nil)
	for what, c := range map[string]struct{ header, value, want string }{
		"as long a name as may be": {"X-Remote-User", strings.Repeat("a", 4096), strings.Repeat("a", 4096)},
		"a longer name":            {"X-Remote-User", strings.Repeat("a", 4097), ""},
		"a longer uid":             {"X-Remote-Uid", strings.Repeat("7", 4097), ""},
		"a name in UTF-8":          {"X-Remote-User", "Zo\u00eb", "Zo\u00eb"},
		"a name in Latin-1":        {"X-Remote-User", "Zo\xeb", ""},
		"a uid in Latin-1":         {"X-Remote-Uid", "\xeb", ""},
		"a group in Latin-1":       {"X-Remote-Group", "\xeb", ""},
		"a value in Latin-1":       {"X-Remote-Extra-Scope", "\xeb", ""},
		"a key that decodes to it": {"X-Remote-Extra-%eb", "x", ""},
	} {
		q := proxied(proxy)
		q.Header.Set(c.header, c.value)
		if got := who(a, q); got != c.want {
			t.Errorf("%s: %q", what, got)
		}
	}
}

// authorities are those of a file with a signer's certificate.
func authorities(t testing.TB, s *signer) *authn.Authorities {
	t.Helper()
	a, err := authn.NewAuthorities(file(t, string(s.pem)))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Neither is that to come about while the program runs, whichever of the two files changes.
func TestAuthoritiesOfClientsAndProxiesStayApart(t *testing.T) {
	proxies, clients := newSigner(t, "proxies"), newSigner(t, "clients")
	o := frontProxies(t, proxies)
	o.AllowedNames = nil
	bundle := file(t, string(clients.pem))
	var err error
	if o.Clients, err = authn.NewAuthorities(bundle); err != nil {
		t.Fatal(err)
	}
	log := newMessages()
	a := running(t, authn.Options{Authorities: o.Clients, FrontProxy: newFrontProxy(t, o), Logger: log.logger()})
	proxy, client := proxies.issue(t, "front-proxy", nil), clients.issue(t, "carol", nil)
	for n, change := range []func(){
		func() { replace(t, bundle, string(clients.pem)+string(proxies.pem)) },
		func() { replace(t, o.ClientCAFile, string(clients.pem)+string(proxies.pem)) },
	} {
		change()
		eventually(t, "it is said", func() bool { return log.count("--requestheader-allowed-names") == n+1 })
		if got := who(a, proxied(client)); got != "carol" {
			t.Errorf("a client says to be %q", got)
		}
		if got := who(a, proxied(proxy)); got != "alice" {
			t.Errorf("a proxy says to be %q", got)
		}
	}
	further := newSigner(t, "further clients")
	replace(t, bundle, string(clients.pem)+string(further.pem))
	dora := further.issue(t, "dora", nil)
	eventually(t, "other authorities of clients count", func() bool { return who(a, request(dora)) == "dora" })
}

func TestWhatIsWrongWithFlagsOfFrontProxiesIsSaid(t *testing.T) {
	for part, change := range map[string]func(*authn.FrontProxyOptions){
		"--requestheader-username-headers":     func(o *authn.FrontProxyOptions) { o.UsernameHeaders = []string{" "} },
		"--requestheader-uid-headers":          func(o *authn.FrontProxyOptions) { o.UIDHeaders = []string{""} },
		"--requestheader-group-headers":        func(o *authn.FrontProxyOptions) { o.GroupHeaders = []string{"X-Remote-Group", ""} },
		"--requestheader-extra-headers-prefix": func(o *authn.FrontProxyOptions) { o.ExtraHeaderPrefixes = []string{""} },
		"--requestheader-allowed-names":        func(o *authn.FrontProxyOptions) { o.AllowedNames = []string{"\t"} },
		"--requestheader-client-ca-file":       func(o *authn.FrontProxyOptions) { o.ClientCAFile += ".missing" },
	} {
		o := frontProxies(t, newSigner(t, "proxies"))
		change(&o)
		if _, err := authn.NewFrontProxy(o); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", part, err)
		}
	}
}
