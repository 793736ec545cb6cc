// Package pushing has the commands that bring policies into force: push, rollback, publish.
package pushing

import (
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/activation"
)

type rollbackOptions struct {
	client.Flags
	show.FormatFlags
	dryRun, rename, dropFields bool
}

// RollbackCommand returns the command `stele policy rollback`.
func RollbackCommand() *cobra.Command {
	o := &rollbackOptions{}
	cmd := &cobra.Command{
		Use:   "rollback [DIGEST]",
		Short: "Activate an earlier policy again: the one before, or that of a digest",
		Long: `Rollback activates an earlier policy: the one with the digest, or else the one before the
policy in force. The server compiles its files again. A second rollback goes one policy
further back. If there is no earlier policy, rollback changes nothing and lists the
policies that have been in force.`,
		Example: "  stele policy rollback\n  stele policy rollback 6e9630c0 --dry-run",
		Args:    usage.AtMost(1),
		RunE:    o.run,
	}
	o.Flags.AddFlags(cmd)
	o.FormatFlags.AddFlags(cmd, "json", "yaml", "name")
	_ = cmd.Flags().MarkHidden("namespace")
	cmd.Flags().BoolVar(&o.rename, "rename", false, renameUsage)
	cmd.Flags().BoolVar(&o.dropFields, "drop-fields", false, dropFieldsUsage)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "have the server check it, and change nothing")
	cmd.ValidArgsFunction = o.CompleteDigests
	return cmd
}

func (o *rollbackOptions) run(cmd *cobra.Command, args []string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	policies, err := client.NewPolicies(&o.Flags, rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{}))
	if err != nil {
		return err
	}
	list, err := policies.List(ctx)
	if err != nil {
		return err
	}
	var to *activation.Policy
	if len(args) == 1 {
		to, err = client.FindPolicy(list, args[0])
	} else {
		to, err = client.PolicyBefore(list)
	}
	if err != nil {
		return err
	}
	if to, err = policies.Get(ctx, to.Name); err != nil {
		return err
	}
	p := &activation.Policy{TypeMeta: to.TypeMeta, Spec: to.Spec}
	p.Spec.Replaces, p.Spec.Rename, p.Spec.DropFields = list[0].Name, o.rename, o.dropFields
	after, err := policies.Create(ctx, p, o.dryRun)
	if err != nil {
		return err
	}
	return o.Report(cmd, list[0], after, o.dryRun)
}
