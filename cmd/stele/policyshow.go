package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/activation"
)

type showOptions struct {
	client.Flags
	show.FormatFlags
	at string
}

func showCommand() *cobra.Command {
	o := &showOptions{}
	cmd := &cobra.Command{
		Use:     "show [DIGEST]",
		Short:   "Show the policy in force, or an earlier one",
		Long:    "Show prints the policy in force, that of a digest, or that at a moment. -o json and yaml have the contents of its files.\n\n" + client.MomentHelp,
		Example: "  stele policy show\n  stele policy show --at yesterday\n  stele policy show 6e9630c0 -o json",
		Args:    usage.AtMost(1),
		RunE:    o.run,
	}
	o.Flags.AddFlags(cmd)
	o.FormatFlags.AddFlags(cmd, "json", "yaml", "name")
	_ = cmd.Flags().MarkHidden("namespace")
	cmd.Flags().StringVar(&o.at, "at", "now", "`MOMENT` whose policy is shown")
	_ = cmd.RegisterFlagCompletionFunc("at", client.CompleteMoments)
	cmd.ValidArgsFunction = o.CompleteDigests
	return cmd
}

func (o *showOptions) run(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && o.at != "now" {
		return usage.Errorf("a digest and --at cannot be given together")
	}
	policies, err := client.NewPolicies(&o.Flags, rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{}))
	if err != nil {
		return err
	}
	list, err := policies.List(cmd.Context())
	if err != nil {
		return err
	}
	p, err := o.choose(cmd, args, list)
	if err != nil {
		return err
	}
	if p, err = policies.Get(cmd.Context(), p.Name); err != nil {
		return err
	}
	switch o.Format {
	case "":
		return show.Policy(cmd, p)
	case "name":
		_, err := fmt.Fprintln(cmd.OutOrStdout(), show.PolicyName(p))
		return err
	}
	return o.Document(cmd, p)
}

// choose returns the policy that the arguments name.
func (o *showOptions) choose(cmd *cobra.Command, args []string, list []*activation.Policy) (*activation.Policy, error) {
	switch {
	case len(args) > 0:
		return client.FindPolicy(list, args[0])
	case o.at == "now":
		return list[0], nil
	}
	config, _, err := o.Config()
	if err != nil {
		return nil, err
	}
	revision, err := client.RevisionAt(cmd.Context(), config, o.at)
	if err != nil {
		return nil, err
	}
	return client.PolicyAt(list, revision)
}
