package apiserver

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/client-go/util/cert"
	"stele.dev/stele/limits/durable"
)

// names are the names of the API inside of a cluster.
var names = []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes"}

// certificate returns the paths of the certificate in --cert-dir and of its key. If there is no certificate, it makes one that is signed by itself,
// as kube-apiserver does. other is one more name of the server in it; it may be empty.
func certificate(folder string, bind net.IP, other string, serve *pflag.FlagSet) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(folder, "apiserver.crt"), filepath.Join(folder, "apiserver.key")
	// The certificate is written last: a key alone is of a start that was interrupted.
	if _, err := os.Stat(certFile); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			_, err = cert.CanReadCertAndKey(certFile, keyFile)
		}
		return certFile, keyFile, err
	}
	host, addresses := "localhost", []net.IP{net.IPv4(127, 0, 0, 1)}
	if advertise := serve.Lookup("advertise-address"); advertise.Changed {
		host = advertise.Value.String()
	} else if !bind.IsUnspecified() {
		host = bind.String()
	} else if name, err := os.Hostname(); err == nil {
		host = name
	}
	others := names
	if other != "" {
		others = append(slices.Clone(names), other)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, addresses, others)
	if err != nil {
		return "", "", err
	}
	if err := durable.MakeFolder(folder); err != nil {
		return "", "", err
	}
	if err := write(keyFile, key); err != nil {
		return "", "", err
	}
	return certFile, keyFile, write(certFile, certificate)
}

func write(file string, text []byte) error {
	return durable.WriteFile(file, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
