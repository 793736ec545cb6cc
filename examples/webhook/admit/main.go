// Package admit is the program in the folder above, so that tests can run it.
package admit

import (
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Main runs the webhooks until a signal ends them.
func Main() {
	listen := flag.String("listen", "127.0.0.1:9443", "address to listen on; port 0 is any that is free, which the log names")
	dir := flag.String("cert-dir", "webhook-certs", "folder with tls.crt, tls.key and ca.crt, which are made if it does not exist")
	bundle := flag.String("ca-cue", "", "file of the policy that gets the certificate of the authority, as the CUE field _ca")
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	if err := run(*listen, *dir, *bundle); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(listen, dir, bundle string) error {
	if err := ensureCertificates(dir, "webhook.sites.svc"); err != nil {
		return err
	}
	if bundle != "" {
		ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
		if err != nil {
			return err
		}
		text := fmt.Sprintf("package sites\n\n_ca: \"\"\"\n\t%s\n\t\"\"\"\n", strings.ReplaceAll(strings.TrimSpace(string(ca)), "\n", "\n\t"))
		if err := os.WriteFile(bundle, []byte(text), 0o644); err != nil {
			return err
		}
	}
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	if port == 0 { // the library would take its default
		free, err := net.Listen("tcp", listen)
		if err != nil {
			return err
		}
		port = free.Addr().(*net.TCPAddr).Port
		if err := free.Close(); err != nil {
			return err
		}
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(groupVersion, &Site{})
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: dir})
	server.Register("/default", admission.WithDefaulter(scheme, sites{}))
	server.Register("/check", admission.WithValidator(scheme, sites{}))
	return server.Start(ctrl.SetupSignalHandler())
}
