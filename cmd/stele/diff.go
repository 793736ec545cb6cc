package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/object/difference"
)

type diffOptions struct {
	client.Flags
	show.OutputFlags
	from, to, selector           string
	allFields, unified, exitCode bool
}

func diffCommand() *cobra.Command {
	o := &diffOptions{}
	cmd := &cobra.Command{
		Use:   "diff --from MOMENT [--to MOMENT] [KIND [NAME…] | KIND/NAME…]",
		Short: "Show what differs between two moments",
		Long: `Diff compares the objects at one moment with those at another one, or with those of now. It shows
which objects were created, deleted or changed, and which of their fields were added (+), removed
(-) or replaced (~). Without a KIND it compares all kinds of the namespace; with -A it compares all
namespaces, and the kinds that have none.

It ignores the fields of metadata that only the server sets: managedFields, resourceVersion,
generation, creationTimestamp, and the uids of the object and its owners. --all-fields compares them,
too. List items are compared by their keys if the kind defines keys, else by position.

With -o json or yaml it prints a List of client.stele.dev/v1, kind Difference: the object; the
change (created, deleted, changed, or replaced by another of the same name); the revisions, from
and to; and for each field the path, op (add, remove, replace), from and to. Only these formats show
values of Secrets and of fields that a policy marks as sensitive.

` + client.MomentHelp,
		Example: `  stele diff --from 1h
  stele diff --from "yesterday 14:00" --to 14:00 -A -o name
  stele diff --from 10m db orders --unified
  stele diff --from 10m --exit-code configmaps -l app=shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := o.run(cmd, args)
			if o.exitCode {
				err = usage.NoAnswer(err)
			}
			return err
		},
		ValidArgsFunction: o.CompleteObjects(0),
	}
	o.Flags.AddFlags(cmd)
	o.AddAllNamespaces(cmd)
	o.AddIdentity(cmd)
	o.OutputFlags.AddFlags(cmd, "json", "yaml", "name")
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "`MOMENT` to compare with")
	f.StringVar(&o.to, "to", "now", "the other `MOMENT`")
	f.StringVarP(&o.selector, "selector", "l", "", "only objects with these labels, at either moment")
	f.BoolVar(&o.allFields, "all-fields", false, "also compare the metadata that only the server sets")
	f.BoolVarP(&o.unified, "unified", "u", false, "show the objects as YAML, by the lines that differ")
	f.BoolVar(&o.exitCode, "exit-code", false, "exit with 1 if something differs, and with 2 if the comparison fails")
	usage.Required(cmd, "from")
	_ = cmd.RegisterFlagCompletionFunc("from", client.CompleteMoments)
	_ = cmd.RegisterFlagCompletionFunc("to", client.CompleteMoments)
	return cmd
}

// errDiffers is the error of --exit-code if something differs. It sets the exit code 1.
var errDiffers = usage.Exit(1, usage.ErrPrinted)

// diffing is a diff that is running.
type diffing struct {
	*diffOptions
	cmd         *cobra.Command
	past        *client.Past
	from, to    uint64 // to is 0 until the first answer, for now
	today, then *client.Shapes
	printer     *show.DiffPrinter
	seen        map[string]bool // uids of the objects that have been compared
	unknown     int             // number of kinds that could not be compared
}

// run compares the selected objects and prints how they differ.
func (o *diffOptions) run(cmd *cobra.Command, args []string) (err error) {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if o.unified && o.Format != "" {
		return usage.Errorf("--unified and -o %s cannot be given together", o.Format)
	}
	objects, err := client.ParseObjects(args)
	if err != nil {
		return err
	}
	config, loader, err := o.Config()
	if err != nil {
		return err
	}
	d := &diffing{diffOptions: o, cmd: cmd, past: &client.Past{Config: config, Selector: o.selector}, seen: map[string]bool{}}
	m, err := client.NewMoments(config)
	if err != nil {
		return err
	}
	if d.from, err = m.Resolve(ctx, o.from); err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	if o.to != "now" {
		if d.to, err = m.Resolve(ctx, o.to); err != nil {
			return fmt.Errorf("--to: %w", err)
		}
	}
	resources, err := d.past.Resources(objects, &o.Flags, loader, d.from, d.to)
	if err != nil {
		return err
	}
	d.today, d.then = &client.Shapes{Config: config}, &client.Shapes{Config: client.AtRevision(config, d.from)}
	out, err := o.Open(cmd, false)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	d.printer = &show.DiffPrinter{Out: out, Unified: o.unified, Documents: show.Documents{Out: out, Format: o.Format}}
	for _, r := range resources {
		err := d.resource(ctx, r)
		if client.Unreadable(err) && len(objects) == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: not compared: %v\n", r.Name(), err)
			d.unknown++
		} else if err != nil {
			return err
		}
	}
	if err := d.printer.End(); err != nil {
		return err
	}
	return d.result(ctx, objects, loader, resources)
}

// elsewhere returns how many objects differ in other namespaces, and outside of namespaces, as far as the user may read them.
func (d *diffing) elsewhere(ctx context.Context, loader clientcmd.ClientConfig) (n int) {
	everywhere := d.Flags
	everywhere.Everywhere = true
	resources, err := d.past.Resources(nil, &everywhere, loader, d.from, d.to)
	if err != nil {
		return 0 // the hint is left out
	}
	for _, r := range resources {
		before, after, err := d.past.ListAtBoth(ctx, r, d.from, &d.to)
		if err != nil {
			continue
		}
		shape := d.today
		if r.Gone {
			shape = d.then
		}
		n += len(d.compare(r, before, after, shape, d.seen))
	}
	return n
}

// scope names what was compared: "", or " in namespace NAME".
func (d *diffing) scope(resources []*client.PastResource) string {
	for _, r := range resources {
		if r.Namespace != "" {
			return " in namespace " + r.Namespace
		}
	}
	return ""
}

// resource compares the objects of a kind and prints how they differ.
func (d *diffing) resource(ctx context.Context, r *client.PastResource) error {
	before, after, err := d.past.ListAtBoth(ctx, r, d.from, &d.to)
	if err != nil {
		return err
	}
	for _, name := range r.Names {
		if key := r.Namespace + "/" + name; before[key] == nil && after[key] == nil && r.Note == "" {
			fmt.Fprintf(d.cmd.ErrOrStderr(), "%s %s: there was none at revision %d, nor at %d.\n", r.Name(), strings.TrimPrefix(key, "/"), d.from, d.to)
		}
	}
	shape := d.today
	if r.Gone {
		shape = d.then
	}
	different := d.compare(r, before, after, shape, d.seen)
	if r.Note != "" && (r.Asked || len(different) > 0) {
		fmt.Fprintln(d.cmd.ErrOrStderr(), r.Note)
	}
	for _, x := range different {
		x.From, x.To = d.from, d.to
		if d.Format == "" {
			kind := x.GVK().GroupKind()
			x.Hidden = d.today.Secrets(kind).Union(d.then.Secrets(kind))
		}
		if err := d.printer.Object(x); err != nil {
			return err
		}
	}
	return nil
}

// result prints a hint if nothing differs, which names the scope and what differs outside of it. It returns the error of the
// command.
func (d *diffing) result(ctx context.Context, objects []client.ObjectNames, loader clientcmd.ClientConfig, resources []*client.PastResource) error {
	kinds, scope := len(resources), d.scope(resources)
	shown := d.printer.Shown > 0
	switch {
	case d.unknown > 0 && d.unknown == kinds:
		return errors.New("nothing could be compared")
	case shown || d.Format != "":
	case d.unknown > 0:
		d.Hint(d.cmd, "Of what could be compared nothing differs%s between the revisions %d and %d.", scope, d.from, d.to)
	default:
		others := ""
		if len(objects) == 0 && !d.Everywhere {
			if n := d.elsewhere(ctx, loader); n > 0 {
				others = fmt.Sprintf(" Elsewhere %s differ: -A", usage.Count(n, "object"))
				if n == 1 {
					others = " Elsewhere 1 object differs: -A"
				}
			}
		}
		d.Hint(d.cmd, "Nothing differs%s between the revisions %d and %d.%s", scope, d.from, d.to, others)
	}
	switch {
	case d.exitCode && shown:
		return errDiffers
	case d.exitCode && d.unknown > 0:
		return fmt.Errorf("%s could not be compared; name the kinds that should be", usage.Count(d.unknown, "kind"))
	}
	return nil
}

// compare returns how the objects of a kind differ. It skips objects whose uid is in seen, because a kind may be served
// in several groups.
func (o *diffOptions) compare(r *client.PastResource, before, after map[string]*unstructured.Unstructured, shape *client.Shapes, seen map[string]bool) []*show.ObjectDifference {
	var all []*show.ObjectDifference
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		object := keys[key]
		uid := string(object.GetUID())
		if uid != "" && seen[uid] {
			continue
		}
		seen[uid] = true
		d := &show.ObjectDifference{APIVersion: client.DocumentVersion, Kind: "Difference", Object: show.ObjectReference{
			APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Resource: r.Name(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: uid,
		}}
		x, y := before[key], after[key]
		switch {
		case x == nil:
			d.Change = "created"
		case y == nil:
			d.Change = "deleted"
		case x.GetUID() != y.GetUID():
			d.Change = "replaced"
		default:
			d.Change = "changed"
		}
		d.Before, d.After = o.content(x), o.content(y)
		if x != nil && y != nil && !o.allFields {
			removeUIDs(d.Before)
			removeUIDs(d.After)
		}
		d.Difference = append([]difference.Entry{}, difference.Between(d.Before, d.After, difference.Options{Schema: shape.Of(object.GroupVersionKind()), Everything: o.allFields})...)
		if x == nil || y == nil || len(d.Difference) > 0 {
			all = append(all, d)
		}
	}
	return all
}

// removeUIDs removes the uids of an object and its owners, because restored objects have others.
func removeUIDs(content map[string]any) {
	unstructured.RemoveNestedField(content, "metadata", "uid")
	owners, _, _ := unstructured.NestedFieldNoCopy(content, "metadata", "ownerReferences")
	list, _ := owners.([]any)
	for _, owner := range list {
		if owner, ok := owner.(map[string]any); ok {
			delete(owner, "uid")
		}
	}
}

// content returns the fields of an object that are compared.
func (o *diffOptions) content(object *unstructured.Unstructured) map[string]any {
	if object == nil {
		return nil
	}
	if !o.allFields {
		for _, name := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp"} {
			unstructured.RemoveNestedField(object.Object, "metadata", name)
		}
	}
	return object.Object
}
