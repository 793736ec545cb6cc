package apiserver_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/pflag"
	"stele.dev/stele/cmd/stele/internal/apiserver"
)

// start parses flags and sets those of serve, as a start does. It returns the certificate that is served.
func start(t *testing.T, args ...string) *x509.Certificate {
	t.Helper()
	serve := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	for _, name := range []string{"listen", "data-dir", "host", "tls-cert-file", "tls-private-key-file", "authentication-config"} {
		serve.String(name, "", "")
	}
	serve.Bool("profiling", false, "")
	serve.Bool("anonymous-auth", false, "")
	serve.IP("advertise-address", nil, "")
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	var f apiserver.Flags
	f.AddFlags(own, pflag.NewFlagSet("", pflag.ContinueOnError))
	if err := own.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := f.Set(serve); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(serve.Lookup("tls-cert-file").Value.String())
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func TestTheCertificateOfTheFolderIsMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	made := start(t, "--cert-dir", dir, "--external-hostname", "api.example.com")
	for _, name := range []string{"api.example.com", "kubernetes.default.svc"} {
		if !slices.Contains(made.DNSNames, name) {
			t.Errorf("the certificate is for %v, not for %s", made.DNSNames, name)
		}
	}
	if again := start(t, "--cert-dir", dir); !again.Equal(made) {
		t.Error("a second start made another certificate")
	}
}

func TestAStartAfterAnInterruptedOneMakesTheCertificate(t *testing.T) {
	dir := t.TempDir()
	start(t, "--cert-dir", dir)
	if err := os.Remove(filepath.Join(dir, "apiserver.crt")); err != nil { // the key is written first
		t.Fatal(err)
	}
	start(t, "--cert-dir", dir)
}

func TestTheDefaultPolicyIsRead(t *testing.T) {
	source, err := apiserver.Policy()
	if err != nil {
		t.Fatal(err)
	}
	if len(source.Files) != 2 {
		t.Errorf("the bundle has %d files, want bundle.cue and module.cue", len(source.Files))
	}
}
