package main

import (
	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
)

type statusOptions struct {
	client.Flags
	show.OutputFlags
}

func statusCommand() *cobra.Command {
	o := &statusOptions{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a control plane: version, policy, kinds with counts, health, certificates, disk",
		Long: `Status shows the address, version and revision of a control plane; the policy in force, since when,
and from which commit; the number of objects of each kind; the checks of /readyz; when certificates
expire; and the size of its data. It names the parts that you may not read.

The exit code is 1 if a check of /readyz fails.`,
		Example: `  stele status
  stele status -o json`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.Flags.AddFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	o.AddIdentity(cmd)
	o.OutputFlags.AddFlags(cmd, "wide", "json", "yaml")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func (o *statusOptions) run(cmd *cobra.Command) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	config, _, err := o.Config()
	if err != nil {
		return err
	}
	s, err := client.ReadStatus(ctx, &o.Flags, config)
	if err != nil {
		return err
	}
	err = o.Print(cmd, s, func(out *show.Output) error { return show.Status(out, s, o.Wide) }, nil)
	if err == nil && !s.Ready {
		return usage.Exit(usage.ExitFailure, usage.ErrPrinted)
	}
	return err
}
