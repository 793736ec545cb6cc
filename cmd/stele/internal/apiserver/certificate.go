package apiserver

import (
	"errors"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// names are the names of the API inside of a cluster.
var names = []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes"}

// certificate returns the files of the certificate in --cert-dir. Like kube-apiserver, it makes one that signs itself if they are missing.
func certificate(folder string, bind net.IP, serve *pflag.FlagSet) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(folder, "apiserver.crt"), filepath.Join(folder, "apiserver.key")
	switch there, err := cert.CanReadCertAndKey(certFile, keyFile); {
	case err != nil:
		return "", "", err
	case there:
		return certFile, keyFile, nil
	}
	host, addresses := "localhost", []net.IP{net.IPv4(127, 0, 0, 1)}
	if advertise := serve.Lookup("advertise-address"); advertise.Changed {
		host = advertise.Value.String()
	} else if !bind.IsUnspecified() {
		host = bind.String()
	} else if name, err := os.Hostname(); err == nil {
		host = name
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, addresses, names)
	if err != nil {
		return "", "", err
	}
	return certFile, keyFile, errors.Join(keyutil.WriteKey(keyFile, key), cert.WriteCert(certFile, certificate))
}
