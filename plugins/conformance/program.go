package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"stele.dev/stele/plugins/authorizerpb"
)

// startTimeout is how long a program may take to say where it listens.
const startTimeout = 10 * time.Second

// Program starts a plugin from a file, as stele does: with nothing of this process's
// environment, and a folder of its own for the socket. What it prints goes to stderr, which
// may be nil.
func Program(file string, stderr io.Writer) func(ctx context.Context) (*Instance, error) {
	return func(ctx context.Context) (*Instance, error) {
		file, err := filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		folder, err := os.MkdirTemp("", "stele-")
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(file)
		cmd.Env = []string{plugin.EnvUnixSocketDir + "=" + folder}
		client := plugin.NewClient(&plugin.ClientConfig{
			HandshakeConfig:  authorizerpb.Handshake,
			VersionedPlugins: map[int]plugin.PluginSet{authorizerpb.ProtocolVersion: {authorizerpb.PluginName: dispensed{}}},
			Cmd:              cmd,
			SkipHostEnv:      true,
			AutoMTLS:         true,
			AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
			StartTimeout:     startTimeout,
			Logger:           hclog.NewNullLogger(),
			Stderr:           writer(stderr),
			SyncStdout:       writer(stderr),
			SyncStderr:       writer(stderr),
		})
		end := sync.OnceFunc(func() {
			client.Kill()
			_ = os.RemoveAll(folder)
		})
		connection, err := client.Client()
		if err == nil {
			err = connection.Ping()
		}
		var asked any
		if err == nil {
			asked, err = connection.Dispense(authorizerpb.PluginName)
		}
		if err != nil {
			end()
			return nil, fmt.Errorf("%s does not start as a plugin: %w", file, err)
		}
		return &Instance{AuthorizerClient: asked.(authorizerpb.AuthorizerClient), Close: end}, nil
	}
}

func writer(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// dispensed is the service, to go-plugin.
type dispensed struct{ plugin.NetRPCUnsupportedPlugin }

// GRPCServer implements [plugin.GRPCPlugin].
func (dispensed) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("this end asks")
}

// GRPCClient implements [plugin.GRPCPlugin].
func (dispensed) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return authorizerpb.NewAuthorizerClient(conn), nil
}
