package build

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/version"
)

// Version of stele.
const Version = "0.1.0-dev"

// KubernetesVersion is the version of the Kubernetes API that is followed.
const KubernetesVersion = "1.37.2"

// API is what /version answers: to clients, the version of the API that they
// talk to, and what serves it as build metadata.
func API() version.Info {
	commit, state, date := Info()
	return version.Info{
		Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "37", MinCompatibilityMajor: "1", MinCompatibilityMinor: "36", GitVersion: "v" + KubernetesVersion + "+stele-" + Version,
		GitCommit: commit, GitTreeState: state, BuildDate: cmp.Or(date, unknownDate),
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// unknownDate is what Kubernetes' own programs answer when their build has no date.
const unknownDate = "1970-01-01T00:00:00Z"

func Info() (commit, state, date string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", "", ""
	}
	state = "clean"
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.time":
			date = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				state = "dirty"
			}
		}
	}
	return commit, state, date
}
