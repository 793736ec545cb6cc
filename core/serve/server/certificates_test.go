package server_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	cliflag "k8s.io/component-base/cli/flag"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/serve/server"
)

// site is a folder with certificates, and a server that has them.
type site struct {
	*testing.T
	dir          string
	own          *pki.ServerCertificate
	log          bytes.Buffer
	certificates *server.Certificates
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, dir: t.TempDir()}
	s.own = must(authority(t).ServerCertificate(t.TempDir(), []string{"own.example"}))(t)
	return s
}

func must[V any](v V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// files returns the files of a pair.
func (s *site) files(name string, names ...string) cliflag.NamedCertKey {
	return cliflag.NamedCertKey{CertFile: filepath.Join(s.dir, name+".crt"), KeyFile: filepath.Join(s.dir, name+".key"), Names: names}
}

func (s *site) write(file string, content []byte) {
	s.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		s.Fatal(err)
	}
}

// issue returns a new certificate for hosts, which is valid for an hour from now on.
func (s *site) issue(hosts ...string) pki.Pair {
	s.Helper()
	return s.issueFrom(time.Now(), hosts...)
}

// issueFrom returns a new certificate for hosts, which is valid for an hour.
func (s *site) issueFrom(begin time.Time, hosts ...string) pki.Pair {
	s.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(s)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: hosts, NotBefore: begin, NotAfter: begin.Add(time.Hour)}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(s)
	return pki.Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))(s)}),
	}
}

// put writes a new pair for hosts to the files of a name.
func (s *site) put(name string, hosts ...string) cliflag.NamedCertKey {
	s.Helper()
	files := s.files(name)
	s.replace(files, s.issue(hosts...))
	return files
}

// replace writes a pair to its files.
func (s *site) replace(files cliflag.NamedCertKey, pair pki.Pair) {
	s.Helper()
	s.write(files.CertFile, pair.Cert)
	s.write(files.KeyFile, pair.Key)
}

func (s *site) open(files server.CertificateFiles) error {
	made, err := server.NewCertificates(server.CertificateOptions{
		Files: files, Own: s.own.Get, OwnName: pki.OwnName, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	})
	s.certificates = made
	return err
}

func (s *site) mustOpen(files server.CertificateFiles) {
	s.Helper()
	if err := s.open(files); err != nil {
		s.Fatal(err)
	}
}

// served returns the first name of the certificate that a client gets which asks for a name.
func (s *site) served(name string) string {
	s.Helper()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	go func() {
		conn := tls.Server(there, &tls.Config{GetCertificate: s.certificates.Get})
		_ = conn.Handshake()
		_, _ = io.Copy(io.Discard, conn)
	}()
	conn := tls.Client(here, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err := conn.Handshake(); err != nil {
		s.Fatal(err)
	}
	return conn.ConnectionState().PeerCertificates[0].DNSNames[0]
}

// reloads returns how many reloads failed, and how many did not.
func (s *site) reloads() (failed, succeeded float64) {
	s.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.certificates.Metrics()...)
	families := must(registry.Gather())(s)
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				switch {
				case f.GetName() != "stele_serving_file_reloads_total" || l.GetName() != "status":
				case l.GetValue() == "failure":
					failed += m.Counter.GetValue()
				default:
					succeeded += m.Counter.GetValue()
				}
			}
		}
	}
	return failed, succeeded
}

// The choice is that of kube-apiserver: names that the operator gives win over those in certificates, whole names over
// wildcards, the first certificate over later ones, and --tls-cert-file is for all others.
func TestACertificateIsChosenByTheNameThatTheClientAsksFor(t *testing.T) {
	s := newSite(t)
	given := s.put("given", "given.example")
	given.Names = []string{"a.example", "*.b.example"}
	s.mustOpen(server.CertificateFiles{
		Default: s.put("default", "default.example"),
		SNI: []cliflag.NamedCertKey{
			s.put("first", "first.example", "a.example", "twice.example"), s.put("second", "second.example", "*.c.example", "twice.example"), given,
			s.put("whole", "whole.example", "x.c.example"),
		},
	})
	for name, want := range map[string]string{
		"default.example": "default.example", "unknown.example": "default.example", "": "default.example",
		"first.example": "first.example", "FIRST.example": "first.example", "twice.example": "first.example",
		"a.example": "given.example", "x.b.example": "given.example", "y.x.b.example": "default.example", "given.example": "given.example",
		"y.c.example": "second.example", "x.c.example": "whole.example",
		"own.example": "default.example", pki.OwnName: "own.example",
	} {
		if got := s.served(name); got != want {
			t.Errorf("a client that asks for %q gets the certificate of %s, want %s", name, got, want)
		}
	}
}

func TestTheOwnCertificateIsTheDefault(t *testing.T) {
	s := newSite(t)
	s.mustOpen(server.CertificateFiles{SNI: []cliflag.NamedCertKey{s.put("other", "other.example")}})
	for name, want := range map[string]string{"": "own.example", "unknown.example": "own.example", "other.example": "other.example"} {
		if got := s.served(name); got != want {
			t.Errorf("a client that asks for %q gets the certificate of %s, want %s", name, got, want)
		}
	}
}

func TestFilesThatCannotBeUsedRefuseTheStart(t *testing.T) {
	s := newSite(t)
	good, cut := s.put("good", "good.example"), s.put("cut", "cut.example")
	s.write(cut.CertFile, s.issue("cut.example").Cert[:100])
	for name, tc := range map[string]struct {
		files server.CertificateFiles
		want  string
	}{
		"another key":  {server.CertificateFiles{Default: cliflag.NamedCertKey{CertFile: good.CertFile, KeyFile: cut.KeyFile}}, "--tls-cert-file " + good.CertFile + ": it and the key in " + cut.KeyFile + " cannot be used: tls: private key does not match public key"},
		"half":         {server.CertificateFiles{Default: cut}, "cannot be used"},
		"missing":      {server.CertificateFiles{Default: s.files("missing")}, "no such file"},
		"missing, SNI": {server.CertificateFiles{SNI: []cliflag.NamedCertKey{good, s.files("missing")}}, "--tls-sni-cert-key " + s.files("missing").CertFile + ": "},
	} {
		if err := s.open(tc.files); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	if err := (server.CertificateFiles{Default: cliflag.NamedCertKey{CertFile: "a"}}).Check(); err == nil {
		t.Error("a certificate without a key is accepted")
	}
}

func TestAPairThatCannotBeUsedLeavesTheFormerOneInUse(t *testing.T) {
	for name, spoil := range map[string]func(s *site, files cliflag.NamedCertKey){
		"its key is another one": func(s *site, files cliflag.NamedCertKey) { s.write(files.CertFile, s.issue("bad.example").Cert) },
		"it is half written": func(s *site, files cliflag.NamedCertKey) {
			pair := s.issue("bad.example")
			s.replace(files, pki.Pair{Cert: pair.Cert[:len(pair.Cert)/2], Key: pair.Key})
		},
		"it is empty": func(s *site, files cliflag.NamedCertKey) { s.write(files.CertFile, nil) },
		"it is gone":  func(s *site, files cliflag.NamedCertKey) { _ = os.Remove(files.CertFile) },
		"it has expired": func(s *site, files cliflag.NamedCertKey) {
			s.replace(files, s.issueFrom(time.Now().Add(-2*time.Hour), "bad.example"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				files := s.put("default", "former.example")
				s.mustOpen(server.CertificateFiles{Default: files})
				go s.certificates.Run(t.Context())
				spoil(s, files)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if got := s.served(""); got != "former.example" {
					t.Errorf("the certificate of %s is served", got)
				}
				if failed, _ := s.reloads(); failed != 1 || strings.Count(s.log.String(), "what it said before stays in use") != 1 {
					t.Errorf("%v failures were counted, and logged:\n%s", failed, s.log.String())
				}
				s.put("default", "next.example")
				time.Sleep(3 * time.Second)
				if got := s.served(""); got != "next.example" {
					t.Errorf("after a good pair was written, the certificate of %s is served", got)
				}
			})
		})
	}
}

func TestACertificateOfTheFutureIsServedOnceItIsValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		files := s.put("default", "now.example")
		s.mustOpen(server.CertificateFiles{Default: files})
		go s.certificates.Run(t.Context())
		s.replace(files, s.issueFrom(time.Now().Add(time.Minute), "later.example"))
		time.Sleep(50 * time.Second)
		if got := s.served(""); got != "now.example" {
			t.Errorf("the certificate of %s is served before it is valid", got)
		}
		time.Sleep(20 * time.Second)
		if got := s.served(""); got != "later.example" {
			t.Errorf("the certificate of %s is served although the other one is valid", got)
		}
	})
}

func TestAnExpiredCertificateIsServedIfThereIsNoOther(t *testing.T) {
	s := newSite(t)
	files := s.files("default")
	s.replace(files, s.issueFrom(time.Now().Add(-2*time.Hour), "old.example"))
	s.mustOpen(server.CertificateFiles{Default: files})
	if got := s.served(""); got != "old.example" || !strings.Contains(s.log.String(), "the certificate expired at ") {
		t.Errorf("the certificate of %s is served, and the log says:\n%s", got, s.log.String())
	}
}

func TestAKeyThatEverybodyMayReadIsReported(t *testing.T) {
	s := newSite(t)
	files := s.put("default", "x.example")
	s.mustOpen(server.CertificateFiles{Default: files})
	if s.log.Len() > 0 {
		t.Errorf("a key of its owner is reported: %s", s.log.String())
	}
	if err := errors.Join(os.Chmod(files.KeyFile, 0o644), s.open(server.CertificateFiles{Default: files})); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s.log.String(), "run chmod o= "+files.KeyFile) {
		t.Errorf("the log says:\n%s", s.log.String())
	}
}
