package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/activation"
)

type rollbackOptions struct {
	clientOptions
	formatOptions
	dryRun, rename, dropFields bool
}

func rollbackCommand() *cobra.Command {
	o := &rollbackOptions{}
	cmd := &cobra.Command{
		Use:   "rollback [DIGEST]",
		Short: "Activate an earlier policy again: the one before, or that of a digest",
		Long: `Rollback sends the files of an earlier policy to the server, which compiles them again, as if
they were pushed. Without a digest it is the policy before the one in force. A policy that
was rolled back does not count: a second rollback goes one further back. If there is none
before, rollback changes nothing, and lists the policies that have been in force.`,
		Example: "  stele policy rollback\n  stele policy rollback 6e9630c0 --dry-run",
		Args:    atMost(1),
		RunE:    o.run,
	}
	o.clientOptions.addFlags(cmd)
	o.formatOptions.addFlags(cmd, "json", "yaml", "name")
	_ = cmd.Flags().MarkHidden("namespace")
	cmd.Flags().BoolVar(&o.rename, "rename", false, renameUsage)
	cmd.Flags().BoolVar(&o.dropFields, "drop-fields", false, dropFieldsUsage)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "have the server check it, and change nothing")
	cmd.ValidArgsFunction = o.completeDigests
	return cmd
}

func (o *rollbackOptions) run(cmd *cobra.Command, args []string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.check(); err != nil {
		return err
	}
	policies, err := newPolicyClient(&o.clientOptions, rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{}))
	if err != nil {
		return err
	}
	list, err := policies.list(ctx)
	if err != nil {
		return err
	}
	var to *activation.Policy
	if len(args) == 1 {
		to, err = find(list, args[0])
	} else {
		to, err = before(list)
	}
	if err != nil {
		return err
	}
	if to, err = policies.get(ctx, to.Name); err != nil {
		return err
	}
	p := &activation.Policy{TypeMeta: to.TypeMeta, Spec: to.Spec}
	p.Spec.Replaces, p.Spec.Rename, p.Spec.DropFields = list[0].Name, o.rename, o.dropFields
	after, err := policies.create(ctx, p, o.dryRun)
	if err != nil {
		return err
	}
	return o.report(cmd, list[0], after, o.dryRun)
}

// activationAt is when a policy came in force.
type activationAt struct {
	revision uint64
	policy   *activation.Policy
}

// activations of policies, the oldest first.
func activations(list []*activation.Policy) []activationAt {
	var all []activationAt
	for _, p := range list {
		for _, r := range p.Status.Revisions {
			all = append(all, activationAt{r, p})
		}
	}
	slices.SortFunc(all, func(a, b activationAt) int { return cmp.Compare(a.revision, b.revision) })
	return all
}

// before returns the policy before the one in force. An activation of a policy that was in force earlier takes back what
// came in between, so that a second rollback does not return to the policy that the first one left.
func before(list []*activation.Policy) (*activation.Policy, error) {
	var stack []*activation.Policy
	for _, a := range activations(list) {
		if i := slices.Index(stack, a.policy); i >= 0 {
			stack = stack[:i]
		}
		stack = append(stack, a.policy)
	}
	if len(stack) > 1 {
		return stack[len(stack)-2], nil
	}
	var others strings.Builder
	for _, a := range slices.Backward(activations(list)) {
		fmt.Fprintf(&others, "\n  %.12s, activated at revision %d%s", a.policy.Name, a.revision, ofCommit(a.policy.Spec.Commit))
	}
	return nil, fmt.Errorf("no policy was in force before %.12s; to activate a later one again, use stele policy rollback DIGEST:%s", list[0].Name, others.String())
}

// completeDigests offers the policies that have been in force.
func (o *clientOptions) completeDigests(cmd *cobra.Command, args []string, _ string) (digests []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 || fromEnvironment(cmd.Flags()) != nil {
		return nil, noFiles
	}
	policies, err := newPolicyClient(o, rest.NoWarnings{})
	if err != nil {
		return nil, noFiles
	}
	ctx, stop := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), completeWithin)
	defer stop()
	list, _ := policies.list(ctx) // none, if it cannot be read
	for _, p := range list {
		digests = append(digests, fmt.Sprintf("%.12s\tactivated at revision %d%s", p.Name, p.Status.Revision, ofCommit(p.Spec.Commit)))
	}
	return digests, noFiles
}
