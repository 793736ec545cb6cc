package plane

import (
	"net"
	"os"

	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/pki"
	"stele.dev/stele/core/server"
	"stele.dev/stele/core/trust"
)

// openServer makes the server for the listener, and the publisher of the authorities that it trusts.
func (p *Plane) openServer() error {
	certificate, err := p.credentials()
	if err != nil {
		return err
	}
	p.server = server.New(server.WithCORS(p.Pipeline, p.config.Origins), certificate.Get, p.clientAuthorities, p.config.Logger)
	p.publisher, err = trust.New(trust.Options{API: p.Pipeline, ClientCA: p.clients.Certificates, FrontProxy: p.frontProxy, Logger: p.config.Logger})
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
	return certificate, pki.WritePrivate(p.Kubeconfig(), config)
}
