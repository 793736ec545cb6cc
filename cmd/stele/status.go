package main

import (
	"cmp"

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
		Long: `Status asks the control plane what it is, and how it is: its address, version and revision; the
policy in force, since when, and of which commit; how many objects there are of each kind; the
checks of /readyz; when certificates end; and the size of its data. What the user may not read is
named.

It exits with 1 if a check of /readyz fails.`,
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

func (o *statusOptions) run(cmd *cobra.Command) (err error) {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if err := o.Check(); err != nil {
		return err
	}
	config, _, err := o.Config()
	if err != nil {
		return err
	}
	s, err := client.ReadStatus(ctx, &o.Flags, config)
	if err != nil {
		return err
	}
	out, err := o.Open(cmd, false)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	if o.Format != "" {
		err = out.Document(o.Format, s)
	} else {
		err = show.Status(out, s, o.Wide)
	}
	if err == nil && !s.Ready {
		return usage.Exit(usage.ExitFailure, usage.ErrPrinted)
	}
	return err
}
