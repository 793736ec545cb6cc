package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/logmove"
	"stele.dev/stele/cmd/stele/internal/proofs"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/changes"
)

// logOptions are the flags of log, history and policy log.
type logOptions struct {
	client.Flags
	show.OutputFlags
	client.ChangeFlags
	follow, differences bool
	stat, verbose       bool
	limit               int
	none                string                       // the hint if no change matches
	never               error                        // the error if no change matches
	note                func(*changes.Change) string // text to add to a line; may be nil
	lives               bool                         // separate objects that had the same name
}

// addFlags adds the flags that all of these commands have.
func (o *logOptions) addFlags(cmd *cobra.Command) {
	o.Flags.AddFlags(cmd)
	o.OutputFlags.AddFlags(cmd, "wide", "json", "jsonl", "yaml", "name")
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "show the last 10 changes, or all since --since, the oldest first, and follow new ones")
	f.IntVar(&o.limit, "limit", 0, "show at most this many changes, the newest (default: all)")
	o.AddTimes(cmd)
	usage.Exclusive(cmd, "follow", "until")
}

// addFilters adds the flags that select changes of objects, -p and --stat.
func (o *logOptions) addFilters(cmd *cobra.Command) {
	o.AddIdentity(cmd)
	f := cmd.Flags()
	f.BoolVarP(&o.differences, "patch", "p", false, "show below each line which fields differ")
	f.BoolVar(&o.stat, "stat", false, "count the changes by actor, client, kind and verb, with the fields, and the first and last time")
	o.ChangeFlags.AddFlags(cmd, &o.Flags)
}

func logCommand() *cobra.Command {
	o := &logOptions{}
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show changes and who made them, newest first",
		Long: `Log shows the changes in the log, one line each, newest first: revision, time, user, object, and
the most important field that changed. -p shows below each line all fields that were added (+),
removed (-) or replaced (~). -o wide adds the client. Values of Secrets and of fields that a policy
marks as sensitive are shown only by -o json, jsonl and yaml. -v also shows the log's own
records: parts of policies, tree heads, checkpoints.

--stat counts the writes of each user and client by kind and verb. It shows the fields that changed
and the times of the first and the last write.

You need permission to list changes.log.stele.dev. Changes of objects that you may not read are
left out.

` + client.MomentHelp,
		Example: `  stele log --limit 10
  stele log --since 1h -n default -p
  stele log --since 1h --stat
  stele log --kind configmaps,db --actor admin --verb delete
  stele log --user-agent cleanup.py --field spec.enabled -l app=web
  stele log -o jsonl | jq 'select(.actor.user == "alice")'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if near := cmd.Root().SuggestionsFor(args[0]); len(near) > 0 {
					return usage.Errorf("unexpected argument %q; did you mean `%s %s`?", args[0], cmd.Root().DisplayName(), near[0])
				}
				return usage.Errorf("unexpected argument %q; for the changes of one object: %s history %s", args[0], cmd.Root().DisplayName(), strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := client.ChangesQuery{Namespace: o.Namespace}
			if !o.verbose && o.Format == "" {
				for _, hidden := range own {
					q.Without = append(q.Without, fields.OneTermNotEqualSelector("type", hidden))
				}
			}
			config, _, err := o.Config()
			if err != nil {
				return err
			}
			if q.Resources, err = o.Resources(config); err != nil {
				return err
			}
			return o.run(cmd, q)
		},
	}
	o.addFlags(cmd)
	o.addFilters(cmd)
	o.AddObjects(cmd, &o.Flags)
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "also show the log's own records: parts of policies and their proposals, tree heads, checkpoints")
	cmd.Flags().Lookup("namespace").Usage = "only changes of objects in this namespace (default: all)"
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	for _, former := range append(proofs.Commands(checkDatabaseApart), logRetentionCommand(), logmove.Command(checkDatabaseApart), logmove.NewEpochCommand()) {
		former.Hidden = true // they are below proof and store, and scripts may have these names
		cmd.AddCommand(former)
	}
	return cmd
}

// own are the types of the log's own records, which no request of a user made.
var own = []string{"PolicyChunk", "PolicyProposed", "DecisionsAnchored", "TreeHeadTaken", "CheckpointRecorded"}

func policyLogCommand() *cobra.Command {
	o := &logOptions{}
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show which policies were in force, since when, and who activated them",
		Long: `Log shows the activations of policies, newest first. You need permission to list
changes.log.stele.dev.

` + client.MomentHelp,
		Example: `  stele policy log`,
		Args:    usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			policies, err := client.NewPolicies(&o.Flags, rest.NoWarnings{})
			if err != nil {
				return err
			}
			o.note = policies.Commits(cmd.Context())
			return o.run(cmd, client.ChangesQuery{Fields: fields.Set{"type": "PolicyActivated"}})
		},
	}
	o.addFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	return cmd
}

// run prints the selected changes. With --follow it continues until the user interrupts it.
func (o *logOptions) run(cmd *cobra.Command, q client.ChangesQuery) (err error) {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if o.stat && (o.follow || o.Format == "name" || o.Format == "jsonl") {
		return usage.Errorf("--stat cannot be given together with --follow, -o name or -o jsonl")
	}
	if o.limit < 0 {
		return usage.Errorf("--limit %d: use a number of changes, or 0 for all", o.limit)
	}
	config, _, err := o.Config()
	if err != nil {
		return err
	}
	if err := o.SelectBy(ctx, config, &q); err != nil {
		return err
	}
	q.Differences = o.differences || o.stat || o.Format == ""
	if q.Limit = o.limit; o.follow && o.limit == 0 && o.Since == "" {
		q.Limit = 10
	}
	log, err := client.NewChanges(config)
	if err != nil {
		return err
	}
	out, err := o.Open(cmd, o.follow)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	p := o.printer(out, config)
	shown := false
	var last []*client.Change // with --follow: collected, to print the oldest first
	revision, err := log.List(ctx, q, func(page []*client.Change) error {
		shown = shown || len(page) > 0
		if o.follow {
			last = append(last, page...)
			return nil
		}
		return p.Print(page)
	})
	if err == nil && !shown && !o.follow && o.never != nil {
		return cmp.Or(p.End(), o.never)
	}
	if err == nil && !shown && !o.follow && o.Format == "" {
		o.Hint(cmd, "%s", cmp.Or(o.none, "No changes found.")+o.Strangers(ctx, log))
	}
	if err == nil && o.follow {
		slices.Reverse(last)
		if err = p.Print(last); err == nil {
			err = log.Follow(ctx, q, revision, func(text string) { show.WarnOf(cmd, text) }, p.Print)
		}
	}
	if err == nil {
		err = p.End()
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// printer returns the printer that the flags ask for.
func (o *logOptions) printer(out *show.Output, config *rest.Config) show.ChangePrinter {
	switch {
	case o.stat:
		return &show.Statistics{Out: out, Format: o.Format, Wide: o.Wide, Hidden: client.NewHiding(config).Of}
	case o.Format == "":
		return &show.ChangeLines{Columns: show.Columns{Out: out}, Note: o.note, Hidden: client.NewHiding(config).Of, Lives: o.lives, Wide: o.Wide, Patch: o.differences, Field: strings.TrimPrefix(o.Field, ".")}
	case o.Format == "name":
		return show.ChangeNames{Out: out}
	}
	return &show.RawChanges{Documents: show.Documents{Out: out, Format: o.Format, Endless: o.follow}}
}
