package plane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"

	"stele.dev/stele/core/aggregation"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/run/clientca"
	"stele.dev/stele/limits/reload"
)

// ProxyClient are the files of the client certificate that the plane shows to aggregated API servers, named like kube-apiserver's flags
// --proxy-client-cert-file and --proxy-client-key-file. They are read for each new connection.
type ProxyClient struct{ CertFile, KeyFile string }

// Check returns an error for files that do not belong together.
func (f ProxyClient) Check() error {
	if (f.CertFile == "") != (f.KeyFile == "") {
		return errors.New("--proxy-client-cert-file and --proxy-client-key-file belong together: give both")
	}
	return nil
}

// proxyFolder is the folder in PKIDir with the authority of the plane's own certificate for aggregated API servers. It is no authority of
// clients: who has a certificate of it may name any user to such a server.
const proxyFolder = "front-proxy"

// proxyClient is the client certificate that aggregated API servers are shown: that of the files, or else one of an authority that is made
// when a policy first names such a server. It is safe for concurrent use.
type proxyClient struct {
	files ProxyClient
	dir   string // of the certificate, which is this plane's
	ca    string // the folder of the authority, which all planes on the log share

	mu        sync.Mutex
	authority *pki.Authority   // guarded by mu; nil before it is needed, and with files
	current   *tls.Certificate // guarded by mu; nil before it is needed, and with files
}

// certificate returns the certificate. It renews the plane's own one before that expires.
func (c *proxyClient) certificate() (*tls.Certificate, error) {
	if c.files.CertFile != "" {
		cert, err := reload.Read(c.files.CertFile)
		if err != nil {
			return nil, fmt.Errorf("--proxy-client-cert-file: %w", err)
		}
		key, err := reload.Read(c.files.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--proxy-client-key-file: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("--proxy-client-cert-file %s: it and the key in %s cannot be used: %w", c.files.CertFile, c.files.KeyFile, err)
		}
		return &pair, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil {
		return nil, err
	}
	return c.current, nil
}

// load makes the authority and the certificate if they are missing, or renews the certificate if that is due. The caller holds mu.
func (c *proxyClient) load() error {
	if c.authority == nil {
		unlock, err := pki.Lock(c.ca) // replicas that share the folder may need it at once
		if err != nil {
			return err
		}
		defer unlock()
		if c.authority, err = pki.LoadAuthority(c.ca); err != nil {
			return err
		}
	}
	if c.current != nil && !c.authority.Due(c.current.Leaf) {
		return nil
	}
	unlock, err := pki.Lock(c.dir)
	if err != nil {
		return err
	}
	defer unlock()
	pair, err := c.authority.Client(c.dir, clientca.ProxyName, clientca.ProxyName, nil)
	if err != nil {
		return err
	}
	parsed, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err == nil {
		c.current = &parsed
	}
	return err
}

// authorities returns the plane's own authority; none with files, whose authority only the operator knows.
func (c *proxyClient) authorities() ([]*x509.Certificate, error) {
	if c.files.CertFile != "" {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil {
		return nil, err
	}
	return []*x509.Certificate{c.authority.Cert}, nil
}

// openAggregation makes what passes requests on to aggregated API servers.
func (p *Plane) openAggregation(context.Context) error {
	files := p.config.ProxyClient
	if err := files.Check(); err != nil {
		return err
	}
	p.proxyClient = &proxyClient{files: files, dir: p.path("pki"), ca: p.pki(proxyFolder)}
	if files.CertFile != "" {
		if _, err := p.proxyClient.certificate(); err != nil {
			return err
		}
	}
	p.aggregation = aggregation.New(aggregation.Options{Law: p.Committer, Certificate: p.proxyClient.certificate, Logger: p.config.Logger})
	return p.register(p.aggregation.Metrics())
}

// publishedProxies returns the authorities that aggregated API servers need to believe the plane; none if the policy in force names no such
// servers.
func (p *Plane) publishedProxies() []*x509.Certificate {
	in := p.Committer.Tip().Policy
	if in == nil || len(in.Aggregates()) == 0 {
		return nil
	}
	list, err := p.proxyClient.authorities()
	if err != nil {
		p.config.Logger.Error("the client certificate for aggregated API servers could not be made", "folder", p.pki(proxyFolder), "error", err)
	}
	return list
}
