package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"
	"stele.dev/stele/plugins/admissionpb"
	"stele.dev/stele/plugins/authorizerpb"
)

const (
	answerBytes   = 64 << 10 // maximum size of a decision
	describeBytes = 4 << 20  // maximum size of a description
	// connectTimeout is the timeout of one attempt: on a busy machine, TLS alone can take longer than a second.
	connectTimeout = 5 * time.Second
)

// instance is a process and the connection to it.
type instance struct {
	process *process
	record  *record
	conn    *grpc.ClientConn
	health  grpc_health_v1.HealthClient
	is      *authorizerpb.DescribeResponse // its description of itself

	// The services of plugins, and whether the program has them.
	authorizer authorizerpb.AuthorizerClient
	admission  admissionpb.AdmissionClient
	has        Services

	lost chan struct{} // closed when the connection broke
	// answered is set if it has answered a question since the last health check.
	answered atomic.Bool
}

// newInstance starts and configures a plugin. Its errors are for operators. If it fails, it leaves nothing behind.
func (p *plugin) newInstance(ctx context.Context) (*instance, error) {
	ctx, cancel := context.WithTimeout(ctx, p.host.options.StartTimeout)
	defer cancel()
	secrets, err := readSecrets(p.host.options.SecretsDir, p.spec.Secrets)
	if err != nil {
		return nil, err
	}
	return p.open(ctx, func(i *instance) error { return i.configure(ctx, p, secrets) })
}

// open starts a plugin, gets its description and checks its health, and then calls then.
func (p *plugin) open(ctx context.Context, then func(*instance) error) (i *instance, err error) {
	i = &instance{lost: make(chan struct{})}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("starting it failed by a fault of the server: %v\n%s", r, debug.Stack())
		}
		if err != nil {
			i.end()
			i = nil
		}
	}()
	folder, err := p.host.newFolder()
	if err != nil {
		return i, err
	}
	i.record = p.host.newRecord(folder)
	if err := i.record.write(); err != nil {
		return i, err
	}
	path, err := copyProgram(p.host.options.Dir, &p.spec, folder)
	if err != nil {
		return i, err
	}
	i.process = p.newProcess(path, i.record)
	defer context.AfterFunc(ctx, i.process.kill)() // the process's end also ends the waits below
	address, config, err := i.greet(folder, p.goPlugin(), p.host.options.StartTimeout)
	if err != nil {
		return i, i.explainError(ctx, i.misgreeted(err))
	}
	if err := i.dial(address, config); err != nil {
		return i, err
	}
	if err := i.describe(ctx); err != nil {
		return i, i.explainError(ctx, err)
	}
	p.says.Store(&Description{i.is, i.has})
	if err := i.healthy(ctx); err != nil {
		return i, i.explainError(ctx, fmt.Errorf("it has no health: let it serve grpc.health.v1 for the service %q: %w", goplugin.GRPCServiceName, err))
	}
	if err := then(i); err != nil {
		return i, i.explainError(ctx, err)
	}
	return i, nil
}

func (p *plugin) newProcess(path string, r *record) *process {
	return &process{
		path: path, name: p.spec.Name, folder: r.Folder, record: r, start: p.host.launch, done: make(chan struct{}),
		stdout: p.output("stdout"), stderr: p.output("stderr"),
	}
}

// greet starts the program, and returns the address from its greeting.
func (i *instance) greet(folder string, log *lines, timeout time.Duration) (string, *goplugin.ClientConfig, error) {
	config := &goplugin.ClientConfig{
		HandshakeConfig:  authorizerpb.Handshake,
		VersionedPlugins: map[int]goplugin.PluginSet{authorizerpb.ProtocolVersion: {}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     timeout,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: folder},
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: log, JSONFormat: true}),
	}
	config.RunnerFunc = func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
		i.process.env = cmd.Env
		return i.process, nil
	}
	// Only this part of go-plugin's client is used: the rest has no deadlines, and ignores errors.
	address, err := goplugin.NewClient(config).Start()
	if err != nil {
		return "", nil, err
	}
	if address.Network() != "unix" || !strings.HasPrefix(address.String(), folder+string(filepath.Separator)) {
		return "", nil, fmt.Errorf("it listens on %s %s: let it make a unix socket in the folder of the environment variable %s", address.Network(), address, goplugin.EnvUnixSocketDir)
	}
	if config.TLSConfig.RootCAs == nil {
		return "", nil, errors.New("it greets without a certificate: let it serve TLS with AutoMTLS, for the client certificate in PLUGIN_CLIENT_CERT")
	}
	return address.String(), config, nil
}

func (i *instance) dial(address string, config *goplugin.ClientConfig) (err error) {
	dialer := net.Dialer{}
	i.conn, err = grpc.NewClient("passthrough:///plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", address)
		}),
		grpc.WithTransportCredentials(credentials.NewTLS(config.TLSConfig)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: connectTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerBytes)),
		grpc.WithMaxHeaderListSize(answerBytes),
		grpc.WithUnaryInterceptor(sendSpan),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
	)
	if err != nil {
		return err
	}
	i.authorizer, i.admission = authorizerpb.NewAuthorizerClient(i.conn), admissionpb.NewAdmissionClient(i.conn)
	i.health = grpc_health_v1.NewHealthClient(i.conn)
	go i.readOutput()
	return nil
}

// readOutput reads the plugin's output after its greeting. go-plugin's server sends it over the connection, and blocks the
// plugin if nobody reads it.
func (i *instance) readOutput() {
	message, err := protoregistry.GlobalTypes.FindMessageByName("plugin.StdioData")
	if err != nil {
		panic(err) // go-plugin registers it
	}
	fields := message.Descriptor().Fields()
	channel, data := fields.ByName("channel"), fields.ByName("data")
	stderr := message.Descriptor().Enums().ByName("Channel").Values().ByName("STDERR").Number()
	// This waits for the first connection, however many attempts that takes: only an established one can be lost.
	stream, err := i.conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, "/plugin.GRPCStdio/StreamStdio", grpc.WaitForReady(true))
	if err == nil {
		if err = stream.SendMsg(&emptypb.Empty{}); err == nil {
			err = stream.CloseSend()
		}
	}
	for err == nil {
		m := message.New()
		if err = stream.RecvMsg(m.Interface()); err == nil {
			into := i.process.stdout
			if m.Get(channel).Enum() == stderr {
				into = i.process.stderr
			}
			_, _ = into.Write(m.Get(data).Bytes())
		}
	}
	if status.Code(err) != codes.Unimplemented && !errors.Is(err, io.EOF) {
		close(i.lost)
	}
}

func (i *instance) configure(ctx context.Context, p *plugin, secrets map[string][]byte) error {
	for _, name := range i.is.GetSecrets() {
		if _, given := secrets[name]; !given {
			return fmt.Errorf("it needs the secret %q: add it to the plugin's secrets in the policy", name)
		}
	}
	for _, s := range i.services() {
		if _, err := s.Configure(ctx, &authorizerpb.ConfigureRequest{Config: p.spec.Config, Secrets: secrets}); err != nil {
			return fmt.Errorf("it refuses its configuration: %s", message(err))
		}
	}
	p.log.Info("a plugin is ready", "program", i.is.GetName(), "version", i.is.GetVersion(), "pid", i.process.pid)
	return nil
}

func (i *instance) healthy(ctx context.Context) error {
	answer, err := i.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: goplugin.GRPCServiceName})
	if err != nil {
		return errors.New(message(err))
	}
	if s := answer.GetStatus(); s != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("its status is %s", s)
	}
	return nil
}

// misgreeting is an error that describes a wrong greeting.
type misgreeting string

func (m misgreeting) Error() string { return string(m) }

var errLate = errors.New("no greeting came")

// misgreeted turns go-plugin's error about a greeting, which only its text describes, into a misgreeting or errLate.
func (i *instance) misgreeted(err error) error {
	greeting := i.process.greeting()
	parts := strings.Split(greeting, "|")
	switch {
	case len(parts) < 4 && greeting != "":
		return misgreeting(fmt.Sprintf("it wrote %.100q to stdout before its greeting: let it write to stderr only", greeting))
	case len(parts) > 1 && strings.Contains(err.Error(), "incompatible"):
		return misgreeting(fmt.Sprintf("it speaks version %.20q of the protocol, and this server speaks %d: use a build of it for this server", parts[1], authorizerpb.ProtocolVersion))
	case strings.Contains(err.Error(), "timeout while waiting"):
		return fmt.Errorf("%w: %w", errLate, err)
	}
	return err
}

// explainError returns the cause of an error while starting, with what to do about it.
func (i *instance) explainError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w: is %s on a file system that runs no programs? Give the server a folder for its state, or a TMPDIR, on another", err, i.process.folder)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: it is not a program for %s", err, System)
	case !i.process.started():
		return err
	}
	greeting := i.process.greeting()
	late := ctx.Err() != nil || errors.Is(err, errLate)
	switch {
	case errors.As(err, new(misgreeting)):
		return err
	case late && greeting == "":
		return errors.New("it has not greeted in time: let it serve before it does anything that takes long, see docs/PLUGINS.md")
	case late:
		return fmt.Errorf("it has not started in time: %w", err)
	}
	// If it exits by itself, that is the cause of the error. Without a greeting its output has ended, so that it most
	// likely exits.
	exits := 100 * time.Millisecond
	if greeting == "" {
		exits = time.Second
	}
	select {
	case <-i.process.done:
		if greeting == "" {
			return fmt.Errorf("%w: it has to greet as a plugin does, see docs/PLUGINS.md", i.process.ended())
		}
		return fmt.Errorf("%w: %w", err, i.process.ended())
	case <-time.After(exits):
		return err
	}
}

// end kills the process, and removes its files.
func (i *instance) end() {
	if i.process != nil {
		i.process.end()
	}
	if i.conn != nil {
		i.conn.Close()
	}
	if i.record != nil {
		os.RemoveAll(i.record.Folder)
		i.record.remove()
	}
}

func message(err error) string {
	return fmt.Sprintf("%.1000s", status.Convert(err).Message())
}
