package build

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/version"
)

// Version is the version of stele.
// It is a variable so that a build can set it: -ldflags "-X stele.dev/stele/cmd/stele/internal/build.Version=1.2.3".
var Version = "0.1.0-dev"

// KubernetesVersion is the version of Kubernetes whose API stele serves.
const KubernetesVersion = "1.37.2"

// API returns the answer of /version: the version of the Kubernetes API, with stele's own version as build metadata.
func API() version.Info {
	commit, state, date := Info()
	return version.Info{
		Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "37", MinCompatibilityMajor: "1", MinCompatibilityMinor: "36", GitVersion: "v" + KubernetesVersion + "+stele-" + Version,
		GitCommit: commit, GitTreeState: state, BuildDate: cmp.Or(date, unknownDate),
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// Name returns the version of stele, and the commit from which it was built if that is known.
func Name() string {
	commit, state, _ := Info()
	if commit == "" {
		return Version
	}
	name := Version + "+" + commit[:min(12, len(commit))]
	if state == "dirty" {
		name += "-dirty"
	}
	return name
}

// unknownDate is the build date that Kubernetes' programs report if they have none.
const unknownDate = "1970-01-01T00:00:00Z"

// Info returns the commit from which the program was built, whether the working tree was clean or dirty, and the
// commit's date.
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
