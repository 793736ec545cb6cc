package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check, activate and inspect policies",
		Args:  noArguments,
	}
	cmd.AddCommand(vetCommand(), pushCommand(), showCommand(), explainCommand(), rollbackCommand(), policyLogCommand(), compileCommand(), configsCommand(), evaluateCommand())
	return cmd
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
