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
	"stele.dev/stele/plugins/authorizerpb"
)

const (
	// maxMessage bounds messages in both directions. What stele accepts as a request is less.
	maxMessage = 8 << 20
	// maxCalls bounds the calls that run, those that nobody waits for any more included: an
	// authorizer that hangs must not take all memory.
	maxCalls = 1024
	// orphaned is how often is looked whether stele is still there.
	orphaned = 500 * time.Millisecond
)

// Standard output is how stele hears where the plugin listens. It is taken away before the
// author's code runs, and what that prints goes to standard error, which stele logs.
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

// Serve is the main function of a plugin: it serves until stele ends it, or is not there any
// more. Run by a person it says what it is, and exits with 1.
func Serve[C any](p Plugin[C]) {
	if !isPlugin {
		name := filepath.Base(os.Args[0])
		fmt.Fprintf(stderr, "%s %s is an authorizer plugin, which stele starts by itself. To see whether it would:\n\n  stele plugin check %s\n", p.Name, p.Version, "./"+name)
		os.Exit(1)
	}
	if p.New == nil {
		fmt.Fprintln(stderr, "sdk.Plugin: New is missing")
		os.Exit(1)
	}
	go endWithParent()
	go endWithInput()
	said, err := sayOnly()
	if err != nil {
		fmt.Fprintln(stderr, err)
		os.Exit(1)
	}
	os.Stdout = said
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  authorizerpb.Handshake,
		VersionedPlugins: map[int]plugin.PluginSet{authorizerpb.ProtocolVersion: {authorizerpb.PluginName: &served{register: p.Register}}},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, grpc.UnaryInterceptor(printing()),
				grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxCalls))...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: stderr, JSONFormat: true}),
	})
}

// served is what go-plugin wants of a plugin.
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
	return nil, errors.New("this end serves")
}

// sayOnly returns what go-plugin may take for standard output: where the plugin listens is
// let through, and what else is printed meanwhile goes to standard error.
func sayOnly() (*os.File, error) {
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

// printing gives the author's code standard error to print to, where go-plugin would keep
// it waiting until its lines are fetched. By the first call go-plugin has done so.
func printing() grpc.UnaryServerInterceptor {
	var once sync.Once
	return func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		once.Do(func() { os.Stdout, os.Stderr = stderr, stderr })
		return handle(ctx, r)
	}
}

// endWithInput ends the process when its standard input does: stele holds the other end, and
// never writes to it. What is no pipe is nobody's promise.
func endWithInput() {
	if info, err := os.Stdin.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	end()
}

// endWithParent ends the process when who started it has ended, however that came: nobody
// would ask it any more, or end it.
func endWithParent() {
	for range time.Tick(orphaned) {
		if os.Getppid() != parent {
			end()
		}
	}
}

func end() {
	fmt.Fprintln(stderr, "stele is gone")
	os.Exit(1)
}
