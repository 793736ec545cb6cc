package main

import (
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/cluster"
	"stele.dev/stele/cmd/stele/internal/logmove"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/eventlog/etcdlog"
)

// logRetentionCommand returns `stele log retention`.
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
		Example: `  stele log retention
  stele log retention -o json`,
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

// logMoveCommand returns `stele log move`.
func logMoveCommand() *cobra.Command {
	var etcd cluster.Flags
	return logmove.Command(checkDatabaseApart, logmove.Cluster{
		Add: func(f *pflag.FlagSet) { etcd.AddFlags(f, "required") },
		Options: func() (*etcdlog.DialOptions, error) {
			if err := etcd.Check(); err != nil {
				return nil, err
			}
			return etcd.Dial(slog.New(slog.DiscardHandler)), nil
		},
	})
}
