package plane_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
)

// certified is a plane with a certificate of an authority that is not its own.
type certified struct {
	*planetest.Plane
	issuer *pki.Authority
	files  cliflag.NamedCertKey
	given  atomic.Value // the serial of the certificate in the files
}

func startCertified(t *testing.T) *certified {
	t.Helper()
	dir := t.TempDir()
	issuer, err := pki.LoadAuthority(filepath.Join(dir, "issuer"))
	if err != nil {
		t.Fatal(err)
	}
	c := &certified{issuer: issuer, files: cliflag.NamedCertKey{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}}
	c.rotate(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := plane.Config{Listener: listener}
	config.Certificates.Default = c.files
	config.Authentication.ReloadEvery = 10 * time.Millisecond
	c.Plane = planetest.Start(t, planetest.Options{Bundle: string(bundle["bundle.cue"].Data), Config: config})
	return c
}

// rotate puts a new certificate and its key into the files, one after the other.
func (c *certified) rotate(t *testing.T) {
	t.Helper()
	pair, err := c.issuer.Server(t.TempDir(), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{c.files.CertFile: pair.Cert, c.files.KeyFile: pair.Key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.given.Store(parsed.Leaf.SerialNumber.String())
}

// client returns a client that trusts the issuer of the certificate.
func (c *certified) client(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://" + c.Address(), BearerToken: "admin-token", TLSClientConfig: rest.TLSClientConfig{CAData: c.issuer.PEM}, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// serial returns the serial of the certificate that a new connection gets.
func (c *certified) serial() (string, error) {
	conn, err := tls.Dial("tcp", c.Address(), &tls.Config{RootCAs: c.issuer.Pool()})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// Certificates are rotated while clients of all kinds use the server: over connections that stay, over new ones, and by a
// watch. None of them notices.
func TestCertificatesRotateWithoutAFailedRequest(t *testing.T) {
	c := startCertified(t)
	client := c.client(t)
	watch, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var requests atomic.Int64
	for i := range 4 {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.issuer.Pool()}, DisableKeepAlives: i%2 == 0, ForceAttemptHTTP2: i%2 == 1}
		load.Go(func() {
			defer transport.CloseIdleConnections()
			for ctx.Err() == nil {
				answer, err := (&http.Client{Transport: transport}).Get("https://" + c.Address() + "/readyz")
				if err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
				if answer.Body.Close(); answer.StatusCode != http.StatusOK {
					t.Errorf("a request is answered %s", answer.Status)
				}
				requests.Add(1)
			}
		})
	}
	for range 5 {
		c.rotate(t)
		deadline, before := time.Now().Add(time.Minute), requests.Load()
		for got := ""; got != c.given.Load() || requests.Load() < before+10; time.Sleep(5 * time.Millisecond) {
			if got, err = c.serial(); err != nil || time.Now().After(deadline) {
				t.Fatalf("a new connection gets the certificate %s, want %s: %v", got, c.given.Load(), err)
			}
		}
	}
	stop()
	load.Wait()
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "last"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for event := range watch.ResultChan() {
		if m, ok := event.Object.(*corev1.ConfigMap); ok && m.Name == "last" {
			return
		}
	}
	t.Error("the watch has ended")
}

// The kubeconfig trusts the plane's own authority, whoever has signed the certificate that other clients get.
func TestTheAdministratorsKubeconfigWorksWithAnyCertificate(t *testing.T) {
	c := startCertified(t)
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestOthersAreToldTheAdvertisedAddress(t *testing.T) {
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	p := planetest.Start(t, planetest.Options{Bundle: string(bundle["bundle.cue"].Data), Config: plane.Config{Listener: listener, AdvertiseAddress: net.IPv4(192, 0, 2, 7)}})
	for _, x := range p.Replicas.All() {
		if want := fmt.Sprintf("192.0.2.7:%d", port); x.Address != want {
			t.Errorf("it has the address %s, want %s", x.Address, want)
		}
	}
	if want := fmt.Sprintf("127.0.0.1:%d", port); p.Address() != want {
		t.Errorf("clients of this machine use %s, want %s", p.Address(), want)
	}
	conn, err := tls.Dial("tcp", p.Address(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.ConnectionState().PeerCertificates[0].VerifyHostname("192.0.2.7"); err != nil {
		t.Error(err)
	}
}
