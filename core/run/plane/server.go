package plane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/run/clientca"
	"stele.dev/stele/core/serve/server"
	"stele.dev/stele/limits/connections"
	"stele.dev/stele/limits/steady"
)

// serve serves the listener, if there is one, from now on: the front answers until Run puts the API in its place.
func (p *Plane) serve(context.Context) error {
	if p.config.Listener == nil {
		return nil
	}
	certificate, err := p.credentials()
	if err != nil {
		return err
	}
	p.certificate, p.front = certificate, &front{startup: p.startup}
	p.guard = connections.New(p.config.Connections.WithDefaults(p.config.Memory))
	if err := p.register(p.guard.Metrics()); err != nil {
		return err
	}
	p.server = p.newServer(server.WithGoaway(p.front, p.config.GoawayChance))
	listeners := []net.Listener{p.guard.Listener(p.config.Listener)}
	if p.config.Socket != nil {
		listeners = append(listeners, p.guard.Listener(p.config.Socket))
	}
	p.handover = server.NewHandover(listeners...)
	p.served = make(chan error, 1)
	listener := p.handover.Listener()
	go func() { p.served <- p.server.ServeTLS(listener, "", "") }()
	p.onClose(func() error {
		if err := errors.Join(p.server.Close(), p.handover.Close()); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return nil
}

// openPublisher makes the publisher of the authorities that the server trusts.
func (p *Plane) openPublisher() (err error) {
	p.publisher, err = clientca.New(clientca.Options{API: p.Pipeline, ClientCA: p.clients.Certificates, FrontProxy: p.frontProxy, Logger: p.config.Logger})
	return err
}

// getCertificate returns the certificate for a handshake.
type getCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// credentials creates the server's own certificate and the administrator's kubeconfig, if they are missing, and reads the
// files of certificates.
func (p *Plane) credentials() (getCertificate, error) {
	hosts := append([]string{"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}, p.config.Hosts...)
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	if tcp, ok := p.config.Listener.Addr().(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() && !tcp.IP.IsLoopback() {
		hosts = append(hosts, tcp.IP.String())
	}
	if host, _, err := net.SplitHostPort(p.advertise); err == nil && !slices.Contains(hosts, host) {
		hosts = append(hosts, host)
	}
	if err := os.MkdirAll(p.path("pki"), 0o700); err != nil { // PKIDir may be another folder
		return nil, err
	}
	var err error
	if p.own, err = p.authority.ServerCertificate(p.path("pki"), hosts); err != nil {
		return nil, err
	}
	p.renewAdministrator()
	if !p.config.Certificates.Given() {
		return p.own.Get, nil
	}
	p.certificates, err = server.NewCertificates(server.CertificateOptions{
		Files: p.config.Certificates, Own: p.own.Get, OwnName: pki.OwnName, Every: p.config.Authentication.ReloadEvery, Logger: p.config.Logger,
	})
	if err != nil {
		return nil, err
	}
	return p.certificates.Get, p.register(p.certificates.Metrics())
}

// advertised returns the host and port at which other machines reach the listener, as far as that is known.
func (p *Plane) advertised() string {
	ip := p.config.AdvertiseAddress
	if p.config.Listener == nil {
		return ""
	}
	tcp, ok := p.config.Listener.Addr().(*net.TCPAddr)
	if ok && ip == nil && tcp.IP.IsUnspecified() {
		ip, _ = utilnet.ResolveBindAddress(net.IPv4zero) // as kube-apiserver does; a listener at 0.0.0.0 is at [::], too
	}
	if !ok || ip == nil {
		return p.Address()
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(tcp.Port))
}

// administrator is the certificate in the administrator's kubeconfig.
type administrator struct {
	leaf    *x509.Certificate // nil if it could not be issued
	written bool              // the kubeconfig has it
}

// renewAdministrator issues the certificate of the administrator again if it is missing, expires soon or is revoked, and then
// writes the kubeconfig. The certificate before it stays valid until it expires or is revoked. If a file cannot be written,
// the API is served nevertheless.
func (p *Plane) renewAdministrator() {
	a := &p.administrator
	if a.written && !p.authority.Due(a.leaf) && !p.revocations.Has(a.leaf) {
		return
	}
	if err := p.writeAdministrator(); err != nil {
		p.config.Logger.Error("the kubeconfig of the administrator could not be written", "file", p.Kubeconfig(), "error", err)
	}
}

func (p *Plane) writeAdministrator() error {
	a := &p.administrator
	a.written = false
	pair, err := p.authority.ClientExcept(p.path("pki"), "admin", "admin", []string{user.SystemPrivilegedGroup}, p.revocations.Has)
	if err != nil {
		return err
	}
	parsed, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return err
	}
	renewed := a.leaf != nil && !a.leaf.Equal(parsed.Leaf)
	a.leaf = parsed.Leaf
	serverName := ""
	if p.config.Certificates.Given() { // the kubeconfig trusts the plane's own authority
		serverName = pki.OwnName
	}
	config, err := p.authority.Kubeconfig("https://"+p.Address(), serverName, "admin", pair)
	if err != nil {
		return err
	}
	if there, err := os.ReadFile(p.Kubeconfig()); err == nil && bytes.Equal(there, config) {
		err = os.Chmod(p.Kubeconfig(), 0o600)
		a.written = err == nil
		return err
	}
	if err := pki.WritePrivate(p.Kubeconfig(), config); err != nil {
		return err
	}
	if a.written = true; renewed {
		p.config.Logger.Info("the certificate of the administrator was renewed", "file", p.Kubeconfig(), "until", a.leaf.NotAfter)
	}
	return nil
}

// keepCertificates renews the certificates that the plane's own authority signs while the server runs.
func (p *Plane) keepCertificates(ctx context.Context) error {
	for range steady.Every(ctx, renewalsEvery) {
		p.renewAdministrator()
		if err := p.own.Renew(); err != nil {
			p.config.Logger.Error("the certificate of the server could not be renewed", "folder", p.path("pki"), "error", err)
		}
	}
	return ctx.Err()
}

// renewalsEvery is how often it is checked whether these certificates must be renewed.
const renewalsEvery = time.Minute
