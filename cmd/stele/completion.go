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

// completionForKubectl returns the command that prints pluginCompletion.
func completionForKubectl() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl",
		Short: "Generate the program with which kubectl completes `kubectl stele`",
		Long: `Kubectl completes the arguments of a plugin with a second program. Write the output to a file named
kubectl_complete-stele in a folder of $PATH, and make it executable.`,
		Example: `  stele completion kubectl > kubectl_complete-stele
  chmod +x kubectl_complete-stele`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), pluginCompletion)
			return err
		},
	}
}
