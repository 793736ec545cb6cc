// Package plugintest has what packages authorizertest and admissiontest share.
package plugintest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"stele.dev/stele/plugins/conformance"
)

// Start is a function that runs a plugin.
type Start func(ctx context.Context) (*conformance.Instance, error)

// Options are what a plugin needs for its tests.
type Options struct {
	// Config is a configuration that the plugin accepts, as JSON. Empty: that of the table.
	Config string
	// Secrets are the secrets that it needs. nil: those of the table.
	Secrets map[string]string
	// BadConfigs are configurations that it must refuse, in addition to those that every plugin refuses.
	BadConfigs []string
	// Table is the plugin's decision table; nil for none.
	Table *conformance.Table
}

// Table reads a decision table from a YAML or JSON file.
func Table(t testing.TB, file string) *conformance.Table {
	t.Helper()
	table, err := conformance.ReadTable(file)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// Run runs checks, and the table, as subtests.
func Run(t *testing.T, checks []conformance.Check, start Start, o Options) {
	table := o.Table
	if table == nil {
		table = new(conformance.Table)
	}
	subject := table.Subject(start)
	if o.Config != "" {
		subject.Config = []byte(o.Config)
	}
	for name, value := range o.Secrets {
		subject.Secrets[name] = []byte(value)
	}
	for _, config := range o.BadConfigs {
		subject.BadConfigs = append(subject.BadConfigs, []byte(config))
	}
	for _, check := range checks {
		t.Run(check.Name, func(t *testing.T) {
			if err := check.Run(t.Context(), subject); err != nil {
				t.Error(err)
			}
		})
	}
	if o.Table == nil {
		return
	}
	results, err := table.Play(t.Context(), subject)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		t.Run(r.Name, func(t *testing.T) {
			if !r.Passed {
				t.Errorf("%s %q: %s", r.Verdict, r.Reason, r.Wrong)
			}
		})
	}
}

// InProcess returns a Start that runs an [sdk.Plugin] in this process, so that a debugger and the race detector
// see its code.
func InProcess(plugin interface{ Register(grpc.ServiceRegistrar) }) Start {
	return func(context.Context) (*conformance.Instance, error) {
		listener := bufconn.Listen(1 << 20)
		server := grpc.NewServer(grpc.MaxRecvMsgSize(8 << 20))
		plugin.Register(server)
		go func() { _ = server.Serve(listener) }()
		conn, err := grpc.NewClient("passthrough:plugin", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		if err != nil {
			server.Stop()
			return nil, err
		}
		return conformance.NewInstance(conn, func() {
			_ = conn.Close()
			server.Stop()
		}), nil
	}
}

// Program returns a Start that runs a plugin's binary as stele runs it, and discards its output.
func Program(file string) Start { return conformance.Program(file, nil) }

// Build builds the command in a folder, and returns the path of the binary.
func Build(t testing.TB, folder string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plugin")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, ".") // smaller, as each start copies it
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("go build: %v", err)
	}
	return file
}
