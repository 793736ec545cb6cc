package main

import (
	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/documenting"
	"stele.dev/stele/cmd/stele/internal/explaining"
	"stele.dev/stele/cmd/stele/internal/exporting"
	"stele.dev/stele/cmd/stele/internal/importing"
	"stele.dev/stele/cmd/stele/internal/planning"
	"stele.dev/stele/cmd/stele/internal/policytest"
	"stele.dev/stele/cmd/stele/internal/pushing"

	"stele.dev/stele/cmd/stele/internal/scaffold"
	"stele.dev/stele/cmd/stele/internal/shadowing"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/cmd/stele/internal/vetting"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Write, check, activate and inspect policies",
		Args:  usage.NoArguments,
	}
	cmd.AddCommand(pushing.PublishCommand(), importing.Command(), exporting.Command(), documenting.Command())
	cmd.AddCommand(vetting.Command(), planning.Command(), pushing.PushCommand(), showCommand(), explaining.Command(), pushing.RollbackCommand(), policyLogCommand(), compiling.Command(), configsCommand(), evaluateCommand())
	cmd.AddCommand(policytest.Command(), policytest.SuiteCommand(), scaffold.InitCommand(), scaffold.AddCommand(), scaffold.VendorCommand(), scaffold.FormatCommand(), shadowing.Command())
	return cmd
}
