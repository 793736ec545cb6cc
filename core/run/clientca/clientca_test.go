package clientca_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/run/clientca"
	"stele.dev/stele/core/run/plane/planetest"
)

const bundle = `
package test
import "stele.dev/policy"
bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		rbac: bindings: metrics: {clusterRole: "extension-apiserver-authentication-reader", subjects: [{user: "metrics-server"}], namespaces: ["kube-system"]}
	}
}
`

// testPlane is a control plane, and a publisher's options for it.
type testPlane struct {
	*planetest.Plane
	clientca.Options
	clients atomic.Pointer[[]*x509.Certificate]
}

func newPlane(t *testing.T) *testPlane {
	t.Helper()
	p := &testPlane{Plane: planetest.Start(t, planetest.Options{Bundle: bundle})}
	p.Options = clientca.Options{API: p.Pipeline, ClientCA: func() []*x509.Certificate { return *p.clients.Load() }}
	return p
}

func (p *testPlane) maps(t *testing.T, name string, groups ...string) corev1client.ConfigMapInterface {
	t.Helper()
	c, err := corev1client.NewForConfig(p.Client(name, groups...))
	if err != nil {
		t.Fatal(err)
	}
	return c.ConfigMaps(clientca.Namespace)
}

func (p *testPlane) admin(t *testing.T) corev1client.ConfigMapInterface {
	return p.maps(t, "admin", "system:masters")
}

func (p *testPlane) trusts(authorities ...*x509.Certificate) { p.clients.Store(&authorities) }

func (p *testPlane) publisher(t *testing.T) *clientca.Publisher {
	t.Helper()
	publisher, err := clientca.New(p.Options)
	if err != nil {
		t.Fatal(err)
	}
	return publisher
}

// published is what the ConfigMap says after a write of the publisher.
func (p *testPlane) published(t *testing.T) map[string]string {
	t.Helper()
	if err := p.publisher(t).Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, err := p.admin(t).Get(t.Context(), clientca.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Data
}

func authority(t *testing.T, name string, until time.Duration) (*x509.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(until), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func frontProxy(t *testing.T, ca string) *authn.FrontProxy {
	t.Helper()
	o := authn.FrontProxyOptions{
		ClientCAFile: filepath.Join(t.TempDir(), "ca.crt"), AllowedNames: []string{"front-proxy"}, UsernameHeaders: []string{"X-Remote-User"},
		GroupHeaders: []string{"X-Remote-Group"}, ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
	}
	if err := pki.WritePrivate(o.ClientCAFile, []byte(ca)); err != nil {
		t.Fatal(err)
	}
	p, err := authn.NewFrontProxy(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhomThisServerTrustsIsPublished(t *testing.T) {
	p := newPlane(t)
	clients, clientsText := authority(t, "clients", time.Hour)
	_, proxies := authority(t, "proxies", time.Hour)
	p.trusts(clients)
	if diff := cmp.Diff(map[string]string{"client-ca-file": clientsText}, p.published(t)); diff != "" {
		t.Errorf("without a front proxy (-want +got):\n%s", diff)
	}
	p.FrontProxy = frontProxy(t, proxies)
	want := map[string]string{
		"client-ca-file": clientsText, "requestheader-client-ca-file": proxies, "requestheader-allowed-names": `["front-proxy"]`,
		"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}
	if diff := cmp.Diff(want, p.published(t)); diff != "" {
		t.Errorf("with one (-want +got):\n%s", diff)
	}
}

func TestWhatIsPublishedAlreadyIsNotWrittenAgain(t *testing.T) {
	p := newPlane(t)
	clients, _ := authority(t, "clients", time.Hour)
	_, proxies := authority(t, "proxies", time.Hour)
	p.trusts(clients)
	p.FrontProxy = frontProxy(t, proxies)
	p.published(t)
	before := p.Committer.Tip().Revision()
	p.published(t)
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("from revision %d to %d", before, after)
	}
}

// Servers that follow the ConfigMap trust both until the old one has expired.
func TestAnAuthorityBeforeStaysUntilItHasExpired(t *testing.T) {
	p := newPlane(t)
	expired, _ := authority(t, "expired", -time.Hour)
	before, beforeText := authority(t, "before", time.Hour)
	after, afterText := authority(t, "after", time.Hour)
	p.trusts(expired, before)
	p.published(t)
	p.trusts(after)
	if got := p.published(t)["client-ca-file"]; got != beforeText+afterText {
		t.Errorf("published is\n%s", got)
	}
}

func TestWhatCannotBeReadIsReplaced(t *testing.T) {
	p := newPlane(t)
	clients, clientsText := authority(t, "clients", time.Hour)
	_, proxies := authority(t, "proxies", time.Hour)
	p.trusts(clients)
	p.FrontProxy = frontProxy(t, proxies)
	broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: clientca.Name}, Data: map[string]string{
		"client-ca-file": "nothing", "requestheader-allowed-names": "{", "requestheader-username-headers": `["X-Other-User"]`, "more": "x",
	}}
	if _, err := p.admin(t).Create(t.Context(), broken, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"client-ca-file": clientsText, "requestheader-client-ca-file": proxies, "requestheader-allowed-names": `["front-proxy"]`,
		"requestheader-username-headers": `["X-Other-User","X-Remote-User"]`, "requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}
	if diff := cmp.Diff(want, p.published(t)); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}

func TestWhatIsPublishedIsKeptCurrent(t *testing.T) {
	p := newPlane(t)
	before, beforeText := authority(t, "before", time.Hour)
	after, afterText := authority(t, "after", time.Hour)
	p.trusts(before)
	publisher := p.publisher(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = publisher.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })

	says := func(text string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			m, err := p.admin(t).Get(ctx, clientca.Name, metav1.GetOptions{})
			if err == nil && m.Data["client-ca-file"] == text {
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("it never says\n%s\nbut\n%v (%v)", text, m.Data, err)
			}
		}
	}
	says(beforeText)
	if err := p.admin(t).Delete(t.Context(), clientca.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	says(beforeText)
	p.trusts(after)
	says(beforeText + afterText)
}

func TestWhoIsBoundToTheRoleMayReadIt(t *testing.T) {
	p := newPlane(t)
	clients, _ := authority(t, "clients", time.Hour)
	p.trusts(clients)
	p.published(t)
	metrics := p.maps(t, "metrics-server", "system:authenticated")
	if _, err := metrics.Get(t.Context(), clientca.Name, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if list, err := metrics.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + clientca.Name}); err != nil || len(list.Items) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := metrics.Get(t.Context(), "another", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another: %v", err)
	}
	if _, err := p.maps(t, "nobody", "system:authenticated").Get(t.Context(), clientca.Name, metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("of nobody: %v", err)
	}
}
