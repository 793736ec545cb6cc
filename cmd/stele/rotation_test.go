package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"
	"stele.dev/stele/core/auth/authn/authntest"
	"stele.dev/stele/core/auth/pki"
)

// site is a server whose operator's files lie in a folder.
type site struct {
	*process
	dir   string
	admin *rest.Config
}

func newSite(t *testing.T, dir string, args ...string) *site {
	t.Helper()
	program, err := exec.LookPath("stele")
	if err != nil {
		t.Fatal(err)
	}
	p, err := serveProcess(program, dir, append(os.Environ(), "HOME="+dir), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.end(syscall.SIGKILL) })
	if err := p.await(); err != nil {
		t.Fatal(err)
	}
	s := &site{process: p, dir: dir}
	if s.admin, err = clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "stele-data", "admin.kubeconfig")); err != nil {
		t.Fatal(err)
	}
	s.admin.QPS = -1
	return s
}

// config is a client's, of whom nothing is known yet.
func (s *site) config(change func(*rest.Config)) *rest.Config {
	c := rest.AnonymousClientConfig(s.admin)
	c.QPS = -1
	change(c)
	return c
}

// replacing puts a file in the place of another at once.
func replacing(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".next", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".next", file); err != nil {
		t.Fatal(err)
	}
}

// newKey is a private key as PEM.
func newKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// newClients is an authority, and the certificate of a client of it.
func newClients(t *testing.T, user string) (*pki.Authority, rest.TLSClientConfig) {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.LoadAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Client(dir, "client", user, nil); err != nil {
		t.Fatal(err)
	}
	return ca, rest.TLSClientConfig{CertFile: filepath.Join(dir, "client.crt"), KeyFile: filepath.Join(dir, "client.key")}
}

const askingBundle = `package asking

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "asking"
	authorizers: ["deny", "system:masters", "webhook:hook", "rbac", "abac"]
}
`

const hookEntry = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: hook
  webhook:
    timeout: 10s
    subjectAccessReviewVersion: v1
    failurePolicy: Deny
    authorizedTTL: 5m
    unauthorizedTTL: 5m
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}
`

// All that a server reads while it runs is replaced, again and again, while clients of every method work: whoever has what
// counts all the time is always let in and allowed, and whoever has not never is.
func TestNoRequestFailsWhileFilesAreReplaced(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) { replacing(t, dir, name, text) }
	issuer, second, hook := authntest.New(), authntest.New(), newHook()
	t.Cleanup(func() { issuer.Close(); second.Close(); hook.Close() })
	company, bob := newClients(t, "bob")
	other, _ := newClients(t, "eve")
	proxies, proxy := newClients(t, "front-proxy")
	first := newKey(t)
	generation := func(n int) {
		also := ""
		issuers := []*authntest.Issuer{issuer}
		if n%2 == 1 {
			also, issuers = string(other.PEM), append(issuers, second)
		}
		comment := fmt.Sprintf("# %d\n", n)
		file("clients.crt", string(company.PEM)+also+strings.Repeat("\n", n))
		file("proxies.crt", string(proxies.PEM)+also+strings.Repeat("\n", n))
		file("tokens.csv", fmt.Sprintf("alice-token,alice,1\nt%d,n%d,2\n", n, n))
		file("authentication.yaml", authntest.Configuration(issuers...)+comment)
		file("webhook.kubeconfig", hookKubeconfig(hook)+strings.Repeat("\n", n))
		file("authorization.yaml", fmt.Sprintf(hookEntry, filepath.Join(dir, "webhook.kubeconfig"))+comment)
		file("abac.jsonl", fmt.Sprintf(`{"user": "n%d", "resource": "pods"}`, n)+"\n"+`{"group": "system:authenticated", "resource": "configmaps", "readonly": true}`+"\n")
		if n == 0 {
			file("sa.key", first)
		} else {
			file("sa.key", newKey(t)+first)
		}
	}
	generation(0)
	file("policy/bundle.cue", askingBundle)
	file("policy/cue.mod/module.cue", "module: \"example.com/asking\"\nlanguage: version: \"v0.17.0\"\n")
	file("alice.token", "alice-token")
	file("credential.json", `{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "alice-token"}}`)
	s := newSite(t, dir, "--log-level", "info", "--policy", "policy", "--client-ca-file", "clients.crt", "--token-auth-file", "tokens.csv",
		"--authentication-config", "authentication.yaml", "--authentication-token-webhook-config-file", "webhook.kubeconfig",
		"--authorization-config", "authorization.yaml", "--authorization-policy-file", "abac.jsonl",
		"--service-account-signing-key-file", "sa.key", "--enable-bootstrap-token-auth",
		"--requestheader-client-ca-file", "proxies.crt", "--requestheader-allowed-names", "front-proxy", "--requestheader-username-headers", "X-Remote-User")

	admin := kubernetes.NewForConfigOrDie(s.admin)
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(admin.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "toys"}}, metav1.CreateOptions{}))
	do(admin.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}))
	do(admin.CoreV1().Secrets("kube-system").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"}, Type: "bootstrap.kubernetes.io/token",
		StringData: map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
	}, metav1.CreateOptions{}))
	issued, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	do(issued, err)

	bearer := func(token string) *rest.Config { return s.config(func(c *rest.Config) { c.BearerToken = token }) }
	var over atomic.Bool
	var rounds [11]atomic.Int64
	var clients sync.WaitGroup
	work := func(n int, want string, config *rest.Config) {
		client := kubernetes.NewForConfigOrDie(config)
		clients.Go(func() {
			for ; !over.Load(); rounds[n].Add(1) {
				who, err := client.AuthenticationV1().SelfSubjectReviews().Create(context.Background(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
				if want == "" {
					if !apierrors.IsUnauthorized(err) {
						t.Errorf("nobody: %v", err)
						return
					}
					continue
				}
				if err != nil || who.Status.UserInfo.Username != want {
					t.Errorf("%s: %v", want, err)
					return
				}
				if _, err := client.CoreV1().ConfigMaps("default").Get(context.Background(), "toys", metav1.GetOptions{}); err != nil {
					t.Errorf("%s: %v", want, err)
					return
				}
			}
		})
	}
	work(0, "bob", s.config(func(c *rest.Config) { c.CertFile, c.KeyFile = bob.CertFile, bob.KeyFile }))
	work(1, "alice", bearer("alice-token"))
	work(2, "alice", s.config(func(c *rest.Config) { c.BearerTokenFile = filepath.Join(dir, "alice.token") }))
	work(3, "alice", s.config(func(c *rest.Config) {
		c.ExecProvider = &clientcmdapi.ExecConfig{Command: "cat", Args: []string{filepath.Join(dir, "credential.json")},
			APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
	}))
	work(4, "carol", bearer(issuer.Token("carol", nil)))
	work(5, "system:serviceaccount:default:robot", bearer(issued.Status.Token))
	work(6, "system:bootstrap:abcdef", bearer("abcdef.0123456789abcdef"))
	work(7, "wendy", bearer("hook-wendy"))
	work(8, "dave", s.config(func(c *rest.Config) {
		c.CertFile, c.KeyFile = proxy.CertFile, proxy.KeyFile
		c.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport.NewAuthProxyRoundTripper("dave", "", nil, nil, next)
		})
	}))
	work(9, "", bearer("nobodys-token"))
	clients.Go(func() { // nobody in particular asks whether it is there
		client := kubernetes.NewForConfigOrDie(s.config(func(*rest.Config) {}))
		for ; !over.Load(); rounds[10].Add(1) {
			if _, err := client.Discovery().RESTClient().Get().AbsPath("/healthz").DoRaw(context.Background()); err != nil {
				t.Errorf("anonymous: %v", err)
				return
			}
		}
	})

	for n := 1; n <= 3 && !t.Failed(); n++ {
		generation(n)
		from := len(s.stderr.String())
		for late := time.After(time.Minute); ; {
			said, missing := s.stderr.String()[from:], ""
			for _, what := range []string{"--client-ca-file", "--requestheader-client-ca-file", "--token-auth-file", "--authentication-config",
				"--authorization-policy-file", "--authorization-config", "--service-account-signing-key-file"} {
				if !strings.Contains(said, what) {
					missing = what
				}
			}
			if missing == "" {
				break
			}
			select {
			case <-late:
				t.Fatalf("in generation %d nothing is said of %s but\n%s", n, missing, said)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	over.Store(true)
	clients.Wait()
	for n := range rounds {
		if rounds[n].Load() == 0 {
			t.Errorf("client %d has not worked", n)
		}
	}
	if wrong := regexp.MustCompile(`(?m)^.*level=ERROR.*$`).FindString(s.stderr.String()); wrong != "" {
		t.Error(wrong)
	}
}

// What is too large is refused: never with a fault of the server, which goes on.
func TestCredentialsThatAreTooLarge(t *testing.T) {
	dir := t.TempDir()
	ca, _ := newClients(t, "x")
	replacing(t, dir, "clients.crt", string(ca.PEM))
	s := newSite(t, dir, "--client-ca-file", "clients.crt")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.admin.CAData)
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprintf("group%05d", i)
	}
	huge := t.TempDir()
	if _, err := ca.Client(huge, "huge", "huge", many); err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(huge, "huge.crt"), filepath.Join(huge, "huge.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		certificates []tls.Certificate
		token        string
		want         int // 0: the protocol ends the connection
		http1        bool
	}{
		"a certificate of 5000 groups":         {certificates: []tls.Certificate{certificate}, want: http.StatusUnauthorized},
		"a token of 10 kB":                     {token: strings.Repeat("x", 10_000), want: http.StatusUnauthorized},
		"a token of 200 kB":                    {token: strings.Repeat("x.y", 67_000), want: http.StatusUnauthorized},
		"a token of 2 MB":                      {token: strings.Repeat("x", 2_000_000), want: 0},
		"a token of 200 kB, HTTP/1":            {token: strings.Repeat("x.y", 67_000), want: http.StatusUnauthorized, http1: true},
		"a token of 500 kB, HTTP/1":            {token: strings.Repeat("x.y", 170_000), want: http.StatusRequestHeaderFieldsTooLarge, http1: true},
		"a token of 2 MB, HTTP/1":              {token: strings.Repeat("x", 2_000_000), want: http.StatusRequestHeaderFieldsTooLarge, http1: true},
		"a JWT of many parts":                  {token: strings.Repeat("e30.", 50_000), want: http.StatusUnauthorized},
		"a bootstrap token that does not end":  {token: "abcdef." + strings.Repeat("0", 100_000), want: http.StatusUnauthorized},
		"a JWT whose header says what is long": {token: "eyJhbGciOiJub25lIn0." + strings.Repeat("A", 200_000) + ".", want: http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: c.certificates}, ForceAttemptHTTP2: !c.http1}
			defer tr.CloseIdleConnections()
			q, err := http.NewRequest("GET", s.admin.Host+"/api/v1/namespaces", nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.token != "" {
				q.Header.Set("Authorization", "Bearer "+c.token)
			}
			resp, err := (&http.Client{Transport: tr}).Do(q)
			if err != nil {
				if c.want != 0 {
					t.Error(err)
				}
				return
			}
			resp.Body.Close()
			if resp.StatusCode != c.want {
				t.Errorf("answered with %s, want %d", resp.Status, c.want)
			}
		})
	}
	if _, err := kubernetes.NewForConfigOrDie(s.admin).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("and then: %v", err)
	}
}
