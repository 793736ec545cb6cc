package sdk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"stele.dev/stele/plugins/admissionpb"
	"stele.dev/stele/plugins/authorizerpb"
)

const (
	// maxMessage is the maximum size of messages in both directions: stele sends at most two objects of 14 MiB together.
	maxMessage = 16 << 20
	// maxCalls is the maximum number of running calls, including those whose caller has gone: an
	// authorizer that hangs must not use up the memory.
	maxCalls = 1024
	// parentInterval is how often the plugin checks whether stele still runs.
	parentInterval = 500 * time.Millisecond
)

// Standard output is reserved for the handshake. It is replaced before the author's code runs, whose output
// goes to standard error, which stele logs.
var (
	isPlugin = os.Getenv(authorizerpb.Handshake.MagicCookieKey) == authorizerpb.Handshake.MagicCookieValue
	stdout   = os.Stdout
	stderr   = os.Stderr
	parent   = os.Getppid()
)

func init() {
	if isPlugin {
		os.Stdout = stderr
	}
}

// Serve is the main function of a plugin: it serves until stele ends it, or stele itself has ended. If a
// person runs the program, Serve prints what it is, and exits with status 1.
func Serve[C any](p Plugin[C]) {
	if !isPlugin {
		name := filepath.Base(os.Args[0])
		fmt.Fprintf(stderr, "%s %s is %s, which stele starts by itself. To see whether it would:\n\n  stele plugin check %s\n", p.Name, p.Version, p.kind(), "./"+name)
		os.Exit(1)
	}
	if p.New == nil && p.NewAdmission == nil {
		fmt.Fprintln(stderr, "sdk.Plugin: New or NewAdmission is missing")
		os.Exit(1)
	}
	go endWithParent()
	go endWithInput()
	handshake, err := handshakeOnly()
	if err != nil {
		fmt.Fprintln(stderr, err)
		os.Exit(1)
	}
	os.Stdout = handshake
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  authorizerpb.Handshake,
		VersionedPlugins: map[int]plugin.PluginSet{authorizerpb.ProtocolVersion: {p.service(): &served{register: p.Register}}},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, grpc.UnaryInterceptor(printing()),
				grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxCalls))...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: stderr, JSONFormat: true}),
	})
}

// kind says what the plugin is, for people.
func (p Plugin[C]) kind() string {
	switch {
	case p.NewAdmission == nil:
		return "an authorizer plugin"
	case p.New == nil:
		return "an admission plugin"
	}
	return "an authorizer and admission plugin"
}

// service returns the name of the plugin's services for go-plugin, which uses it for nothing else.
func (p Plugin[C]) service() string {
	if p.New == nil {
		return admissionpb.PluginName
	}
	return authorizerpb.PluginName
}

// served implements [plugin.GRPCPlugin].
type served struct {
	plugin.NetRPCUnsupportedPlugin
	register func(grpc.ServiceRegistrar)
}

// GRPCServer implements [plugin.GRPCPlugin].
func (s *served) GRPCServer(_ *plugin.GRPCBroker, to *grpc.Server) error {
	s.register(to)
	return nil
}

// GRPCClient implements [plugin.GRPCPlugin].
func (*served) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this is the server")
}

// handshakeOnly returns a file that go-plugin uses as standard output: it passes the line of the handshake to
// standard output, and all other lines to standard error.
func handshakeOnly() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	handshake := fmt.Sprintf("%d|%d|", plugin.CoreProtocolVersion, authorizerpb.ProtocolVersion)
	go func() {
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			to := stderr
			if strings.HasPrefix(line, handshake) {
				to = stdout
			}
			_, _ = io.WriteString(to, line)
			if err != nil {
				return
			}
		}
	}()
	return w, nil
}

// printing returns an interceptor that makes standard output and standard error plain standard error again
// at the first call: go-plugin has replaced them, and would block the author's code until its lines are read.
func printing() grpc.UnaryServerInterceptor {
	var once sync.Once
	return func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		once.Do(func() { os.Stdout, os.Stderr = stderr, stderr })
		return handle(ctx, r)
	}
}

// endWithInput ends the process when its standard input ends: stele holds the other end of the pipe, and
// never writes to it. A standard input that is not a pipe is ignored.
func endWithInput() {
	if info, err := os.Stdin.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	end()
}

// endWithParent ends the process when its parent has ended in any way: nobody else would end it.
func endWithParent() {
	for range time.Tick(parentInterval) {
		if os.Getppid() != parent {
			end()
		}
	}
}

func end() {
	fmt.Fprintln(stderr, "stele has ended")
	os.Exit(1)
}
