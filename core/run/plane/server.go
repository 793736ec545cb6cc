package plane

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"

	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/run/clientca"
	"stele.dev/stele/core/serve/server"
	"stele.dev/stele/limits/connections"
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
	p.handover = server.NewHandover(p.guard.Listener(p.config.Listener))
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

// credentials creates the server's certificate and the administrator's kubeconfig, if they are missing.
func (p *Plane) credentials() (*pki.ServerCertificate, error) {
	hosts := append([]string{"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}, p.config.Hosts...)
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	if tcp, ok := p.config.Listener.Addr().(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() && !tcp.IP.IsLoopback() {
		hosts = append(hosts, tcp.IP.String())
	}
	if err := os.MkdirAll(p.path("pki"), 0o700); err != nil { // PKIDir may be another folder
		return nil, err
	}
	certificate, err := p.authority.ServerCertificate(p.path("pki"), hosts)
	if err != nil {
		return nil, err
	}
	admin, err := p.authority.Client(p.path("pki"), "admin", "admin", []string{user.SystemPrivilegedGroup})
	if err != nil {
		return nil, err
	}
	config, err := p.authority.Kubeconfig("https://"+p.Address(), "admin", admin)
	if err != nil {
		return nil, err
	}
	if there, err := os.ReadFile(p.Kubeconfig()); err == nil && bytes.Equal(there, config) {
		return certificate, os.Chmod(p.Kubeconfig(), 0o600)
	}
	if err := pki.WritePrivate(p.Kubeconfig(), config); err != nil { // reads are served from a full disk, too
		p.config.Logger.Error("the kubeconfig of the administrator could not be written", "file", p.Kubeconfig(), "error", err)
	}
	return certificate, nil
}
