package main

import (
	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/policytest"
	"stele.dev/stele/cmd/stele/internal/pushing"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/cmd/stele/internal/vetting"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check, activate and inspect policies",
		Args:  usage.NoArguments,
	}
	cmd.AddCommand(vetting.Command(), pushing.PushCommand(), showCommand(), explainCommand(), pushing.RollbackCommand(), policyLogCommand(), compiling.Command(), configsCommand(), evaluateCommand(), policytest.Command(), policytest.SuiteCommand())
	return cmd
}
