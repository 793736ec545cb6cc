package main

import (
	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// logRetentionCommand returns `stele store retention`.
func logRetentionCommand() *cobra.Command {
	var flags client.Flags
	var output show.OutputFlags
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Show how much of the past is kept of each kind",
		Long: `Retention shows for each kind how long past versions and records of changes are kept, since when
they can be read, how many are kept, what they take on disk, and the rule that says so. It counts
what is in segments; the newest events are still in etcd.

The policy says how long the past is kept, and the flags --retain and --retain-bytes of the server
limit it. You need permission to get the path /log/retention.`,
		Example: `  stele store retention
  stele store retention -o json`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := usage.Interruptible(cmd)
			defer stop()
			config, _, err := flags.Config()
			if err != nil {
				return err
			}
			report, text, err := client.Retention(ctx, config)
			if err != nil {
				return err
			}
			return output.Print(cmd, text, func(out *show.Output) error { return show.Retention(out, report) }, nil)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags.AddFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	output.AddFlags(cmd, "json", "yaml")
	return cmd
}
