package main

import (
	"fmt"
	"net"

	"github.com/spf13/pflag"
	"k8s.io/client-go/util/cert"
	cliflag "k8s.io/component-base/cli/flag"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/serve/server"
	"stele.dev/stele/limits/reload"
)

// servingOptions are the flags on how the API is served by TLS. Their names, values and meaning are those of kube-apiserver, and of
// kube-controller-manager.
type servingOptions struct {
	certificates server.CertificateFiles
	rootCAFile   string
	advertise    net.IP
	minVersion   string
	cipherSuites []string
	socket       string
	socketMode   server.SocketMode
}

func (o *servingOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.certificates.Default.CertFile, "tls-cert-file", "", "PEM file of the certificate of the API, with those of intermediate authorities behind it; reloaded when it changes (default: one that the server's own authority signs)")
	f.StringVar(&o.certificates.Default.KeyFile, "tls-private-key-file", "", "PEM file of the private key of --tls-cert-file; reloaded when it changes")
	f.Var(cliflag.NewNamedCertKeyArray(&o.certificates.SNI), "tls-sni-cert-key", "PEM files of a certificate and its private key for clients that ask for one of some names, or for one of those in the certificate: cert,key or cert,key:name,*.name; may be repeated; reloaded when they change")
	f.StringVar(&o.rootCAFile, "root-ca-file", "", "PEM file of the authorities that verify --tls-cert-file, for clients of service accounts: ca.crt in their Secrets; read at the start, as by kube-controller-manager (default: the server's own authority)")
	f.IPVar(&o.advertise, "advertise-address", nil, "IP address at which other machines reach this server: other replicas show it, and tokens of service accounts are verified there (default: that of --listen, or else of the default network interface)")
	f.StringVar(&o.minVersion, "tls-min-version", "", "lowest version of TLS: VersionTLS12 or VersionTLS13 (default: VersionTLS12)")
	f.StringVar(&o.socket, "unix-socket", "", "path of a unix socket where the API is served, too: by TLS and with the same authentication, so that whoever may open it is nobody yet (default: none)")
	o.socketMode = 0o600
	f.Var(&o.socketMode, "unix-socket-mode", "permissions of --unix-socket in octal: who may connect")
	f.StringSliceVar(&o.cipherSuites, "tls-cipher-suites", nil, "cipher suites of TLS 1.2 (default: those with AES-GCM and ChaCha20-Poly1305)")
}

// apply sets what the flags say in the config of a plane.
func (o *servingOptions) apply(c *plane.Config) (err error) {
	c.AdvertiseAddress, c.Certificates = o.advertise, o.certificates
	if o.advertise.IsUnspecified() {
		return fmt.Errorf("--advertise-address %s: want the address of one network interface", o.advertise)
	}
	if o.rootCAFile != "" {
		if c.RootCA, err = readAuthorities(o.rootCAFile); err != nil {
			return fmt.Errorf("--root-ca-file: %w", err)
		}
	}
	if c.TLS, err = server.ParseTLS(o.minVersion, o.cipherSuites); err != nil {
		return err
	}
	return c.Certificates.Check()
}

// readAuthorities returns the content of a PEM file with certificates of authorities.
func readAuthorities(path string) ([]byte, error) {
	text, err := reload.Read(path)
	if err != nil {
		return nil, err
	}
	if _, err := cert.ParseCertsPEM(text); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}
