package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/changes"
)

var (
	changesGroupVersion = schema.GroupVersion{Group: changes.Group, Version: changes.Version}
	rawSerializer       = serializer.WithoutConversionCodecFactory{CodecFactory: scheme.Codecs}
)

type logOptions struct {
	clientOptions
	follow bool
	limit  int
	output string
	none   string                       // what is said if there is nothing to show
	note   func(*changes.Change) string // of a line; may be nil
}

func logCommand() *cobra.Command {
	o := &logOptions{}
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show what was written, by whom, newest first",
		Long: `Log shows the events of the log, one line each, newest first: revision, time, who, what.
It asks the server, as the user of the kubeconfig, who needs the permission to list
changes.log.stele.dev.`,
		Example: `  stele log
  stele log --limit 10 -n default
  stele log --follow
  stele log -o json | jq 'select(.actor.user == "alice")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, "") },
	}
	o.addFlags(cmd)
	cmd.Flags().Lookup("namespace").Usage = "only changes of objects in this namespace"
	return cmd
}

func policyLogCommand() *cobra.Command {
	o := &logOptions{}
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show which policies were in force, since when, and who put them there",
		Long: `Log shows the activations of policies, newest first, as they are in the log. To see them
takes the permission to list changes.log.stele.dev.`,
		Example: `  stele policy log`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			policies, err := newPolicyClient(&o.clientOptions, rest.NoWarnings{})
			if err != nil {
				return err
			}
			o.note = policies.commits(cmd.Context())
			return o.run(cmd, "type=PolicyActivated")
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
		if known[x.Policy] == "" {
			return ""
		}
		commit, changed := strings.CutSuffix(known[x.Policy], "+changes")
		text := " of commit " + commit[:min(12, len(commit))]
		if changed {
			text += ", with changes"
		}
		return text
	}
}

// run shows the changes that a field selector selects.
func (o *logOptions) run(cmd *cobra.Command, fields string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, _, err := o.config()
	if err != nil {
		return err
	}
	client, err := newChangesClient(config)
	if err != nil {
		return err
	}
	return o.show(ctx, cmd, client, changesQuery{namespace: o.namespace, fields: fields, limit: o.limit})
}

func (o *logOptions) addFlags(cmd *cobra.Command) {
	o.clientOptions.addFlags(cmd)
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "then go on with what is written from now on")
	cmd.Flags().IntVar(&o.limit, "limit", 0, "show only so many (default: all)")
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "json for one JSON object per line")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json"}, cobra.ShellCompDirectiveNoFileComp))
}

// show prints the changes that a query asks for, and follows them if that is asked.
func (o *logOptions) show(ctx context.Context, cmd *cobra.Command, client *changesClient, q changesQuery) error {
	out := cmd.OutOrStdout()
	var each func(*changes.Change) error
	switch o.output {
	case "":
		line := &lineWriter{out: out, color: isTerminal(out) && os.Getenv("NO_COLOR") == "", note: o.note}
		each = line.write
	case "json":
		encoder := json.NewEncoder(out)
		each = func(c *changes.Change) error { return encoder.Encode(c) }
	default:
		return fmt.Errorf("-o %s: want json", o.output)
	}
	shown := false
	revision, err := client.list(ctx, q, func(c *changes.Change) error {
		shown = true
		return each(c)
	})
	if err == nil && !shown && !o.follow {
		fmt.Fprintln(cmd.ErrOrStderr(), cmp.Or(o.none, "No changes found."))
	}
	if err == nil && o.follow {
		err = client.follow(ctx, q, revision, each)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// lineWriter prints a change on a line, in columns that grow with what they have seen.
type lineWriter struct {
	out             io.Writer
	color           bool
	note            func(*changes.Change) string // what else is to be said; may be nil
	revision, actor int
}

func (w *lineWriter) write(c *changes.Change) error {
	actor := "-"
	if c.Actor != nil {
		actor = c.Actor.User
		if c.Actor.Impersonator != "" {
			actor = c.Actor.Impersonator + " as " + actor
		}
	}
	w.revision, w.actor = max(w.revision, len(c.Name)), max(w.actor, len(actor))
	at, err := time.Parse(time.RFC3339Nano, c.Time)
	if err != nil {
		return err
	}
	revision := fmt.Sprintf("%*s", w.revision, c.Name)
	if w.color {
		revision = "\x1b[33m" + revision + "\x1b[0m"
	}
	text := what(c)
	if w.note != nil {
		text += w.note(c)
	}
	_, err = fmt.Fprintf(w.out, "%s  %s  %-*s  %s\n", revision, at.Local().Format("2006-01-02 15:04:05"), w.actor, actor, text)
	return err
}

// what says in words what happened.
func what(c *changes.Change) string {
	if c.Object == nil {
		words := map[string]string{
			"LogCreated": "created the log", "PolicyChunk": "stored a part of a policy", "PolicyProposed": "proposed policy",
			"PolicyActivated": "activated policy", "EpochStarted": "started an epoch", "LevelRaised": "raised the format level",
		}
		text := words[c.Type]
		if text == "" {
			text = c.Type
		}
		if strings.HasSuffix(text, " policy") {
			text += " " + c.Policy[:min(12, len(c.Policy))]
		}
		return text
	}
	resource := c.Object.Resource
	if c.Object.Group != "" {
		resource += "." + c.Object.Group
	}
	name := c.Object.Name
	if c.Object.Namespace != "" {
		name = c.Object.Namespace + "/" + name
	}
	text := strings.ToLower(c.Type) + " " + resource + " " + name
	if c.Request != nil && c.Request.Subresource != "" {
		text += " (" + c.Request.Subresource + ")"
	}
	return text
}
