package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/keep/verification"
)

func projectionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "projection",
		Short: "Compare what a control plane serves with its log",
		Args:  usage.NoArguments,
	}
	cmd.AddCommand(verifyProjectionCommand())
	return cmd
}

// verifyOptions are the flags of projection verify.
type verifyOptions struct {
	client.Flags
	show.OutputFlags
}

func verifyProjectionCommand() *cobra.Command {
	o := &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify [NAME]",
		Short: "Build projections from the log a second time, and compare them with what serves",
		Long: `Verify makes the server build its projections from the log a second time, in the background, and
compare the result with what it serves at the same revision. It shows for each the revision and the
hash, or what differs first. Requests are served meanwhile; objects take twice the memory.

The projection objects has the current objects and the policies. It is built from the older of the
two checkpoints, or from the whole log. The projection history is the index of past versions. It is
built from all that the log has, in a folder of its own.

You need permission to get the path /log/verify. The exit code is 1 if a projection differs, or
could not be verified.`,
		Example: `  stele projection verify
  stele projection verify objects -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.Flags.AddFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	o.AddIdentity(cmd)
	o.OutputFlags.AddFlags(cmd, "json", "yaml")
	cmd.ValidArgsFunction = cobra.FixedCompletions([]string{"objects", "history"}, cobra.ShellCompDirectiveNoFileComp)
	return cmd
}

// verificationDocument is the JSON of the results.
type verificationDocument struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"`
	Results    []verification.Result `json:"results"`
}

func (o *verifyOptions) run(cmd *cobra.Command, names []string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	config, _, err := o.Config()
	if err != nil {
		return err
	}
	results, err := client.Verify(ctx, config, names...)
	if err != nil {
		return err
	}
	document := verificationDocument{APIVersion: client.DocumentVersion, Kind: "Verification", Results: results}
	err = o.Print(cmd, document, func(out *show.Output) error {
		for i := range results {
			if _, err := fmt.Fprintln(out, verificationLine(&results[i])); err != nil {
				return err
			}
		}
		return nil
	}, nil)
	if err == nil && slices.ContainsFunc(results, func(r verification.Result) bool { return !r.OK() }) {
		return usage.Exit(usage.ExitFailure, usage.ErrPrinted)
	}
	return err
}

// verificationLine returns a result as text.
func verificationLine(r *verification.Result) string {
	switch {
	case r.Error != "":
		return fmt.Sprintf("%s: could not be verified: %s", r.Projection, r.Error)
	case r.Difference != "":
		return fmt.Sprintf("%s: differs from the log at revision %d: %s (hash %.12s, of the log %.12s)", r.Projection, r.Revision, r.Difference, r.Live, r.Rebuilt)
	}
	return fmt.Sprintf("%s: as in the log at revision %d: %d records, hash %.12s", r.Projection, r.Revision, r.Records, r.Live)
}
