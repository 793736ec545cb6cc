// Package authorizertest tests authorizer plugins: that they pass the checks for every plugin, and that they
// decide as a decision table says.
//
//	func TestPlugin(t *testing.T) {
//		table := authorizertest.Table(t, "decisions.yaml")
//		authorizertest.Run(t, authorizertest.InProcess(plugin), authorizertest.Options{Table: table})
//		authorizertest.Run(t, authorizertest.Program(authorizertest.Build(t, ".")), authorizertest.Options{Table: table})
//	}
//
// `stele plugin check` and `stele plugin test` do the same for programs without their source.
package authorizertest

import (
	"testing"

	"google.golang.org/grpc"
	"stele.dev/stele/plugins/conformance"
	"stele.dev/stele/plugins/sdk/internal/plugintest"
)

// Start is a function that runs a plugin.
type Start = plugintest.Start

// Options are what a plugin needs for its tests.
type Options = plugintest.Options

// Table reads a decision table from a YAML or JSON file.
func Table(t testing.TB, file string) *conformance.Table {
	t.Helper()
	return plugintest.Table(t, file)
}

// Run runs all checks, and the table, as subtests.
func Run(t *testing.T, start Start, o Options) {
	t.Helper()
	plugintest.Run(t, conformance.Checks(), start, o)
}

// InProcess returns a Start that runs an [sdk.Plugin] in this process, so that a debugger and the race detector
// see its code.
func InProcess(plugin interface{ Register(grpc.ServiceRegistrar) }) Start {
	return plugintest.InProcess(plugin)
}

// Program returns a Start that runs a plugin's binary as stele runs it, and discards its output.
func Program(file string) Start { return plugintest.Program(file) }

// Build builds the command in a folder, and returns the path of the binary.
func Build(t testing.TB, folder string) string {
	t.Helper()
	return plugintest.Build(t, folder)
}
