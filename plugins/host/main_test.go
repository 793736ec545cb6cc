package host_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"stele.dev/stele/plugins/admissionpb"
	"stele.dev/stele/plugins/authorizerpb"
)

// programs are the plugins that this test binary contains. It runs the one of its own file name, because
// plugins get none of the environment.
var programs = map[string]func(){
	"plugin":            func() { serve(authorizerpb.ProtocolVersion) },
	"plugin-old":        func() { serve(7) },
	"plugin-authorizer": func() { serve(authorizerpb.ProtocolVersion) },
	"plugin-two-faced":  func() { serve(authorizerpb.ProtocolVersion) },
	"plugin-nothing":    func() { serve(authorizerpb.ProtocolVersion) },
	"plugin-raw":        func() { serveRaw(false, nil) },
	"plugin-shy":        func() { serveRaw(true, nil) },
	"plugin-busy":       func() { serveRaw(false, &busy{}) },
	"plugin-exits":      func() { os.Exit(3) },
	"plugin-panics": func() {
		panic("out of order")
	},
	"plugin-silent":  func() { select {} },
	"plugin-chatty":  func() { fmt.Println("Hello, I am a plugin."); serve(authorizerpb.ProtocolVersion) },
	"plugin-endless": func() { _, _ = io.Copy(os.Stdout, zeros{}) },
	"plugin-tcp": func() {
		fmt.Printf("1|%d|tcp|127.0.0.1:1|grpc|\n", authorizerpb.ProtocolVersion)
		select {}
	},
	"plugin-plain": func() {
		fmt.Printf("1|%d|unix|%s/s|grpc|\n", authorizerpb.ProtocolVersion, os.Getenv(goplugin.EnvUnixSocketDir))
		select {}
	},
	"plugin-deaf": func() { // greets, and never accepts
		l, cert, _ := listen()
		greet(l, cert)
		select {}
	},
	"child":     func() { select {} },
	"test-host": hostProcess,
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestMain(m *testing.M) {
	if program := programs[filepath.Base(os.Args[0])]; program != nil {
		program()
		return
	}
	os.Exit(run(m))
}

// run runs the tests with a temporary folder of their own, so that no files of killed hosts are left. Its
// path is short, as it contains sockets.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("/tmp", "host")
	exitOn(err)
	defer os.RemoveAll(dir)
	exitOn(os.Setenv("TMPDIR", dir))
	flag.Parse()
	exitOn(flag.Set("test.parallel", "6")) // they mostly wait
	return m.Run()
}

func serve(version int) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  authorizerpb.Handshake,
		VersionedPlugins: map[int]goplugin.PluginSet{version: {authorizerpb.PluginName: served{}}},
		GRPCServer:       goplugin.DefaultGRPCServer,
		Logger:           hclog.NewNullLogger(),
	})
}

type served struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (served) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	a := &authorizer{}
	switch filepath.Base(os.Args[0]) {
	case "plugin-authorizer":
		authorizerpb.RegisterAuthorizerServer(s, a)
	case "plugin-two-faced":
		authorizerpb.RegisterAuthorizerServer(s, a)
		admissionpb.RegisterAdmissionServer(s, &reviewer{says: "another"})
	case "plugin-nothing":
	default:
		authorizerpb.RegisterAuthorizerServer(s, a)
		admissionpb.RegisterAdmissionServer(s, &reviewer{})
	}
	return nil
}

func (served) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return authorizerpb.NewAuthorizerClient(c), nil
}

// authorizer denies mallory, allows alice, and has no opinion on others. Some verbs make it misbehave.
type authorizer struct {
	authorizerpb.UnimplementedAuthorizerServer
	secrets map[string][]byte
	config  config
	calls   atomic.Int64
	floods  atomic.Int64 // that are over
	garbage func(level string)
}

type config struct {
	Generation string   `json:"generation,omitempty"`
	Refuse     string   `json:"refuse,omitempty"`
	Needs      []string `json:"needs,omitempty"`
}

func (a *authorizer) Describe(context.Context, *authorizerpb.DescribeRequest) (*authorizerpb.DescribeResponse, error) {
	r := &authorizerpb.DescribeResponse{Name: "test", Version: "1"}
	if filepath.Base(os.Args[0]) == "plugin-raw" {
		r.Secrets = []string{"token"}
	}
	return r, nil
}

func (a *authorizer) Configure(_ context.Context, q *authorizerpb.ConfigureRequest) (*authorizerpb.ConfigureResponse, error) {
	if len(q.Config) > 0 {
		if err := json.Unmarshal(q.Config, &a.config); err != nil {
			return nil, err
		}
	}
	if a.config.Refuse != "" {
		return nil, status.Error(codes.InvalidArgument, a.config.Refuse)
	}
	a.secrets = q.Secrets
	return &authorizerpb.ConfigureResponse{}, nil
}

func (a *authorizer) Authorize(ctx context.Context, q *authorizerpb.AuthorizeRequest) (*authorizerpb.AuthorizeResponse, error) {
	r := &authorizerpb.AuthorizeResponse{Decision: authorizerpb.Decision_DECISION_NO_OPINION}
	switch q.User.Name {
	case "alice":
		r.Decision = authorizerpb.Decision_DECISION_ALLOW
	case "mallory":
		r.Decision, r.Reason = authorizerpb.Decision_DECISION_DENY, "not you"
	}
	if misbehave := verbs[q.Verb]; misbehave != nil {
		return misbehave(ctx, a, q, r)
	}
	return r, nil
}

// verbs are the verbs that make authorizer do something special.
var verbs = map[string]func(context.Context, *authorizer, *authorizerpb.AuthorizeRequest, *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error){
	"pid": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		r.Reason = fmt.Sprint(os.Getpid())
		return r, nil
	},
	"trace": func(ctx context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		r.Reason = strings.Join(metadata.ValueFromIncomingContext(ctx, "traceparent"), " ")
		return r, nil
	},
	"generation": func(_ context.Context, a *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		r.Reason = a.config.Generation
		return r, nil
	},
	"environment": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		var names []string
		for _, v := range os.Environ() {
			name, _, _ := strings.Cut(v, "=")
			names = append(names, name)
		}
		r.Reason = strings.Join(names, " ")
		return r, nil
	},
	"secret": func(_ context.Context, a *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		r.Reason = string(a.secrets["token"])
		return r, nil
	},
	"health-asked": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		r.Reason = fmt.Sprint(healthAsked.Load())
		return r, nil
	},
	"count": func(_ context.Context, a *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		r.Reason = fmt.Sprint(a.calls.Add(1))
		return r, nil
	},
	"count-uncached": func(_ context.Context, a *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		r.Reason, r.CacheTtl = fmt.Sprint(a.calls.Add(1)), &durationpb.Duration{}
		return r, nil
	},
	"hang": func(ctx context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, _ *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	},
	"slow": func(ctx context.Context, a *authorizer, q *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
		r.Reason = fmt.Sprint(a.calls.Add(1))
		return r, nil
	},
	"stop": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		return r, syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	},
	"panic": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, _ *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		panic("of a plugin")
	},
	"error": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		return r, errors.New("the ticket system is down")
	},
	"unspecified": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, _ *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		return &authorizerpb.AuthorizeResponse{}, nil
	},
	"unknown": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		r.Decision = 17
		return r, nil
	},
	"invalid-utf8": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		r.ProtoReflect().SetUnknown([]byte{2<<3 | 2, 2, 0xff, 0xfe}) // the reason, again
		return r, nil
	},
	"oversized": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		r.Reason = strings.Repeat("x", 3<<20)
		return r, nil
	},
	"long-header": func(ctx context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		return r, grpc.SetTrailer(ctx, metadata.Pairs("x", strings.Repeat("x", 1<<20)))
	},
	"long-reason": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		r.Reason = strings.Repeat("ä", 5000)
		return r, nil
	},
	"negative-ttl": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		r.CacheTtl = durationpb.New(-time.Second)
		return r, nil
	},
	"print": func(_ context.Context, _ *authorizer, q *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		fmt.Fprintln(os.Stderr, q.GetPath())
		return r, nil
	},
	"flood": func(_ context.Context, a *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		go func() {
			for _, text := range []string{strings.Repeat("x", 1<<20), strings.Repeat("x\n", 1<<19)} { // a line that never ends, and then very many
				for range 5 { // which go-plugin sends by the kilobyte
					fmt.Print(text)
				}
			}
			a.floods.Add(1)
		}()
		return r, nil
	},
	"flood-raw": func(_ context.Context, a *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		go func() { // past go-plugin's own redirection
			for fd := range 2 {
				n, err := io.Copy(os.NewFile(uintptr(fd+1), "output"), io.LimitReader(zeros{}, 32<<20))
				exitOn(err)
				if n != 32<<20 {
					panic(n)
				}
			}
			a.floods.Add(1)
		}()
		return r, nil
	},
	"floods": func(_ context.Context, a *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		r.Reason = fmt.Sprint(a.floods.Load())
		return r, nil
	},
	"leak": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		return leak(r, false)
	},
	"leak-session": func(_ context.Context, _ *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		return leak(r, true)
	},
	"garbage-tls": func(_ context.Context, a *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		a.garbage("tls")
		return r, nil
	},
	"garbage-http": func(_ context.Context, a *authorizer, _ *authorizerpb.AuthorizeRequest, r *authorizerpb.AuthorizeResponse) (*authorizerpb.AuthorizeResponse, error) {
		a.garbage("http")
		return r, nil
	},
}

// leak starts a child that keeps the plugin's output open, and returns its process id.
func leak(r *authorizerpb.AuthorizeResponse, session bool) (*authorizerpb.AuthorizeResponse, error) {
	child := exec.Command("/proc/self/exe")
	child.Args = []string{"child"}
	child.Stdout, child.Stderr = os.NewFile(1, "stdout"), os.NewFile(2, "stderr")
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	if err := child.Start(); err != nil {
		return nil, err
	}
	r.Reason = fmt.Sprint(child.Process.Pid)
	return r, nil
}

// serveRaw is a plugin without go-plugin, so that it can send any bytes. If it is shy, it closes the first
// connection.
func serveRaw(shy bool, says grpc_health_v1.HealthServer) {
	l, cert, clients := listen()
	conns := &recorder{Listener: l, shy: shy}
	secure := &recorder{Listener: tls.NewListener(conns, &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, NextProtos: []string{"h2"},
	})}
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if method, _ := grpc.MethodFromServerStream(stream); !shy || !strings.HasPrefix(method, "/plugin.GRPCStdio/") {
			return status.Error(codes.Unimplemented, "no such service")
		}
		<-stream.Context().Done()
		return nil
	}))
	garbage := func(level string) {
		on := secure
		if level == "tls" {
			on = conns
		}
		c := *on.last.Load()
		_, _ = io.CopyN(c, rand.Reader, 100_000)
	}
	authorizerpb.RegisterAuthorizerServer(s, &authorizer{garbage: garbage})
	admissionpb.RegisterAdmissionServer(s, &reviewer{})
	healthy := health.NewServer()
	healthy.SetServingStatus(goplugin.GRPCServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	if says == nil {
		says = healthy
	}
	grpc_health_v1.RegisterHealthServer(s, says)
	greet(l, cert)
	_ = s.Serve(secure)
}

// busy answers only the first health check, at its start.
type busy struct {
	grpc_health_v1.UnimplementedHealthServer
}

var healthAsked atomic.Int64

func (*busy) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if healthAsked.Add(1) > 1 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

type recorder struct {
	net.Listener
	shy  bool
	last atomic.Pointer[net.Conn]
}

func (r *recorder) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err == nil && r.shy {
		r.shy = false
		c.Close()
		c, err = r.Listener.Accept()
	}
	if err == nil {
		r.last.Store(&c)
	}
	return c, err
}

func listen() (net.Listener, tls.Certificate, *x509.CertPool) {
	l, err := net.Listen("unix", filepath.Join(os.Getenv(goplugin.EnvUnixSocketDir), "s"))
	exitOn(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	exitOn(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	exitOn(err)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM([]byte(os.Getenv("PLUGIN_CLIENT_CERT")))
	return l, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, clients
}

func greet(l net.Listener, cert tls.Certificate) {
	fmt.Printf("1|%d|unix|%s|grpc|%s\n", authorizerpb.ProtocolVersion, l.Addr(), base64.RawStdEncoding.EncodeToString(cert.Certificate[0]))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// thisBinary returns the path of the test binary, and its checksum.
var thisBinary = sync.OnceValues(func() (path, sum string) {
	path, err := os.Executable()
	exitOn(err)
	file, err := os.Open(path)
	exitOn(err)
	defer file.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	exitOn(err)
	return path, fmt.Sprintf("%x", hash.Sum(nil))
})

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
