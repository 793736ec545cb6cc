package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// Credentials that are not, or no longer, good are answered as kube-apiserver does: the
// handshake succeeds, so that the client hears why.
func TestCertificatesThatAreNotAccepted(t *testing.T) {
	stele, err := exec.LookPath("stele")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p, err := serveProcess(stele, dir, append(os.Environ(), "HOME="+dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.end(syscall.SIGKILL) })
	if err := p.await(); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "stele-data", "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := tls.LoadX509KeyPair(filepath.Join(dir, "stele-data", "pki", "ca.crt"), filepath.Join(dir, "stele-data", "pki", "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)

	// issue makes an administrator's certificate; without an authority it signs itself.
	issue := func(from, until time.Duration, signed bool) *tls.Certificate {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
			NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(until),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		parent, signer := template, any(key)
		if signed {
			parent, signer = ca.Leaf, ca.PrivateKey
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	for name, tc := range map[string]struct {
		certificate *tls.Certificate
		want        int
	}{
		"none":          {nil, http.StatusUnauthorized},
		"valid":         {issue(-time.Hour, time.Hour, true), http.StatusOK},
		"expired":       {issue(-2*time.Hour, -time.Hour, true), http.StatusUnauthorized},
		"not yet valid": {issue(time.Hour, 2*time.Hour, true), http.StatusUnauthorized},
		"self-signed":   {issue(-time.Hour, time.Hour, false), http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
			if tc.certificate != nil {
				transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return tc.certificate, nil }
			}
			defer transport.CloseIdleConnections()
			resp, err := (&http.Client{Transport: transport}).Get(config.Host + "/api/v1/namespaces")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != tc.want {
				t.Errorf("answered with %s, want %d", resp.Status, tc.want)
			}
			if tc.want == http.StatusOK {
				return
			}
			var s metav1.Status
			if err := json.NewDecoder(resp.Body).Decode(&s); err != nil || s.Reason != metav1.StatusReasonUnauthorized || s.Message != "Unauthorized" {
				t.Errorf("answered with %+v, %v", s, err)
			}
		})
	}
}
