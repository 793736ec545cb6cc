package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	"stele.dev/stele/limits/reload"
)

// The flags of the files, as in kube-apiserver.
const (
	certFlag = "tls-cert-file"
	keyFlag  = "tls-private-key-file"
	sniFlag  = "tls-sni-cert-key"
)

// CertificateFiles are the files of the certificates that a server was given, each with its private key, in PEM.
type CertificateFiles struct {
	// Default is served unless one of SNI fits better; the server's own certificate if it has no files.
	Default cliflag.NamedCertKey
	// SNI are served to clients that ask for one of their names, or else for a name in the certificate. The first one wins.
	SNI []cliflag.NamedCertKey
}

// Given reports whether there are any files.
func (f CertificateFiles) Given() bool { return f.Default.CertFile != "" || len(f.SNI) > 0 }

// Check returns an error for files that do not belong together.
func (f CertificateFiles) Check() error {
	if (f.Default.CertFile == "") != (f.Default.KeyFile == "") {
		return fmt.Errorf("--%s and --%s belong together: give both", certFlag, keyFlag)
	}
	return nil
}

// CertificateOptions are the options of [NewCertificates].
type CertificateOptions struct {
	Files CertificateFiles
	// Own returns the certificate that the server issued itself. It is served to clients that ask for OwnName, whatever
	// the files are, so that clients that trust the server's own authority can always connect.
	Own     func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	OwnName string
	// Every is how often the files are read; 0 for every second.
	Every  time.Duration
	Logger *slog.Logger
}

// Certificates chooses the certificate of each handshake, as kube-apiserver does. It reads the files again when they
// change. Its methods are safe for concurrent use.
type Certificates struct {
	options  CertificateOptions
	pairs    []*pair // the default first, if it has files
	files    []*reload.File
	metrics  *reload.Metrics
	notAfter *prometheus.GaugeVec
	current  atomic.Pointer[choice]
}

// pair is a certificate with its key.
type pair struct {
	flag    string
	from    cliflag.NamedCertKey
	current atomic.Pointer[tls.Certificate]

	// What was read last, and from when on it is valid, are of the goroutine that reads the files.
	cert, key []byte
	notBefore time.Time // the zero time if they are no pair
}

// choice is what there is to choose from. It is immutable.
type choice struct {
	all   []*tls.Certificate // in the order in which they are tried for a client that asks for no name of names
	names map[string]*tls.Certificate
}

// NewCertificates reads the files. Its errors name the flag.
func NewCertificates(o CertificateOptions) (*Certificates, error) {
	if o.Every <= 0 {
		o.Every = time.Second
	}
	c := &Certificates{
		options: o, metrics: reload.NewMetrics("serving"),
		notAfter: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "stele_serving_certificate_not_after_seconds", Help: "When a certificate that the server was given expires, in Unix time.",
		}, []string{"flag", "file"}),
	}
	if o.Files.Default.CertFile != "" {
		c.pairs = append(c.pairs, &pair{flag: certFlag, from: o.Files.Default})
	}
	for _, from := range o.Files.SNI {
		c.pairs = append(c.pairs, &pair{flag: sniFlag, from: from})
	}
	for _, p := range c.pairs {
		content, err := p.read()
		if err == nil {
			err = c.load(p, true)
		}
		if err != nil {
			return nil, fmt.Errorf("--%s %s: %w", p.flag, p.from.CertFile, err)
		}
		c.files = append(c.files, &reload.File{
			Path: p.from.CertFile, Content: content, Read: p.read, Outcome: c.metrics.Outcome(o.Logger, p.flag, p.from.CertFile),
			Load: func(context.Context, []byte) error { return c.load(p, false) },
		})
	}
	c.choose()
	return c, nil
}

// Metrics returns the metrics of the files.
func (c *Certificates) Metrics() []prometheus.Collector {
	return []prometheus.Collector{c.metrics, c.notAfter}
}

// Run reads the files again when they change, until the context ends. A pair that cannot be used leaves the former one in
// use; that is logged and counted once.
func (c *Certificates) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, f := range c.files {
		g.Go(func() error { return f.Run(ctx, c.options.Every) })
	}
	<-ctx.Done()
	return g.Wait()
}

// read returns the content of both files, and whether the certificate is valid already, so that one that was put there too
// early is loaded later.
func (p *pair) read() (content []byte, err error) {
	cert, err := reload.Read(p.from.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := reload.Read(p.from.KeyFile)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(cert, p.cert) || !bytes.Equal(key, p.key) { // the files are read each second
		p.cert, p.key, p.notBefore = cert, key, time.Time{}
		if parsed, err := tls.X509KeyPair(cert, key); err == nil {
			p.notBefore = parsed.Leaf.NotBefore
		}
	}
	content = slices.Concat(cert, []byte{0}, key)
	if time.Now().Before(p.notBefore) {
		content = append(content, "not valid yet"...)
	}
	return content, nil
}

// load puts in use what was read last. At the start, when there is no other pair, it accepts one that is not valid now, as
// kube-apiserver does.
func (c *Certificates) load(p *pair, start bool) error {
	parsed, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return fmt.Errorf("it and the key in %s cannot be used: %w", p.from.KeyFile, err)
	}
	if err := validNow(parsed.Leaf); err != nil && !start {
		return err
	} else if err != nil {
		c.options.Logger.Error("clients will refuse the certificate of the server", "flag", "--"+p.flag, "file", p.from.CertFile, "error", err)
	}
	if info, err := os.Stat(p.from.KeyFile); err == nil && info.Mode().Perm()&0o007 != 0 {
		c.options.Logger.Warn("every user of this machine may read or write a private key: run chmod o= "+p.from.KeyFile, "flag", "--"+p.flag)
	}
	p.current.Store(&parsed)
	c.metrics.InUse(p.flag+" "+p.from.CertFile, parsed.Leaf.Raw)
	c.notAfter.WithLabelValues(p.flag, p.from.CertFile).Set(float64(parsed.Leaf.NotAfter.Unix()))
	if !start {
		c.choose()
	}
	return nil
}

// validNow returns an error unless a certificate is valid at this moment.
func validNow(leaf *x509.Certificate) error {
	switch now := time.Now(); {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the certificate expired at %s", leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s", leaf.NotBefore.Format(time.RFC3339))
	}
	return nil
}

// choose makes the choice of what is in use now. Two calls at once leave one with all that both know.
func (c *Certificates) choose() {
	for {
		before := c.current.Load()
		made := &choice{names: map[string]*tls.Certificate{}}
		explicit := map[string]*tls.Certificate{}
		for _, p := range c.pairs {
			certificate := p.current.Load()
			made.all = append(made.all, certificate)
			if p.flag == certFlag {
				continue
			}
			if len(p.from.Names) > 0 {
				addNames(explicit, p.from.Names, certificate)
			} else {
				addNames(made.names, namesOf(certificate.Leaf), certificate)
			}
		}
		for name, certificate := range explicit { // what the operator says wins
			made.names[name] = certificate
		}
		if c.current.CompareAndSwap(before, made) {
			return
		}
	}
}

// addNames adds the names of a certificate to those of the ones before it, which win.
func addNames(into map[string]*tls.Certificate, names []string, certificate *tls.Certificate) {
	for _, name := range names {
		if name = strings.ToLower(name); into[name] == nil {
			into[name] = certificate
		}
	}
}

// namesOf returns the names in a certificate for which it is served. As in kube-apiserver, addresses are not among them,
// because clients do not ask for addresses.
func namesOf(leaf *x509.Certificate) (names []string) {
	cn := leaf.Subject.CommonName
	if net.ParseIP(cn) == nil && (cn == "*" || len(validation.IsDNS1123Subdomain(strings.TrimPrefix(cn, "*."))) == 0) {
		names = append(names, cn)
	}
	return append(names, leaf.DNSNames...)
}

// Get is for [tls.Config].GetCertificate.
func (c *Certificates) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := c.current.Load()
	name := strings.ToLower(hello.ServerName)
	if name == c.options.OwnName {
		return c.options.Own(hello)
	}
	if found := now.find(name, hello); found != nil {
		return found, nil
	}
	if c.options.Files.Default.CertFile == "" {
		return c.options.Own(hello)
	}
	for _, certificate := range now.all {
		if hello.SupportsCertificate(certificate) == nil {
			return certificate, nil
		}
	}
	return now.all[0], nil
}

// find returns the certificate for the name that the client asks for, also by a wildcard; or else for the address that it
// connects to. nil if there is none.
func (n *choice) find(name string, hello *tls.ClientHelloInfo) *tls.Certificate {
	if len(n.names) == 0 {
		return nil
	}
	if name == "" {
		host, _, err := net.SplitHostPort(hello.Conn.LocalAddr().String())
		if err != nil {
			return nil
		}
		return n.names[host]
	}
	if found := n.names[name]; found != nil {
		return found
	}
	if _, rest, found := strings.Cut(name, "."); found {
		return n.names["*."+rest]
	}
	return n.names["*"]
}
