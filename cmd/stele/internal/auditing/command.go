// Package auditing has the commands that show what the server has recorded of requests: stele audit and stele audit top.
package auditing

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/decisionsapi"
	"stele.dev/stele/eventlog/logpb"
)

// options are the flags of audit.
type options struct {
	client.Flags
	show.OutputFlags
	filters
	follow, bodies bool
	limit          int
}

// defaultLimit is how many decisions audit shows.
const defaultLimit = 100

// Command returns the command audit.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "audit [AUDIT-ID]",
		Short: "Show who asked for what, and how it was decided, newest first",
		Long: `Audit shows how requests were decided, one line each, newest first: time, user, request, outcome, and
the stage and the rule that decided, with file and line. It shows writes, and what the server recorded of
requests that wrote nothing: refusals, conflicts, dry runs, failed authentications, and the reads that the
audit rules of the policy select. With an AUDIT-ID it shows all that is known of the request. Every answer
has the ID in its header Audit-Id.

Writes are those of all servers. Other decisions are recorded by the server that made them: this command
asks all of them, at the addresses that kubectl get replicas shows. A warning names a server that could not
be asked, and what was not recorded or is not kept any more.

You need permission to list decisions.log.stele.dev. Bodies and messages that quote an object are
shown to users who may get the object.

` + client.MomentHelp,
		Example: `  stele audit --outcome refused --since 1h
  stele audit --user ana --resource configmaps -n default
  stele audit --stage validation --rule max-size -o wide
  stele audit --verb get --resource secrets --since yesterday
  stele audit --code 5xx --follow
  stele audit 7a4d7935-09b7-49f9-8b28-7e90e7ac3d75
  stele audit --since 7d --limit 0 --bodies -o jsonl > last-week.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage.Errorf("audit takes one AUDIT-ID, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return o.printByAuditID(cmd, args[0])
			}
			return o.run(cmd)
		},
		ValidArgsFunction: completeRecent(&o.Flags, func(d *client.Decision) string { return d.Name }),
	}
	o.Flags.AddFlags(cmd)
	o.AddIdentity(cmd)
	o.OutputFlags.AddFlags(cmd, "wide", "json", "jsonl", "yaml", "name")
	o.filters.addFlags(cmd, &o.Flags)
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "show the last 10 decisions, or all since --since, the oldest first, and follow new ones")
	f.BoolVar(&o.bodies, "bodies", false, "with the bodies of requests and answers, as far as they are kept, in -o json, jsonl and yaml")
	f.IntVar(&o.limit, "limit", defaultLimit, "show at most this many decisions, the newest; 0 for all")
	usage.Exclusive(cmd, "follow", "until")
	cmd.AddCommand(topCommand())
	return cmd
}

// run prints the selected decisions. With --follow it continues until the user interrupts it.
func (o *options) run(cmd *cobra.Command) (err error) {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if o.limit < 0 {
		return usage.Errorf("--limit %d: use a number of decisions, or 0 for all", o.limit)
	}
	config, _, err := o.Config()
	if err != nil {
		return err
	}
	q, err := o.query(ctx, config, o.Namespace)
	if err != nil {
		return err
	}
	q.Bodies = o.bodies
	if q.Limit = o.limit; o.follow && !cmd.Flags().Changed("limit") {
		if q.Limit = 10; o.since != "" {
			q.Limit = 0
		}
	}
	api, err := o.everywhere(ctx, cmd, config)
	if err != nil {
		return err
	}
	out, err := o.Open(cmd, o.follow)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	p, begun := o.printer(out), time.Now()
	shown, last := 0, []*client.Decision(nil)
	versions, err := api.List(ctx, q, func(page []*client.Decision) error {
		shown += len(page)
		if o.follow {
			last = append(last, page...) // to print the oldest first
			return nil
		}
		return p.print(page)
	})
	switch {
	case err != nil:
	case o.follow:
		slices.Reverse(last)
		if err = p.print(last); err == nil {
			err = api.Follow(ctx, q, versions, begun, p.print)
		}
	case shown == 0 && o.Format == "":
		o.Hint(cmd, "No decisions found.%s", o.later())
	case shown == q.Limit && o.Format == "":
		o.Hint(cmd, "These are the newest %d. For more: --limit 0, or --until a moment before them.", shown)
	}
	if err == nil {
		err = p.end()
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// later says what is not shown at once, if the flags select it.
func (o *options) later() string {
	if slices.Contains(o.outcomes, decisionsapi.Outcome(logpb.Outcome_OUTCOME_UNAUTHENTICATED)) {
		return " Requests without valid credentials are counted, and shown a minute later."
	}
	return ""
}

// everywhere returns a client of the decisions of all servers. It prints which of them cannot be asked.
func (o *options) everywhere(ctx context.Context, cmd *cobra.Command, config *rest.Config) (*client.DecisionsEverywhere, error) {
	return client.NewDecisionsEverywhere(ctx, config, func(text string) { show.WarnOf(cmd, text) })
}

// printByAuditID prints all decisions with an audit ID. Clients choose audit IDs, so there may be several.
func (o *options) printByAuditID(cmd *cobra.Command, auditID string) (err error) {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if o.follow {
		return usage.Errorf("--follow cannot be given together with an AUDIT-ID")
	}
	config, _, err := o.Config()
	if err != nil {
		return err
	}
	q, err := o.query(ctx, config, o.Namespace)
	if err != nil {
		return err
	}
	q.Fields["request.auditID"], q.Bodies, q.Limit = auditID, true, o.limit
	api, err := o.everywhere(ctx, cmd, config)
	if err != nil {
		return err
	}
	var all []*client.Decision
	if _, err := api.List(ctx, q, func(page []*client.Decision) error {
		all = append(all, page...)
		return nil
	}); err != nil {
		return err
	}
	if len(all) == 0 {
		d, err := api.Get(ctx, auditID) // whose error says what is not known
		if err != nil {
			return err
		}
		if all = append(all, d); q.Keep != nil && !q.Keep(d) || len(q.Fields) > 1 {
			return usage.Errorf("the flags leave out the request %s", auditID)
		}
	}
	out, err := o.Open(cmd, false)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	if o.Format == "" {
		return details(out, all)
	}
	p := o.printer(out)
	return cmp.Or(p.print(all), p.end())
}
