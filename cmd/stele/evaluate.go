package main

import (
	"os/exec"

	"github.com/spf13/cobra"
	"stele.dev/stele/core/apart"
	"stele.dev/stele/schemas/workers"
)

// evaluateApart returns a worker, which evaluates what only CUE can check.
func evaluateApart() (*exec.Cmd, error) { return apart.Command("policy", "evaluate") }

// evaluateCommand is the child process of evaluateApart.
func evaluateCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "evaluate",
		Short:  "Evaluate what is asked on standard input, for a server",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return workers.Work(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
