package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/version"
)

// Version of stele.
const Version = "0.1.0-dev"

// kubernetesVersion is the version of the Kubernetes API that is followed.
const kubernetesVersion = "1.37.2"

// apiVersion is what /version answers: to clients, the version of the API that they
// talk to, and what serves it as build metadata.
func apiVersion() version.Info {
	commit, state, date := build()
	return version.Info{
		Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "37", MinCompatibilityMajor: "1", MinCompatibilityMinor: "36", GitVersion: "v" + kubernetesVersion + "+stele-" + Version,
		GitCommit: commit, GitTreeState: state, BuildDate: cmp.Or(date, unknownDate),
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// unknownDate is what Kubernetes' own programs answer when their build has no date.
const unknownDate = "1970-01-01T00:00:00Z"

func build() (commit, state, date string) {
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

// versionDocument is the version for programs.
type versionDocument struct {
	APIVersion        string `json:"apiVersion"`
	Kind              string `json:"kind"`
	Version           string `json:"version"`
	Commit            string `json:"commit,omitempty"`
	TreeState         string `json:"treeState,omitempty"`
	BuildDate         string `json:"buildDate,omitempty"`
	KubernetesVersion string `json:"kubernetesVersion"`
	GoVersion         string `json:"goVersion"`
	Platform          string `json:"platform"`
}

func newVersionDocument() versionDocument {
	commit, state, date := build()
	return versionDocument{
		APIVersion: clientVersion, Kind: "Version", Version: Version, Commit: commit, TreeState: state, BuildDate: date,
		KubernetesVersion: kubernetesVersion, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// versionText is the version for people.
func versionText() string {
	v := newVersionDocument()
	text := "stele " + v.Version + "\n"
	if v.Commit != "" {
		text += fmt.Sprintf("commit %s (%s)\n", v.Commit, v.TreeState)
	}
	return text + fmt.Sprintf("Kubernetes API %s, %s, %s\n", v.KubernetesVersion, v.GoVersion, v.Platform)
}

func versionCommand() *cobra.Command {
	o := &formatOptions{}
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  stele version -o json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if o.format != "" {
				return (&output{Writer: cmd.OutOrStdout()}).document(o.format, newVersionDocument())
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionText())
			return err
		},
	}
	o.addFlags(cmd, "json", "yaml")
	return cmd
}
