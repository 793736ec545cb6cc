package balance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Main is the program. It ends the process if it fails.
func Main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "balancer:", err)
		os.Exit(1)
	}
}

// run balances until a signal ends it.
func run() error {
	listen := flag.String("listen", "127.0.0.1:6443", "address for clients")
	servers := flag.String("servers", "", "addresses of the servers, with commas between them")
	ca := flag.String("ca", "", "file with the authority of the servers' certificates")
	every := flag.Duration("every", 500*time.Millisecond, "time between two health checks of a server")
	flag.Parse()
	if *servers == "" || *ca == "" || *every <= 0 || flag.NArg() > 0 {
		return errors.New("want --servers HOST:PORT,... and --ca FILE, and a positive --every")
	}
	roots := x509.NewCertPool()
	if pem, err := os.ReadFile(*ca); err != nil {
		return err
	} else if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s has no certificate", *ca)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	return New(Options{
		Servers: strings.Split(*servers, ","), TLS: &tls.Config{RootCAs: roots}, Every: *every, Logger: slog.Default(),
	}).Run(ctx, listener)
}
