package main

import (
	"os/exec"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/limits/child"
	"stele.dev/stele/schemas/workers"
)

// evaluateApart returns the command of a worker process, which checks the constraints that only CUE can check.
func evaluateApart() (*exec.Cmd, error) { return child.Command("policy", "evaluate") }

// evaluateCommand returns the hidden command that evaluateApart runs.
func evaluateCommand() *cobra.Command {
	return compiling.ChildCommand("evaluate", "Evaluate the requests on standard input, for a server", func(cmd *cobra.Command, _ []string) error {
		return workers.Work(cmd.InOrStdin(), cmd.OutOrStdout())
	})
}
