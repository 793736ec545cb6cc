package main

import (
	"os"
	"os/exec"

	"github.com/spf13/cobra"
	"stele.dev/stele/schemas/workers"
)

// evaluateApart is a worker that evaluates what only CUE can check.
func evaluateApart() (*exec.Cmd, error) {
	// On Linux this is the program that runs here, also after another version has been
	// installed in its place: that might make something else of a policy.
	program := "/proc/self/exe"
	if _, err := os.Stat(program); err != nil {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(program, "policy", "evaluate")
	cmd.Args[0] = "stele" // whatever the file is called
	return cmd, nil
}

// evaluateCommand is the other end of evaluateApart.
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
