// Package shadowing has the commands of a proposed policy that decides beside the one in force: `stele policy shadow`.
package shadowing

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/gitrepo"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/shadow"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas/wording"
)

// Command returns the command `stele policy shadow`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shadow",
		Short: "Let a proposed policy decide beside the one in force",
		Long: `Shadow shows what a proposed policy would decide of the requests that arrive now. After a
request is answered, the proposed policy decides it again, on the same state. Differences are
counted and listed. Nothing else changes: neither answers nor stored objects.

The server that answers the command holds the proposed policy in memory, and compares its own
requests only. It ends with stele policy shadow stop, when the policy comes into force, or when
the server stops. You need permission to create, get and delete shadows.policy.stele.dev.`,
		Args: usage.NoArguments,
	}
	cmd.AddCommand(startCommand(), showCommand(), stopCommand())
	return cmd
}

type startOptions struct {
	client.Flags
	show.FormatFlags
	compile compiling.Options
}

func startCommand() *cobra.Command {
	o := &startOptions{}
	cmd := &cobra.Command{
		Use:     "start DIR",
		Short:   "Start with the bundle in a folder",
		Long:    "Start compiles the bundle in a folder, and sends it to the server, which lets it decide beside the policy\nin force. A server has one proposed policy at a time.",
		Example: "  stele policy shadow start clusters/prod",
		Args:    usage.Exactly("DIR, the folder of the bundle"),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.Flags.AddFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	o.FormatFlags.AddFlags(cmd, "json", "yaml")
	o.compile.AddFlags(cmd.Flags())
	return cmd
}

func (o *startOptions) run(cmd *cobra.Command, dir string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	compiled, err := o.compile.Folder(ctx, cmd, dir)
	if err != nil {
		return err
	}
	commit, err := commitOf(ctx, dir, compiled.Source)
	if err != nil {
		return err
	}
	show.Warn(cmd.ErrOrStderr(), compiled)
	policies, err := client.NewPolicies(&o.Flags, &show.Unprinted{Out: cmd.ErrOrStderr(), Printed: compiled.Warnings})
	if err != nil {
		return err
	}
	source := activation.SpecOf(compiled.Source)
	s, err := policies.StartShadow(ctx, shadow.Spec{Package: source.Package, Files: source.Files, Commit: commit})
	if err != nil {
		return err
	}
	if o.Format != "" {
		return o.Document(cmd, s)
	}
	o.Say(cmd, "Policy %.12s%s decides beside the policy in force, since revision %d. It changes nothing.", s.Status.Digest, client.CommitText(s.Spec.Commit), s.Status.Revision)
	o.Hint(cmd, "See stele policy shadow show.")
	return nil
}

// commitOf returns the commit that git reports; empty outside of a repository.
func commitOf(ctx context.Context, dir string, source *bundles.Source) (string, error) {
	c, err := gitrepo.ReadCheckout(ctx, dir, source)
	return c.String(), err
}

type showOptions struct {
	client.Flags
	show.OutputFlags
}

func showCommand() *cobra.Command {
	o := &showOptions{}
	cmd := &cobra.Command{
		Use:        "show",
		SuggestFor: []string{"status", "list", "get", "report"},
		Short:      "Show what the proposed policy decides differently",
		Long: `Show counts the requests since the start, and lists those that the two policies decide differently,
grouped by user, verb, resource and reason. It includes all requests that were answered before,
unless too many are waiting.

Messages that may quote objects are shown for resources that you may list in all namespaces, and
that have no secret fields.`,
		Example: "  stele policy shadow show\n  stele policy shadow show -o json",
		Args:    usage.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.Flags.AddFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	o.OutputFlags.AddFlags(cmd, "json", "yaml")
	return cmd
}

func (o *showOptions) run(cmd *cobra.Command) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	policies, err := connect(&o.Flags, cmd)
	if err != nil {
		return err
	}
	s, err := policies.Shadow(ctx)
	if err != nil {
		return err
	}
	return o.Print(cmd, s, func(out *show.Output) error { return Text(out, s) }, nil)
}

func connect(o *client.Flags, cmd *cobra.Command) (*client.Policies, error) {
	return client.NewPolicies(o, rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{}))
}

// Text prints what a shadow has found.
func Text(out *show.Output, s *shadow.Shadow) error {
	st, n := &s.Status, &s.Status.Requests
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(show.Harmless(fmt.Sprintf(format, args...)) + "\n") }
	line("Policy %.12s%s decides beside the policy in force, since revision %d, started by %s.", st.Digest, client.CommitText(s.Spec.Commit), st.Revision, st.User)
	line("%s: %d decided alike, %d that only the proposed policy refuses, %d that only it allows, %d undecided.",
		usage.Count(int(n.Same+n.Refused+n.Allowed+n.Undecided), "request"), n.Same, n.Refused, n.Allowed, n.Undecided)
	if n.Dropped > 0 {
		line("%s more were not decided again: too many were waiting.", usage.Count(int(n.Dropped), "request"))
	}
	if st.Waiting > 0 {
		line("%s more are waiting.", usage.Count(st.Waiting, "request"))
	}
	for _, refused := range []bool{true, false} {
		title, style := "REFUSED by the proposed policy only", show.Removed
		if !refused {
			title, style = "ALLOWED by the proposed policy only", show.Added
		}
		for i, first := 0, true; i < len(st.Differences); i++ {
			f := &st.Differences[i]
			if f.Refused != refused {
				continue
			}
			if first {
				b.WriteString("\n" + out.Paint(style, title) + "\n")
				first = false
			}
			line("  %d by %s: %s %s", f.Count, f.User, f.Verb, f.Resource)
			line("    %s", reason(f))
			line("    %s", describeGroup(f))
		}
	}
	if st.Unlisted > 0 {
		line("\n%s more are in groups that are not listed: there are too many groups.", usage.Count(int(st.Unlisted), "request"))
	}
	for i, r := range st.Undecided {
		if i == 0 {
			b.WriteString("\n" + out.Paint(show.Bold, "UNDECIDED") + "\n")
		}
		line("  %d: %s", r.Count, r.Why)
	}
	_, err := out.Write([]byte(b.String()))
	return err
}

// reason returns the stage, the rule and the message of a group.
func reason(f *plan.Flip) string {
	text := f.Stage
	for _, part := range []string{f.Rule, f.Path} {
		if part != "" {
			text += " " + part
		}
	}
	return text + wording.At(f.Source) + ": " + strings.ReplaceAll(f.Message, "\n", " ")
}

// describeGroup returns the revisions and requests of a group.
func describeGroup(f *plan.Flip) string {
	text := fmt.Sprintf("at revision %d", f.First)
	if f.Last != f.First {
		text = fmt.Sprintf("at revisions %d to %d", f.First, f.Last)
	}
	return text + ", audit ID " + cmp.Or(strings.Join(f.AuditIDs, ", "), "unknown")
}

type stopOptions struct {
	client.Flags
	show.FormatFlags
}

func stopCommand() *cobra.Command {
	o := &stopOptions{}
	cmd := &cobra.Command{
		Use:     "stop",
		Short:   "End it, and forget what it has found",
		Example: "  stele policy shadow stop",
		Args:    usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := usage.Interruptible(cmd)
			defer stop()
			policies, err := connect(&o.Flags, cmd)
			if err != nil {
				return err
			}
			if err := policies.StopShadow(ctx); err != nil {
				return err
			}
			o.Say(cmd, "The proposed policy does not decide any more.")
			return nil
		},
	}
	o.Flags.AddFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	o.FormatFlags.AddFlags(cmd)
	return cmd
}
