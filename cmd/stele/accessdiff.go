package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/access"
	"stele.dev/stele/policy"
)

func accessCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Compare what policies allow",
		Args:  usage.NoArguments,
	}
	cmd.AddCommand(accessDiffCommand())
	return cmd
}

type accessDiffOptions struct {
	client.Flags
	show.OutputFlags
	from, to string
	subjects []string
	exitCode bool
	compile  compiling.Options
}

func accessDiffCommand() *cobra.Command {
	o := &accessDiffOptions{}
	cmd := &cobra.Command{
		Use:   "diff [--from MOMENT|DIR] [--to MOMENT|DIR]",
		Short: "Show who gained or lost what from one policy to another",
		Long: `Diff compares what two policies allow, not how they are written: a renamed binding or a split role
is no difference. Each side is the policy at a MOMENT (default: now), or a bundle in a folder, which
is compiled here. It shows who gained (+) or lost (-) permissions, which conditions changed (~), which
permissions are now denied (!) or no longer denied (.), and how the chain of authorizers changed. "*"
means anything; for namespaces it includes objects without a namespace.

Permissions of groups such as system:authenticated are shown for the group only, unless --subject
names a member. Conditions are compared by their text. You need permission to create
accessdifferences.policy.stele.dev.

` + client.MomentHelp,
		Example: `  stele access diff --to ./policy
  stele access diff --from 1200 --to 1250 --subject group:devs
  stele access diff --from yesterday -n shop -o json
  stele access diff --to ./policy --exit-code`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage.Errorf("unexpected argument %q; use --from MOMENT|DIR and --to MOMENT|DIR", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := o.run(cmd)
			if o.exitCode {
				err = usage.NoAnswer(err)
			}
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.Flags.AddFlags(cmd)
	o.compile.AddFlags(cmd.Flags())
	o.AddIdentity(cmd)
	o.OutputFlags.AddFlags(cmd, "json", "yaml")
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "now", "old side: a `MOMENT`, or the folder of a bundle")
	f.StringVar(&o.to, "to", "now", "new side: a `MOMENT`, or the folder of a bundle")
	f.StringArrayVar(&o.subjects, "subject", nil, "only differences for user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME; may be repeated")
	f.BoolVar(&o.exitCode, "exit-code", false, "exit with 1 if something differs, and with 2 if the comparison fails")
	f.Lookup("namespace").Usage = "only differences in this namespace (default: all)"
	_ = cmd.RegisterFlagCompletionFunc("subject", cobra.FixedCompletions([]string{"user:", "group:", "serviceaccount:"}, usage.NoFiles|cobra.ShellCompDirectiveNoSpace))
	return cmd
}

func (o *accessDiffOptions) run(cmd *cobra.Command) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if !cmd.Flags().Changed("from") && !cmd.Flags().Changed("to") {
		return usage.Missing(cmd, "--from or --to, each a MOMENT or the folder of a bundle")
	}
	d := &access.Difference{TypeMeta: metav1.TypeMeta{APIVersion: access.Group + "/" + access.Version, Kind: access.DifferenceKind}}
	if o.Namespace != "" {
		d.Spec.Namespace = &o.Namespace
	}
	for _, text := range o.subjects {
		s, err := parseSubject(text)
		if err != nil {
			return err
		}
		d.Spec.Subjects = append(d.Spec.Subjects, s)
	}
	for _, side := range []struct {
		flag, text string
		into       *access.Side
	}{{"from", o.from, &d.Spec.From}, {"to", o.to, &d.Spec.To}} {
		if err := o.side(ctx, cmd, side.text, side.into); err != nil {
			if errors.Is(err, usage.ErrPrinted) {
				return err
			}
			return fmt.Errorf("--%s: %w", side.flag, err)
		}
	}
	answer, text, err := client.AskAccess(ctx, &o.Flags, cmd.ErrOrStderr(), access.DifferencePlural, d)
	if err != nil {
		return err
	}
	err = o.Print(cmd, text, func(out *show.Output) error { return show.AccessDifference(out, answer, o.from, o.to) }, nil)
	if err == nil && o.exitCode && len(answer.Status.Changes)+len(answer.Status.Chain) > 0 {
		return errDiffers
	}
	return err
}

// side sets one side of the comparison from a flag: the bundle in a folder, or the policy at a moment.
func (o *accessDiffOptions) side(ctx context.Context, cmd *cobra.Command, text string, into *access.Side) error {
	if info, err := os.Stat(text); err == nil && info.IsDir() || strings.ContainsRune(text, os.PathSeparator) {
		compiled, err := o.compile.Folder(ctx, cmd, text)
		if err != nil {
			return err
		}
		into.Access = compiled.Form.Access()
		return nil
	}
	if text == "now" {
		return nil
	}
	config, _, err := o.Config()
	if err != nil {
		return err
	}
	into.Revision, err = client.Resolve(ctx, config, text)
	if unread := new(client.NoMomentError); errors.As(err, &unread) {
		return fmt.Errorf("%q is neither a folder nor a moment; write the folder of a bundle, or %s", text, client.MomentUsage)
	}
	return err
}

// parseSubject parses user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME.
func parseSubject(text string) (policy.Subject, error) {
	kind, name, _ := strings.Cut(text, ":")
	switch namespace, account, ok := strings.Cut(name, "/"); {
	case name == "":
	case kind == "user":
		return policy.Subject{User: name}, nil
	case kind == "group":
		return policy.Subject{Group: name}, nil
	case kind == "serviceaccount" && ok && namespace != "" && account != "":
		return policy.Subject{User: "system:serviceaccount:" + namespace + ":" + account}, nil
	}
	return policy.Subject{}, fmt.Errorf("--subject %s: write user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME", text)
}
