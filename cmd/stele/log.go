package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/changes"
)

// logOptions are the flags of commands that show changes.
type logOptions struct {
	clientOptions
	outputOptions
	follow, differences   bool
	limit                 int
	actors, verbs         []string
	since, until, auditID string
	none                  string                       // what is said if there is nothing to show
	never                 error                        // what that is, if it is an error
	note                  func(*changes.Change) string // of a line; may be nil
	lives                 bool                         // of one name: say where one object ends and another begins
}

// addFlags adds what all of them have.
func (o *logOptions) addFlags(cmd *cobra.Command) {
	o.clientOptions.addFlags(cmd)
	o.outputOptions.addFlags(cmd, "json", "jsonl", "yaml", "name")
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "show the last 10, or all from --since on, the oldest first, and go on with what is written from now on")
	f.IntVar(&o.limit, "limit", 0, "show only so many, the newest (default: all)")
	f.StringVar(&o.since, "since", "", "only what was written at a `MOMENT` or later")
	f.StringVar(&o.until, "until", "", "only what was written at a `MOMENT` or before")
	exclusive(cmd, "follow", "until")
	_ = cmd.RegisterFlagCompletionFunc("since", completeMoments)
	_ = cmd.RegisterFlagCompletionFunc("until", completeMoments)
}

// addFilters adds what changes of objects can be chosen by, and -p.
func (o *logOptions) addFilters(cmd *cobra.Command) {
	o.addIdentity(cmd)
	f := cmd.Flags()
	f.BoolVarP(&o.differences, "patch", "p", false, "show below each line which fields differ")
	f.StringSliceVar(&o.actors, "actor", nil, "only what this user wrote; may be repeated")
	f.StringSliceVar(&o.verbs, "verb", nil, "only requests of this verb (create, update, patch, delete, …); may be repeated")
	f.StringVar(&o.auditID, "audit-id", "", "only the request that had this audit id")
	for _, flag := range []string{"actor", "audit-id"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	_ = cmd.RegisterFlagCompletionFunc("verb", cobra.FixedCompletions([]string{"create", "update", "patch", "delete", "deletecollection"}, noFiles))
}

func logCommand() *cobra.Command {
	o := &logOptions{}
	var kindNames []string
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show what was written, by whom, newest first",
		Long: `Log shows the events of the log, one line each, newest first: revision, time, who, what.
With -p the fields that a write added (+), removed (-) or replaced (~) are below its line. What
Secrets hold is shown by -o json, jsonl and yaml alone.

It asks the server, as the user of the kubeconfig, who needs the permission to list
changes.log.stele.dev; to see fields, the permission to read the objects. Changes of objects
that the user may not read are left out.

` + momentHelp,
		Example: `  stele log --limit 10
  stele log --since 1h -n default -p
  stele log --kind configmaps,db --actor admin --verb delete
  stele log -o jsonl | jq 'select(.actor.user == "alice")'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unexpected argument %q; for the changes of one object: %s history %s", args[0], cmd.Root().DisplayName(), strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := changesQuery{namespace: o.namespace}
			if len(kindNames) > 0 {
				config, _, err := o.config()
				if err != nil {
					return err
				}
				resources, err := newKinds(config)
				if err != nil {
					return err
				}
				for _, name := range kindNames {
					mapping, err := resources.resource(name)
					if err != nil {
						return err
					}
					q.resources = append(q.resources, mapping.Resource.GroupResource())
				}
			}
			return o.run(cmd, q)
		},
	}
	o.addFlags(cmd)
	o.addFilters(cmd)
	cmd.Flags().StringSliceVar(&kindNames, "kind", nil, "only changes of objects of this kind, by any name that it has; may be repeated")
	cmd.Flags().Lookup("namespace").Usage = "only changes of objects in this namespace (default: all)"
	_ = cmd.RegisterFlagCompletionFunc("kind", o.completeKinds)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func policyLogCommand() *cobra.Command {
	o := &logOptions{}
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show which policies were in force, since when, and who put them there",
		Long: `Log shows the activations of policies, newest first, as they are in the log. To see them
takes the permission to list changes.log.stele.dev.

` + momentHelp,
		Example: `  stele policy log`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			policies, err := newPolicyClient(&o.clientOptions, rest.NoWarnings{})
			if err != nil {
				return err
			}
			o.note = policies.commits(cmd.Context())
			return o.run(cmd, changesQuery{fields: fields.Set{"type": "PolicyActivated"}})
		},
	}
	o.addFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	return cmd
}

// commits tells from which commit a policy that was activated came, as far as that is known
// and may be read.
func (c *policyClient) commits(ctx context.Context) func(*changes.Change) string {
	known := map[string]string{}
	return func(x *changes.Change) string {
		if _, ok := known[x.Policy]; !ok {
			list, _ := c.list(ctx)
			for _, p := range list {
				known[p.Name] = p.Spec.Commit
			}
		}
		return ofCommit(known[x.Policy])
	}
}

// selectBy adds what the flags say to a query. Of what may be repeated one is for
// the server to choose by, more are for the client.
func (o *logOptions) selectBy(ctx context.Context, config *rest.Config, q *changesQuery) error {
	if q.fields == nil {
		q.fields = fields.Set{}
	}
	one := func(field string, values []string, of func(*changes.Change) string) {
		if len(values) == 1 {
			q.fields[field] = values[0]
		}
		if len(values) > 1 {
			q.only(func(c *changes.Change) bool { return slices.Contains(values, of(c)) })
		}
	}
	one("actor.user", o.actors, func(c *changes.Change) string {
		if c.Actor == nil {
			return ""
		}
		return c.Actor.User
	})
	one("request.verb", o.verbs, func(c *changes.Change) string {
		if c.Request == nil {
			return ""
		}
		return c.Request.Verb
	})
	if len(q.resources) == 1 {
		q.fields["object.group"], q.fields["object.resource"] = q.resources[0].Group, q.resources[0].Resource
	}
	if len(q.resources) > 1 {
		q.only(func(c *changes.Change) bool {
			return c.Object != nil && slices.Contains(q.resources, schema.GroupResource{Group: c.Object.Group, Resource: c.Object.Resource})
		})
	}
	if o.auditID != "" {
		q.fields["request.auditID"] = o.auditID
	}
	m, err := newMoments(config)
	if err != nil {
		return err
	}
	for _, bound := range []struct{ field, text string }{{"since", o.since}, {"until", o.until}} {
		if bound.text == "" {
			continue
		}
		at, err := m.parse(ctx, bound.text)
		if err != nil {
			return fmt.Errorf("--%s: %w", bound.field, err)
		}
		switch {
		case at.revision > 0:
			q.fields[bound.field] = fmt.Sprint(at.revision)
		case at.isNow() && bound.field == "until":
		case at.isNow():
			q.fields[bound.field] = m.now.UTC().Format(time.RFC3339Nano)
		default:
			q.fields[bound.field] = at.at.UTC().Format(time.RFC3339Nano)
		}
	}
	return nil
}

// run shows the changes that a query and the flags ask for, and follows them if that is
// asked.
func (o *logOptions) run(cmd *cobra.Command, q changesQuery) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.check(); err != nil {
		return err
	}
	if o.limit < 0 {
		return usagef("--limit %d: use a number of changes, or 0 for all", o.limit)
	}
	config, _, err := o.config()
	if err != nil {
		return err
	}
	if err := o.selectBy(ctx, config, &q); err != nil {
		return err
	}
	q.differences = o.differences
	if q.limit = o.limit; o.follow && o.limit == 0 && o.since == "" {
		q.limit = 10
	}
	client, err := newChangesClient(config)
	if err != nil {
		return err
	}
	out, err := o.open(cmd, o.follow)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	p := o.printer(out)
	shown := false
	var last []*logged // with --follow, until they can be shown from the oldest on
	revision, err := client.list(ctx, q, func(page []*logged) error {
		shown = shown || len(page) > 0
		if o.follow {
			last = append(last, page...)
			return nil
		}
		return p.print(page)
	})
	if err == nil && !shown && !o.follow && o.never != nil {
		return cmp.Or(p.end(), o.never)
	}
	if err == nil && !shown && !o.follow && o.format == "" {
		o.hint(cmd, "%s", cmp.Or(o.none, "No changes found."))
	}
	if err == nil && o.follow {
		slices.Reverse(last)
		if err = p.print(last); err == nil {
			err = client.follow(ctx, q, revision, p.print)
		}
	}
	if err == nil {
		err = p.end()
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}
