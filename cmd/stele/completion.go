package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// pluginCompletion is the script that kubectl runs to complete `kubectl stele`.
const pluginCompletion = `#!/bin/sh
# kubectl runs this as kubectl_complete-stele, found in $PATH, to complete "kubectl stele".
exec kubectl stele __complete "$@"
`

// completionForKubectl returns the command that prints this script.
func completionForKubectl() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl",
		Short: "Generate the program by which kubectl completes `kubectl stele`",
		Long: `Kubectl completes the arguments of a plugin by a program beside it. Write it into a folder
in $PATH by the name of kubectl_complete-stele, and let it be run.`,
		Example: `  stele completion kubectl > kubectl_complete-stele
  chmod +x kubectl_complete-stele`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), pluginCompletion)
			return err
		},
	}
}
