package main

import "github.com/spf13/cobra"

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check, activate and inspect policies",
		Args:  noArguments,
	}
	cmd.AddCommand(vetCommand(), pushCommand(), showCommand(), explainCommand(), rollbackCommand(), policyLogCommand(), compileCommand(), configsCommand(), evaluateCommand())
	return cmd
}
