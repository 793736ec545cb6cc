package restore

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/changes"
)

// restoreOptions are the flags of revert, undelete and undo.
type restoreOptions struct {
	client.Flags
	show.OutputFlags
	yes, dryRun, prune, status bool
}

func (o *restoreOptions) addFlags(cmd *cobra.Command) {
	o.Flags.AddFlags(cmd)
	o.AddIdentity(cmd)
	o.OutputFlags.AddFlags(cmd, "json", "yaml", "name")
	f := cmd.Flags()
	_ = f.MarkHidden("utc") // there are no times in plans
	f.BoolVarP(&o.yes, "yes", "y", false, "carry out the plan without asking")
	f.BoolVar(&o.dryRun, "dry-run", false, "only show the plan")
	f.BoolVar(&o.status, "status", true, "also put back status where it is a subresource, by a second write")
}

// PlannedOnly is the error of a command that has shown its plan, but has no terminal on which to ask the user.
type PlannedOnly struct {
	program string
	Args    []string
}

// Error returns the command line that carries out the plan.
func (p *PlannedOnly) Error() string {
	words := []string{p.program}
	for _, arg := range p.Args {
		words = append(words, usage.Quote(arg))
	}
	end := len(words)
	if i := slices.Index(words, "--"); i > 0 {
		end = i
	}
	return "nothing has been written, because there is no terminal to ask on; to carry out the plan: " + strings.Join(slices.Insert(words, end, "--yes"), " ")
}

// restoring is a revert, undelete or undo that is running.
type restoring struct {
	*restoreOptions
	cmd    *cobra.Command
	config *rest.Config
	loader clientcmd.ClientConfig
	client *Client
	kinds  *client.Kinds
	shapes *client.Shapes
	log    *client.Changes
}

// begin connects to the server and reads which kinds it serves.
func (o *restoreOptions) begin(cmd *cobra.Command) (*restoring, error) {
	config, loader, err := o.Config()
	if err != nil {
		return nil, err
	}
	if present := client.PresentURL(config.Host); present != strings.TrimSuffix(config.Host, "/") {
		return nil, fmt.Errorf("the kubeconfig's context is at a moment, %s, which is read-only: choose a context at the present by --context", config.Host)
	}
	r := &restoring{restoreOptions: o, cmd: cmd, config: config, loader: loader, shapes: &client.Shapes{Config: config}}
	if r.kinds, err = client.NewKinds(config); err != nil {
		return nil, err
	}
	if r.log, err = client.NewChanges(config); err != nil {
		return nil, err
	}
	silent := rest.CopyConfig(config)
	silent.WarningHandler = rest.NoWarnings{} // the dry run and the write would warn twice
	objects, err := dynamic.NewForConfig(silent)
	if err != nil {
		return nil, err
	}
	if r.client, err = NewClient(r.kinds.Discovery, objects); err != nil {
		return nil, err
	}
	if stderr := cmd.ErrOrStderr(); show.IsTerminal(stderr) && !o.Quiet {
		r.client.Progress = progressLine(stderr)
	}
	return r, nil
}

// kind returns the kind that the user named, and the namespace of its objects that the flags mean.
func (r *restoring) kind(name string) (kind Kind, namespace string, err error) {
	mapping, err := r.kinds.Resource(name)
	if err != nil {
		return kind, "", err
	}
	if kind, err = r.client.Kind(mapping.GroupVersionKind); err == nil {
		namespace, err = r.NamespaceFor(mapping, r.loader)
	}
	return kind, namespace, err
}

// changesOf returns the changes of an object since a revision, the newest first.
func (r *restoring) changesOf(ctx context.Context, s Subject, since uint64) ([]*changes.Change, error) {
	return r.log.Some(ctx, client.ChangesQuery{Namespace: s.Namespace, Fields: fields.Set{
		"object.group": s.Kind.Group, "object.resource": s.Kind.Resource, "object.namespace": s.Namespace, "object.name": s.Name,
		"since": strconv.FormatUint(since, 10),
	}})
}

// namespace plans how to put back everything in a namespace.
func (r *restoring) namespace(ctx context.Context, namespace string, revision uint64, options Options) (*Plan, error) {
	subjects, leftOut, unread, err := r.client.Namespace(ctx, namespace, revision)
	if err != nil {
		return nil, err
	}
	p := Make(subjects, r.client.Owners(ctx), options)
	p.LeftOut, p.Unread = leftOut, unread
	// A kind leaves the policy only when all its objects have been deleted.
	deletions, err := r.log.Some(ctx, client.ChangesQuery{Namespace: namespace, Fields: fields.Set{
		"type": "Deleted", "since": strconv.FormatUint(revision+1, 10),
	}})
	if err != nil {
		p.Unread = append(p.Unread, err.Error())
		return p, nil
	}
	for _, d := range deletions {
		if d.Object == nil {
			continue
		}
		if _, served := r.client.KindOf(schema.GroupKind{Group: d.Object.Group, Kind: d.Object.Kind}); served {
			continue
		}
		before, err := r.log.Some(ctx, client.ChangesQuery{Namespace: namespace, Limit: 1, Fields: fields.Set{
			"object.uid": d.Object.UID, "until": strconv.FormatUint(revision, 10),
		}})
		if err != nil {
			return nil, err
		}
		if len(before) > 0 { // the object existed at the revision
			p.Lost(Kind{
				GroupVersionKind: schema.GroupVersionKind{Group: d.Object.Group, Version: d.Object.Version, Kind: d.Object.Kind},
				Resource:         d.Object.Resource, Namespaced: true,
			}, namespace, d.Object.Name)
		}
	}
	return p, nil
}

// progressLine returns a function that shows progress on one line, and removes the line at the end.
func progressLine(out io.Writer) func(string, int, int) {
	return func(what string, done, of int) {
		const few = 50 // this many take no time
		switch {
		case of < few:
		case done < of:
			fmt.Fprintf(out, "\r\x1b[K%s %d of %d", what, done, of)
		default:
			fmt.Fprint(out, "\r\x1b[K")
		}
	}
}

// hide sets the secret fields of the plan's objects, by today's schemas and by the schemas at the revision.
func (r *restoring) hide(p *Plan, revision uint64) {
	then := r.shapes
	if revision > 0 {
		then = &client.Shapes{Config: client.AtRevision(r.config, revision)}
	}
	for _, i := range p.Items {
		kind := i.Kind.GroupKind()
		i.Secrets = r.shapes.Secrets(kind)
		if i.Action == Update { // the plan shows values of updates only
			i.Secrets = i.Secrets.Union(then.Secrets(kind))
		}
	}
}

// carryOut tries a plan, shows it, asks the user, and makes the writes.
func (r *restoring) carryOut(ctx context.Context, p *Plan, title string, revision uint64) error {
	r.hide(p, revision)
	if err := r.client.Try(ctx, p); err != nil {
		return err
	}
	terminal := term.IsTerminal(int(os.Stdin.Fd()))
	going := p.Writes() > 0 && !r.dryRun && (r.yes || terminal)
	if err := r.showPlan(p, title, revision, going); err != nil {
		return err
	}
	switch {
	case p.Writes() > 0 && !r.dryRun && !going:
		return usage.Exit(usage.ExitUsage, &PlannedOnly{program: r.cmd.Root().DisplayName()})
	case !going:
		return incomplete(p)
	case !r.yes:
		agreed, err := r.ask(ctx, p)
		if err != nil || !agreed {
			return cmp.Or(err, errNothingWritten)
		}
	}
	err := r.client.Apply(ctx, p)
	return cmp.Or(err, r.showOutcome(p, revision), incomplete(p))
}

// incomplete returns an error without text if an object could not be put back. The reasons have been printed already.
func incomplete(p *Plan) error {
	if len(p.Unread) > 0 || slices.ContainsFunc(p.Items, func(i *Item) bool { return !i.Complete() }) {
		return errors.New("")
	}
	return nil
}

// errNothingWritten is the error of a command that has made no write.
var errNothingWritten = errors.New("nothing has been written")

// ask asks the user to agree. The user may also interrupt.
func (r *restoring) ask(ctx context.Context, p *Plan) (bool, error) {
	fmt.Fprintf(r.cmd.ErrOrStderr(), "Go on with %s? [y/N] ", usage.Count(p.Writes(), "object"))
	answer := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(r.cmd.InOrStdin()).ReadString('\n')
		if err != nil { // the input ended without a newline
			fmt.Fprintln(r.cmd.ErrOrStderr())
		}
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case a := <-answer:
		return a == "y" || a == "yes", nil
	case <-ctx.Done():
		fmt.Fprintln(r.cmd.ErrOrStderr())
		return false, usage.Exit(128+int(syscall.SIGINT), errNothingWritten)
	}
}

// planDocument is the JSON of a plan or its outcome.
type planDocument struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	To         uint64   `json:"to"`
	CarriedOut bool     `json:"carriedOut"`
	Items      []View   `json:"items"`
	LeftOut    []string `json:"leftOut,omitempty"`
	Unread     []string `json:"unread,omitempty"`
}

// forPrograms prints a plan or its outcome in the format of -o.
func (r *restoring) forPrograms(p *Plan, revision uint64, done bool) error {
	out := &show.Output{Writer: r.cmd.OutOrStdout()}
	if r.Format != "name" {
		document := planDocument{APIVersion: client.DocumentVersion, Kind: "Plan", To: revision, CarriedOut: done, Items: []View{}, LeftOut: p.LeftOut, Unread: p.Unread}
		for _, i := range p.Items {
			document.Items = append(document.Items, i.View())
		}
		return out.Document(r.Format, document)
	}
	for _, i := range p.Items {
		if i.Written() || !done && i.Writes() {
			fmt.Fprintf(out, "%s/%s\n", i.Kind, i.Name)
		}
		if text := cmp.Or(i.Failed, i.Refused); text != "" {
			fmt.Fprintf(r.cmd.ErrOrStderr(), "stele: %s: %s\n", i.Key(), text)
		}
	}
	return nil
}

// showPlan prints a plan. If going, the command continues with the writes, and -o is the format of their outcome: the
// plan is then printed as text on standard error.
func (r *restoring) showPlan(p *Plan, title string, revision uint64, going bool) error {
	switch {
	case r.Quiet && r.Format == "" && going && r.yes:
		return nil
	case r.Format == "":
		out, err := r.Open(r.cmd, false)
		if err != nil {
			return err
		}
		return cmp.Or(r.describe(out, p, title), out.Close())
	case !going:
		return r.forPrograms(p, revision, false)
	case r.yes:
		return nil
	}
	return r.describe(&show.Output{Writer: r.cmd.ErrOrStderr()}, p, title)
}

// describe prints a plan as text.
func (r *restoring) describe(out *show.Output, p *Plan, title string) error {
	table := &show.Columns{Out: out}
	rows := 0
	for _, i := range p.Items {
		if i.Action == Same {
			continue
		}
		if rows++; rows == 1 {
			table.Header("ACTION", "KIND", "NAMESPACE", "NAME")
		}
		table.Add(linesBelow(out, i), show.Cell{Text: string(i.Action), Style: styles[i.Action]}, show.Cell{Text: i.Kind.String()}, show.Cell{Text: cmp.Or(i.Namespace, "-")}, show.Cell{Text: i.Name})
	}
	if rows > 0 {
		fmt.Fprintf(out, "%s\n\n", out.Paint(show.Bold, title))
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	for _, text := range p.Unread {
		fmt.Fprintf(out, "%s\n", out.Paint(show.Removed, "Not read: "+text))
	}
	for _, text := range p.LeftOut {
		fmt.Fprintf(out, "Left out: %s.\n", text)
	}
	if n := p.Untried(); n > 0 {
		fmt.Fprintf(out, "%s can be tried only once the namespace is there.\n", usage.Count(n, "write"))
	}
	_, err := fmt.Fprintln(out, summary(p))
	return err
}

// styles are the styles of actions.
var styles = map[Action]show.Style{
	Create: show.Added, Update: show.Altered, Delete: show.Removed, Refuse: show.Bold, Keep: show.Faint,
}

// linesBelow returns the lines below an item: its differences and notes.
func linesBelow(o *show.Output, i *Item) string {
	var b strings.Builder
	b.WriteString(o.Differences("    ", i.View().Differences))
	for _, note := range i.Notes {
		b.WriteString("    " + o.Paint(show.Faint, note) + "\n")
	}
	for _, text := range i.Missing {
		b.WriteString("    " + o.Paint(show.Removed, "not put back: "+text) + "\n")
	}
	if i.Refused != "" {
		b.WriteString("    " + o.Paint(show.Removed, "cannot be put back: "+strings.ReplaceAll(i.Refused, "\n", "\n      ")) + "\n")
	}
	return b.String()
}

// summary returns what a plan does in one sentence.
func summary(p *Plan) string {
	var parts []string
	for _, x := range []struct {
		action Action
		text   string
	}{
		{Create, "to create"}, {Update, "to update"}, {Delete, "to delete"}, {Refuse, "cannot be put back"},
		{Keep, map[bool]string{true: "left alone", false: "left that came since"}[p.Undo]}, {Same, "unchanged"},
	} {
		if n := p.Count(x.action); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, x.text))
		}
	}
	switch {
	case len(parts) == 0 && len(p.Unread) > 0:
		return "Nothing to do for the objects that could be read."
	case len(parts) == 0 && p.Undo:
		return "Nothing to do: others have replaced or deleted all of it."
	case len(parts) == 0:
		return "There were no such objects, and there are none now."
	case p.Undo && p.Count(Same) == len(p.Items):
		return "Nothing to do: nothing is left of these writes."
	case p.Count(Same) == len(p.Items):
		return "Nothing to do: all is as it was then."
	}
	return strings.Join(parts, ", ") + "."
}

// showOutcome prints which objects were written, and which were not.
func (r *restoring) showOutcome(p *Plan, revision uint64) error {
	if r.Format != "" {
		return r.forPrograms(p, revision, true)
	}
	out, err := r.Open(r.cmd, true)
	if err != nil {
		return err
	}
	written, failed, refused, missing := 0, 0, 0, 0
	var first, last uint64
	for _, i := range p.Items {
		if i.Written() {
			written++
		}
		for _, text := range i.Revisions {
			if revision, err := strconv.ParseUint(text, 10, 64); err == nil {
				if first == 0 || revision < first {
					first = revision
				}
				last = max(last, revision)
			}
		}
		if i.Refused != "" {
			refused++
		} else if len(i.Missing) > 0 && i.Failed == "" {
			missing++
		}
		if i.Failed != "" {
			failed++
			fmt.Fprintf(out, "%s %s: %s\n", out.Paint(show.Removed, "Failed:"), i.Key(), i.Failed)
		}
	}
	text := "Wrote " + usage.Count(written, "object")
	switch {
	case first != 0 && first == last:
		text += fmt.Sprintf(", at revision %d", first)
	case first != 0:
		text += fmt.Sprintf(", at revisions %d to %d", first, last)
	}
	if failed > 0 {
		text += fmt.Sprintf("; %d failed", failed)
	}
	if refused > 0 {
		text += fmt.Sprintf("; %d could not be put back", refused)
	}
	if missing > 0 {
		text += fmt.Sprintf("; %d only in part", missing)
	}
	if !r.Quiet {
		_, err = fmt.Fprintln(out, out.Paint(show.Bold, text+"."))
	}
	return cmp.Or(err, out.Close())
}
