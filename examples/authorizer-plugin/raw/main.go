// Command raw is the plugin in the parent folder without the SDK and without go-plugin: it implements the
// protocol of docs/PLUGINS.md with gRPC and the generated code only, as a plugin in another language does.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"
	"stele.dev/stele/plugins/authorizerpb"
)

func main() {
	log.SetFlags(0) // to standard error, which stele logs; standard output is for the handshake alone
	if os.Getenv("STELE_AUTHORIZER_PLUGIN") != "6f1c2b0e-stele-authorizer" {
		log.Fatalf("%s is an authorizer plugin, which stele starts by itself", os.Args[0])
	}
	if !slices.Contains(strings.Split(os.Getenv("PLUGIN_PROTOCOL_VERSIONS"), ","), "1") {
		log.Fatal("this plugin supports version 1 of the protocol only")
	}
	go func() { // nothing is written to standard input; it ends when stele ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		log.Fatal("stele has ended")
	}()
	if err := serve(); err != nil {
		log.Fatal(err)
	}
}

// serve listens, prints the address, and serves until stele asks it to stop.
func serve() error {
	identity, certificate, err := newIdentity()
	if err != nil {
		return err
	}
	stele := x509.NewCertPool()
	if !stele.AppendCertsFromPEM([]byte(os.Getenv("PLUGIN_CLIENT_CERT"))) {
		return fmt.Errorf("PLUGIN_CLIENT_CERT has no certificate")
	}
	listener, err := net.Listen("unix", filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), fmt.Sprintf("plugin-%d", os.Getpid())))
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(8<<20), grpc.MaxConcurrentStreams(1024),
		grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{identity}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: stele, MinVersion: tls.VersionTLS12})))
	authorizerpb.RegisterAuthorizerServer(server, new(authorizer))
	healthy := health.NewServer()
	healthy.SetServingStatus("plugin", grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, healthy)
	server.RegisterService(&controller, server)
	fmt.Printf("1|1|unix|%s|grpc|%s\n", listener.Addr(), base64.RawStdEncoding.EncodeToString(certificate))
	return server.Serve(listener)
}

// controller is the service by which stele stops a plugin. Its messages have no fields.
var controller = grpc.ServiceDesc{
	ServiceName: "plugin.GRPCController",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Shutdown", Handler: func(server any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if err := read(new(emptypb.Empty)); err != nil {
			return nil, err
		}
		go server.(*grpc.Server).GracefulStop() // after the answer
		time.AfterFunc(time.Second, func() { os.Exit(0) })
		return new(emptypb.Empty), nil
	}}},
}

// newIdentity makes a key and a certificate for this process, with the name localhost. stele trusts the
// certificate in the handshake.
func newIdentity() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key}, certificate, err
}
