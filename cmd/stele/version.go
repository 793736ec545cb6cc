package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/build"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// versionDocument is the JSON of the version.
type versionDocument struct {
	APIVersion        string         `json:"apiVersion"`
	Kind              string         `json:"kind"`
	Version           string         `json:"version"`
	Commit            string         `json:"commit,omitempty"`
	TreeState         string         `json:"treeState,omitempty"`
	BuildDate         string         `json:"buildDate,omitempty"`
	KubernetesVersion string         `json:"kubernetesVersion"`
	GoVersion         string         `json:"goVersion"`
	Platform          string         `json:"platform"`
	Dependencies      []build.Module `json:"dependencies,omitempty"`
}

// newVersionDocument returns the version of this program.
func newVersionDocument() versionDocument {
	commit, state, date := build.Info()
	return versionDocument{
		APIVersion: client.DocumentVersion, Kind: "Version", Version: build.Version, Commit: commit, TreeState: state, BuildDate: date,
		KubernetesVersion: build.KubernetesVersion, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Dependencies: build.Dependencies(),
	}
}

// versionText returns the version as text.
func versionText() string {
	v := newVersionDocument()
	text := "stele " + v.Version + "\n"
	if v.Commit != "" {
		text += fmt.Sprintf("commit %s (%s)\n", v.Commit, v.TreeState)
	}
	text += fmt.Sprintf("Kubernetes API %s, %s, %s\n", v.KubernetesVersion, v.GoVersion, v.Platform)
	for _, d := range v.Dependencies {
		text += fmt.Sprintf("with %s %s\n", d.Path, d.Version)
	}
	return text
}

func versionCommand() *cobra.Command {
	o := &show.FormatFlags{}
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program: its commit, and what it was built with",
		Example: "  stele version -o json",
		Args:    usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Format != "" {
				return o.Document(cmd, newVersionDocument())
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionText())
			return err
		},
	}
	o.AddFlags(cmd, "json", "yaml")
	return cmd
}
