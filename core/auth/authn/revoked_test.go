package authn_test

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"stele.dev/stele/core/auth/authn"
)

// spellings are how a certificate is written into the file.
func spellings(c *x509.Certificate) map[string]string {
	sum := fmt.Sprintf("%x", sha256.Sum256(c.Raw))
	var pairs []string
	for i := 0; i < len(sum); i += 2 {
		pairs = append(pairs, strings.ToUpper(sum[i:i+2]))
	}
	serial := fmt.Sprintf("%X", c.SerialNumber)
	return map[string]string{
		"the fingerprint":                    sum,
		"as credential-id shows it":          "X509SHA256=" + sum,
		"as openssl 3 prints it":             "sha256 Fingerprint=" + strings.Join(pairs, ":"),
		"as openssl 1 prints it":             "SHA256 Fingerprint=" + strings.Join(pairs, ":"),
		"the serial number":                  "serial=" + serial,
		"the serial number, with zeros":      "serial=00" + strings.ToLower(serial),
		"with a comment":                     sum + " # the laptop",
		"after other lines, without newline": "# stolen\n\n" + strings.Repeat("00", 32) + "\r\n  " + sum,
	}
}

func TestARevokedCertificateIsNoCredential(t *testing.T) {
	ca, alice := client(t)
	bob := issued(t, ca, "bob")
	for spelled, line := range spellings(alice) {
		o := accepting(t, ca)
		var log said
		var err error
		if o.Revocations, err = authn.NewRevocations(file(t, line), log.logger()); err != nil {
			t.Errorf("%s: %v", spelled, err)
			continue
		}
		a := newAuthenticator(t, o)
		if got := who(a, request(alice)); got != "" {
			t.Errorf("%s: it is %q", spelled, got)
		}
		if got := who(a, request(bob)); got != "bob" {
			t.Errorf("%s: the other one is %q", spelled, got)
		}
		if !log.contains("a revoked certificate was refused") || !log.contains(fmt.Sprintf("%x", sha256.Sum256(alice.Raw))) {
			t.Errorf("%s: operators are told %s", spelled, log.text.String())
		}
	}
}

func TestARevokedIntermediateShutsOutItsCertificates(t *testing.T) {
	root := newAuthority(t, "root")
	middle := root.issue(t, "middle", func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	leaf := signCertificate(t, &authority{middle.Leaf, middle.PrivateKey.(*ecdsa.PrivateKey)}, &x509.Certificate{
		Subject: pkix.Name{CommonName: "alice"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	ask := func() *http.Request {
		q := request(leaf.Leaf)
		q.TLS.PeerCertificates = append(q.TLS.PeerCertificates, middle.Leaf)
		return q
	}
	authorities, err := authn.NewAuthorities("", root.cert)
	if err != nil {
		t.Fatal(err)
	}
	o := authn.Options{Authorities: authorities}
	if got := who(newAuthenticator(t, o), ask()); got != "alice" {
		t.Fatalf("before: %q", got)
	}
	if o.Revocations, err = authn.NewRevocations(file(t, fmt.Sprintf("%x", sha256.Sum256(middle.Leaf.Raw))), nil); err != nil {
		t.Fatal(err)
	}
	if got := who(newAuthenticator(t, o), ask()); got != "" {
		t.Errorf("after: %q", got)
	}
}

// A connection that was let in is asked again.
func TestRevocationsChange(t *testing.T) {
	ca, alice := client(t)
	o := accepting(t, ca)
	path := file(t, "")
	var log said
	var err error
	if o.Revocations, err = authn.NewRevocations(path, log.logger()); err != nil {
		t.Fatal(err)
	}
	o.Logger = log.logger()
	a := running(t, o)
	open := request(alice)
	if got := who(a, open); got != "alice" {
		t.Fatalf("at first: %q", got)
	}
	replace(t, path, fmt.Sprintf("%x", sha256.Sum256(alice.Raw)))
	eventually(t, "the certificate is refused", func() bool { return who(a, open) == "" })
	replace(t, path, "# fine\nwhat?\n")
	eventually(t, "it is said which line is wrong", func() bool { return log.contains(":2: ") && log.contains("--revoked-certificates") })
	if got := who(a, open); got != "" {
		t.Errorf("while the file is wrong: %q", got)
	}
	replace(t, path, "")
	eventually(t, "the certificate is accepted again", func() bool { return who(a, open) == "alice" })
}

func TestALineThatIsNoCertificateIsAnError(t *testing.T) {
	for _, line := range []string{
		"alice", strings.Repeat("0", 63), strings.Repeat("0", 66), strings.Repeat("g", 64),
		"SHA1 Fingerprint=" + strings.Repeat("00", 20), strings.Repeat("00", 20), "serial=", "serial=-1", "serial=0x12", "serial=1_2", "name=alice",
	} {
		if _, err := authn.NewRevocations(file(t, "# one\n"+line+"\n"), nil); err == nil || !strings.Contains(err.Error(), ":2: ") {
			t.Errorf("%q: %v", line, err)
		}
	}
}
