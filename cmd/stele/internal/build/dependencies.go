package build

import "runtime/debug"

// mainDependencies are the modules whose versions an operator asks for: what keeps the log and the past, what policies are written
// in, and whose API is served.
var mainDependencies = []string{
	"cuelang.org/go", "github.com/cockroachdb/pebble/v2", "github.com/google/cel-go", "go.etcd.io/etcd/server/v3", "go.etcd.io/raft/v3", "k8s.io/apiserver",
}

// Module is a Go module that the program was built with.
type Module struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

// Dependencies returns the main modules that the program was built with, by path. It returns nil for a program that does not
// name its modules.
func Dependencies() []Module {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	versions := map[string]string{}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = &debug.Module{Path: d.Path, Version: d.Replace.Version}
		}
		versions[d.Path] = d.Version
	}
	var found []Module
	for _, path := range mainDependencies {
		if v := versions[path]; v != "" {
			found = append(found, Module{path, v})
		}
	}
	return found
}
