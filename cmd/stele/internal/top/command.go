package top

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/flowapi"
	"stele.dev/stele/limits/steady"
)

// options are the flags of both commands.
type options struct {
	client.Flags
	show.OutputFlags
	once          bool
	interval      time.Duration
	level, schema string
}

func (o *options) addFlags(cmd *cobra.Command) {
	o.Flags.AddFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	o.AddIdentity(cmd)
	o.OutputFlags.AddFlags(cmd, "wide", "json", "yaml")
	_ = cmd.Flags().MarkHidden("no-pager")
	_ = cmd.Flags().MarkHidden("utc")
	cmd.Flags().BoolVar(&o.once, "once", false, "print once and end, also on a terminal")
	usage.DurationVar(cmd.Flags(), &o.interval, "interval", 2*time.Second, "time between two refreshes, and over which rates are measured")
	_ = cmd.RegisterFlagCompletionFunc("interval", cobra.FixedCompletions([]string{"1s", "2s", "5s", "10s"}, usage.NoFiles))
	cmd.ValidArgsFunction = cobra.NoFileCompletions
}

// Command returns the command `stele top` with its subcommand.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what a server does now: requests, watches, memory, log, priority levels",
		Long: `Top shows what a server does now: answered requests per second with their latency and codes, open watches,
memory, the log, connections, and the seats of each priority level. The numbers are from /metrics, which
it reads twice.

On a terminal it shows them again and again until you type q. Otherwise, and with --once, it prints them once.

A latency is an estimate within a bucket of a histogram. WATCH has none: a watch ends when the client wants.`,
		Example: `  stele top
  stele top --once
  stele top -o json --interval 10s
  stele top flows`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd, func(config *rest.Config) reader { return &overviewReader{config: config, interval: o.interval} })
		},
	}
	o.addFlags(cmd)
	cmd.AddCommand(flowsCommand())
	return cmd
}

func flowsCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "Show who uses the seats of a server now, who waits, and who was refused",
		Long: `Flows shows the flows of requests on a server: the requests that match one flow schema, of one user or for one
namespace. For each it shows the priority level, the seats that its requests hold, how many run and wait and how long,
its watches, how many were refused in the last minutes and why, and the line of the flow schema. Those with the most
seats come first.

On a terminal it shows them again and again until you type q. Otherwise, and with --once, it prints them once.`,
		Example: `  stele top flows
  stele top flows --level workload-low -o wide
  stele top flows -o json`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd, func(config *rest.Config) reader {
				return flowReader{config: config, level: o.level, schema: o.schema}
			})
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringVar(&o.level, "level", "", "only flows of this priority level")
	cmd.Flags().StringVar(&o.schema, "schema", "", "only flows of this flow schema")
	_ = cmd.RegisterFlagCompletionFunc("level", o.completeNames(func(s *flowapi.FlowStatus) string { return s.PriorityLevel }))
	_ = cmd.RegisterFlagCompletionFunc("schema", o.completeNames(func(s *flowapi.FlowStatus) string { return s.FlowSchema }))
	return cmd
}

// completeNames offers names that flows have now.
func (o *options) completeNames(of func(*flowapi.FlowStatus) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return o.Complete(cmd, func(ctx context.Context, config *rest.Config, _ clientcmd.ClientConfig) ([]string, error) {
			l, err := readFlows(ctx, config)
			if err != nil {
				return nil, err
			}
			return l.names(of), nil
		}), usage.NoFiles
	}
}

// reader reads what a command shows.
type reader interface {
	read(ctx context.Context) (result, error)
}

// result is what a command shows.
type result interface {
	text(out *show.Output, wide bool) error
	document(out *show.Output, format string) error
}

// shortest is the shortest interval.
const shortest = 100 * time.Millisecond

// run prints once, or again and again on a terminal.
func (o *options) run(cmd *cobra.Command, open func(*rest.Config) reader) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if o.interval < shortest {
		return usage.Errorf("--interval %s is too short: use at least %s", o.interval, shortest)
	}
	config, _, err := o.Config()
	if err != nil {
		return err
	}
	out, err := o.Open(cmd, true)
	if err != nil {
		return err
	}
	r := open(config)
	if terminal, ok := out.Writer.(*os.File); ok && o.Format == "" && !o.once && show.IsTerminal(terminal) {
		return o.refresh(ctx, r, out, terminal)
	}
	x, err := r.read(ctx)
	switch {
	case err != nil:
		return err
	case o.Format != "":
		return x.document(out, o.Format)
	}
	return x.text(out, o.Wide)
}

// refresh shows what the reader returns on a terminal until the user ends it. If the server does not answer, the screen
// shows the error above what was read last.
func (o *options) refresh(ctx context.Context, r reader, out *show.Output, terminal *os.File) error {
	first, err := r.read(ctx) // the error of the first is a plain message
	if err != nil {
		return err
	}
	s, restore, err := openScreen(os.Stdin, terminal, o.interval)
	if err != nil {
		return err
	}
	defer restore()
	return s.run(ctx, frames(r, first, out, o.Wide))
}

// frames returns a function that draws the first result, and then what the reader returns.
func frames(r reader, first result, out *show.Output, wide bool) func(context.Context) []byte {
	last := first
	fresh := true
	return func(ctx context.Context) []byte {
		var b bytes.Buffer
		to := *out
		to.Writer = &b
		if !fresh {
			x, err := r.read(ctx)
			if err == nil {
				last = x
			} else {
				b.WriteString(to.Paint(show.Removed, show.Harmless(strings.ReplaceAll(client.ErrorText(err), "\n", "; "))) + "\n")
			}
		}
		fresh = false
		_ = last.text(&to, wide) // a buffer takes everything
		return b.Bytes()
	}
}

// overviewReader compares the metrics of a server with those that it read before. It is not safe for concurrent use.
type overviewReader struct {
	config   *rest.Config
	interval time.Duration
	version  string
	last     *sample
}

// read implements [reader]. The first time it reads twice.
func (r *overviewReader) read(ctx context.Context) (result, error) {
	if r.last == nil {
		s, err := readSample(ctx, r.config)
		if err != nil {
			return nil, err
		}
		r.last, r.version = s, readVersion(ctx, r.config)
		if err := steady.Wait(ctx, r.interval); err != nil {
			return nil, err
		}
	}
	s, err := readSample(ctx, r.config)
	if err != nil {
		return nil, err
	}
	o := compare(strings.TrimSuffix(r.config.Host, "/"), r.last, s)
	o.Version, r.last = r.version, s
	return o, nil
}

// readVersion returns the version of a server, "" if it does not tell.
func readVersion(ctx context.Context, config *rest.Config) string {
	var v version.Info
	if text, err := client.Read(ctx, config, "/version", nil); err != nil || json.Unmarshal(text, &v) != nil {
		return ""
	}
	return v.GitVersion
}

func (o *overview) document(out *show.Output, format string) error { return out.Document(format, o) }

// flowReader reads the flows of a server.
type flowReader struct {
	config        *rest.Config
	level, schema string
}

// read implements [reader].
func (r flowReader) read(ctx context.Context) (result, error) {
	l, err := readFlows(ctx, r.config)
	if err != nil {
		return nil, err
	}
	l.selectFlows(r.level, r.schema)
	return l, nil
}

func (l *flowList) document(out *show.Output, format string) error {
	d := &show.Documents{Out: out, Format: format}
	for i := range l.Items {
		if err := d.Add(&l.Items[i]); err != nil {
			return err
		}
	}
	return d.End()
}
