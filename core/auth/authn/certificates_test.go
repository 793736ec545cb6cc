package authn_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"stele.dev/stele/core"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/core/serve/server"
)

// authority signs any certificate.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	c := signCertificate(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return &authority{c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue makes a client's certificate, but for what change says of it.
func (a *authority) issue(t testing.TB, name string, change func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	c := &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if change != nil {
		change(c)
	}
	return signCertificate(t, a, c)
}

// sign signs a certificate that lasts an hour if it does not say; without an authority, by itself.
func signCertificate(t testing.TB, by *authority, template *x509.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// gate is a control plane behind TLS, with authorities of clients and of front proxies, and what is told of failures.
type gate struct {
	*planetest.Replica
	clients, proxies *authority
	clientsFile      string
	proxiesFile      string
	address          string
	roots            *x509.CertPool
	failures         *authn.FailureLog
	record           *authn.FailureRecord // the newest
	messages         bytes.Buffer
}

func newGate(t *testing.T) *gate {
	t.Helper()
	dir := t.TempDir()
	g := &gate{
		clients: newAuthority(t, "clients"), proxies: newAuthority(t, "proxies"),
		clientsFile: filepath.Join(dir, "clients.crt"), proxiesFile: filepath.Join(dir, "proxies.crt"),
	}
	if err := errors.Join(pki.WritePrivate(g.clientsFile, g.clients.pem()), pki.WritePrivate(g.proxiesFile, g.proxies.pem())); err != nil {
		t.Fatal(err)
	}
	own := planetest.Must[*pki.Authority](t)(pki.LoadAuthority(filepath.Join(dir, "pki")))
	certificate := planetest.Must[*pki.ServerCertificate](t)(own.ServerCertificate(filepath.Join(dir, "pki"), []string{"127.0.0.1"}))
	authorities := planetest.Must[*authn.Authorities](t)(authn.NewAuthorities(g.clientsFile))
	frontProxy := planetest.Must[*authn.FrontProxy](t)(authn.NewFrontProxy(authn.FrontProxyOptions{
		ClientCAFile: g.proxiesFile, AllowedNames: []string{"front-proxy"}, UsernameHeaders: []string{"X-Remote-User"}, UIDHeaders: []string{"X-Remote-Uid"},
		GroupHeaders: []string{"X-Remote-Group"}, ExtraHeaderPrefixes: []string{"X-Remote-Extra-"}, Clients: authorities,
	}))
	g.failures = authn.NewFailureLog(authn.FailureOptions{Record: func(r *authn.FailureRecord) { g.record = r }, Logger: slog.New(slog.NewTextHandler(&g.messages, nil))})
	o := authn.Options{Authorities: authorities, FrontProxy: frontProxy, Failures: g.failures, Attempts: g.failures, ReloadEvery: 2 * time.Millisecond}
	g.Replica = planetest.NewPlane(t)
	g.Authenticator = planetest.Must[*authn.Authenticator](t)(authn.New(o))
	t.Cleanup(g.Authenticator.Close)
	g.Pipeline = core.New(core.Options{Committer: g.Committer, Log: g.Log, History: g.History, Authenticator: g.Authenticator})
	g.roots = own.Pool()
	listener := planetest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	g.address = listener.Addr().String()
	s := server.New(g, certificate.Get, func() []*x509.Certificate {
		return slices.Concat(authorities.Certificates(), frontProxy.Certificates())
	}, nil, slog.New(slog.DiscardHandler))
	go func() { _ = s.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = s.Close() })
	return g
}

// as is a client with a certificate, which it shows whatever the server asks for.
func (g *gate) as(t testing.TB, certificate *tls.Certificate) *http.Client {
	config := &tls.Config{RootCAs: g.roots}
	if certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// whoami asks who one is. Names of headers are sent as they are spelled.
func (g *gate) whoami(client *http.Client, header ...string) (code int, body string, who *authenticationv1.UserInfo, err error) {
	q, err := http.NewRequest("POST", "https://"+g.address+planetest.WhoamiPath, strings.NewReader("{}"))
	if err != nil {
		return 0, "", nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		q.Header[header[i]] = append(q.Header[header[i]], header[i+1])
	}
	resp, err := client.Do(q)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", nil, err
	}
	var review authenticationv1.SelfSubjectReview
	if resp.StatusCode == http.StatusCreated {
		err = json.Unmarshal(text, &review)
	}
	return resp.StatusCode, string(text), &review.Status.UserInfo, err
}

// told is what operators are told of failures until now.
func (g *gate) told(t testing.TB) authn.FailureRecord {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = g.failures.Run(ctx) // it tells what there is, and ends
	if g.record == nil {
		t.Fatal("no failure is recorded")
	}
	return *g.record
}

const unauthorized = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`

// Each is refused in the same words, and operators are told why.
func TestCertificatesThatAreNoCredentials(t *testing.T) {
	g := newGate(t)
	many := make([]string, 10_000)
	for i := range many {
		many[i] = fmt.Sprintf("group%05d", i)
	}
	for what, c := range map[string]struct {
		certificate *tls.Certificate
		header      []string
		class       string // method and reason
	}{
		"without a name":   {certificate: g.clients.issue(t, "", nil), class: "certificate name"},
		"with huge groups": {certificate: g.clients.issue(t, "alice", func(c *x509.Certificate) { c.Subject.Organization = many }), class: "certificate too-large"},
		"expired": {certificate: g.clients.issue(t, "alice", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
		}), class: "certificate expired"},
		"not yet valid": {certificate: g.clients.issue(t, "alice", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		}), class: "certificate not-yet-valid"},
		"for servers":         {certificate: g.clients.issue(t, "alice", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), class: "certificate usage"},
		"self-signed":         {certificate: signCertificate(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "alice", Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}), class: "certificate signature"},
		"of a namesake":       {certificate: newAuthority(t, "clients").issue(t, "alice", nil), class: "certificate signature"},
		"of a front proxy":    {certificate: g.proxies.issue(t, "front-proxy", func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} }), class: "certificate signature"},
		"a proxy's, misnamed": {certificate: g.proxies.issue(t, "mallory", nil), header: []string{"X-Remote-User", "alice"}, class: "frontproxy name"},
		"a proxy's, expired": {
			certificate: g.proxies.issue(t, "front-proxy", func(c *x509.Certificate) {
				c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
			}),
			header: []string{"X-Remote-User", "alice"}, class: "frontproxy expired",
		},
	} {
		code, body, _, err := g.whoami(g.as(t, c.certificate), c.header...)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if code != http.StatusUnauthorized || strings.TrimSpace(body) != unauthorized {
			t.Errorf("%s: %d %s", what, code, body)
		}
		record := g.told(t)
		if got := record.Classes[0].Method + " " + record.Classes[0].Reason; record.Count != 1 || got != c.class || record.Sources[0].Source != "127.0.0.0/24" {
			t.Errorf("%s: told is %+v, want %s", what, record, c.class)
		}
	}
	if said := g.messages.String(); !strings.Contains(said, "no valid credentials") || strings.Contains(said, "mallory") {
		t.Errorf("said was\n%s", said)
	}
}

// As in kube-apiserver: a certificate without any extended key usage is for every use, and one without a common name is no
// credential, so that its request is anonymous.
func TestCertificatesAreTakenAsByKubernetes(t *testing.T) {
	clients := newAuthority(t, "clients")
	anybody := func(c *x509.Certificate) { c.ExtKeyUsage = nil }
	authorities, err := authn.NewAuthorities("", clients.cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		anonymous bool
		want      string
	}{
		{"alice", false, "alice"}, {"alice", true, "alice"}, {"", false, ""}, {"", true, "system:anonymous"},
	} {
		o := authn.Options{Authorities: authorities, Anonymous: &apiserver.AnonymousAuthConfig{Enabled: c.anonymous}}
		if got := who(newAuthenticator(t, o), request(clients.issue(t, c.name, anybody).Leaf)); got != c.want {
			t.Errorf("named %q, anonymous requests are allowed: %v: it is %q, want %q", c.name, c.anonymous, got, c.want)
		}
	}
}

// What a proxy may say, nobody else can, in no spelling; and who is known otherwise stays who they are.
func TestHeadersOfProxiesCannotBeSmuggled(t *testing.T) {
	g := newGate(t)
	alice := g.clients.issue(t, "alice", func(c *x509.Certificate) { c.Subject.Organization = []string{"devs"} })
	proxy := g.proxies.issue(t, "front-proxy", nil)
	// A client that is named like a proxy is a client all the same.
	namesake := g.clients.issue(t, "front-proxy", nil)
	root := []string{"X-Remote-User", "root", "X-Remote-Group", "system:masters"}
	for _, c := range []struct {
		what        string
		certificate *tls.Certificate
		header      []string
		user        string // "" for 401
		groups      []string
	}{
		{"nobody", nil, root, "", nil},
		{"nobody with headers of all kinds", nil, slices.Concat(root, []string{"X-Remote-Uid", "0", "X-Remote-Extra-Scope", "all"}), "", nil},
		{"nobody in lower case", nil, []string{"x-remote-user", "root"}, "", nil},
		{"nobody with underscores", nil, []string{"X_Remote_User", "root"}, "", nil},
		{"nobody behind another proxy", nil, append(root, "X-Forwarded-For", "127.0.0.1", "Forwarded", "for=127.0.0.1"), "", nil},
		{"a client", alice, root, "alice", []string{"devs", "system:authenticated"}},
		{"a client in lower case", alice, []string{"x-remote-user", "root", "x-remote-group", "system:masters"}, "alice", []string{"devs", "system:authenticated"}},
		{"a client in upper case", alice, []string{"X-REMOTE-USER", "root"}, "alice", []string{"devs", "system:authenticated"}},
		{"a client with underscores", alice, []string{"X_Remote_User", "root", "X_REMOTE_GROUP", "system:masters"}, "alice", []string{"devs", "system:authenticated"}},
		{"a client with groups only", alice, []string{"X-Remote-Group", "system:masters"}, "alice", []string{"devs", "system:authenticated"}},
		{"a client that is named like a proxy", namesake, root, "front-proxy", []string{"system:authenticated"}},
		{"a proxy", proxy, []string{"X-Remote-User", "carol", "X-Remote-Group", "ops"}, "carol", []string{"ops", "system:authenticated"}},
		{"a proxy in lower case", proxy, []string{"x-remote-user", "carol"}, "carol", []string{"system:authenticated"}},
		{"a proxy whose client adds what is spelled otherwise", proxy, []string{"X-Remote-User", "carol", "X_Remote_User", "root", "X_Remote_Group", "system:masters"}, "carol", []string{"system:authenticated"}},
		{"a proxy whose client adds a second user", proxy, []string{"X-Remote-User", "carol", "X-Remote-User", "root"}, "carol", []string{"system:authenticated"}},
		{"a proxy that says nobody", proxy, []string{"X-Remote-Group", "system:masters"}, "", nil},
		{"a proxy that says nobody's name", proxy, []string{"X-Remote-User", "", "X-Remote-Group", "system:masters"}, "", nil},
	} {
		code, body, who, err := g.whoami(g.as(t, c.certificate), c.header...)
		switch {
		case err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.user == "":
			if code != http.StatusUnauthorized || strings.TrimSpace(body) != unauthorized {
				t.Errorf("%s: %d %s", c.what, code, body)
			}
		case code != http.StatusCreated || who.Username != c.user || !slices.Equal(who.Groups, c.groups):
			t.Errorf("%s: %d, %s of %q", c.what, code, who.Username, who.Groups)
		}
	}
}

// A proxied user is one like any other, who may not become another without leave.
func TestAProxiedUserIsAuthorizedAsTheyAre(t *testing.T) {
	g := newGate(t)
	proxy := g.as(t, g.proxies.issue(t, "front-proxy", nil))
	if code, _, _, err := g.whoami(proxy, "X-Remote-User", "helper", "Impersonate-User", "admin"); err != nil || code != http.StatusForbidden {
		t.Errorf("%d, %v", code, err)
	}
	if code, _, who, err := g.whoami(proxy, "X-Remote-User", "helper", "Impersonate-User", "eddie"); err != nil || code != http.StatusCreated || who.Username != "eddie" {
		t.Errorf("%d, %v, %v", code, who, err)
	}
}

// While authorities come and go, whoever is of one that stays is always known, and whoever is of another never.
func TestAuthoritiesAreReplacedUnderLoad(t *testing.T) {
	g := newGate(t)
	next, other := newAuthority(t, "next"), newAuthority(t, "other")
	stays, foreign := g.clients.issue(t, "alice", nil), other.issue(t, "mallory", nil)
	proxy := g.proxies.issue(t, "front-proxy", nil)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = g.Authenticator.Run(ctx) })
	ask := func(certificate *tls.Certificate, want string, header ...string) {
		running.Go(func() {
			for ctx.Err() == nil {
				code, _, who, err := g.whoami(g.as(t, certificate), header...)
				if err != nil || who.Username != want || (code == http.StatusUnauthorized) != (want == "") {
					t.Errorf("%q: %d, %v, %v", want, code, who, err)
					return
				}
			}
		})
	}
	ask(stays, "alice")
	ask(foreign, "")
	ask(proxy, "carol", "X-Remote-User", "carol")
	ask(foreign, "", "X-Remote-User", "carol")

	young := next.issue(t, "bob", nil)
	known := func() bool {
		code, _, _, err := g.whoami(g.as(t, young))
		return err == nil && code == http.StatusCreated
	}
	for range 3 {
		for _, with := range []bool{true, false} {
			clients, proxies := g.clients.pem(), g.proxies.pem()
			if with {
				clients, proxies = append(next.pem(), clients...), append(next.pem(), proxies...)
			}
			if err := errors.Join(pki.WritePrivate(g.clientsFile, clients), pki.WritePrivate(g.proxiesFile, proxies)); err != nil {
				t.Fatal(err)
			}
			for late := time.After(time.Minute); known() != with; {
				select {
				case <-late:
					t.Fatal("the files are not read anew")
				default:
				}
			}
		}
	}
	cancel()
	running.Wait()
}
