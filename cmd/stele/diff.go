package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/secrets"
	"stele.dev/stele/core/difference"
)

type diffOptions struct {
	clientOptions
	outputOptions
	from, to, selector           string
	allFields, unified, exitCode bool
}

func diffCommand() *cobra.Command {
	o := &diffOptions{}
	cmd := &cobra.Command{
		Use:   "diff --from MOMENT [--to MOMENT] [KIND [NAME…] | KIND/NAME…]",
		Short: "Show what differs between two moments",
		Long: `Diff compares what was at one moment with what was at another, or is now: which objects
have been created, deleted or changed, and which of their fields were added (+), removed
(-) or replaced (~). Without a KIND it compares all kinds of the namespace, with -A those
of all namespaces, and those that are in none. What the server keeps for itself does not
count: metadata's managedFields, resourceVersion, generation and creationTimestamp, and the uids of
the object and its owners; --all-fields compares them as well. Items of lists are named by their keys, if
the kind says that they have some; else they are counted.

With -o json or yaml it prints a List of client.stele.dev/v1, kind Difference: the object; the
change (created, deleted, changed, or replaced by another of the same name); the revisions, from
and to; and as difference of each field the path, op (add, remove, replace), from and to. What
Secrets hold and what a policy calls sensitive is only in there, and not on the screen.

` + momentHelp,
		Example: `  stele diff --from 1h
  stele diff --from "yesterday 14:00" --to 14:00 -A -o name
  stele diff --from 10m db orders --unified
  stele diff --from 10m --exit-code configmaps -l app=shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := o.run(cmd, args)
			if err != nil && o.exitCode && !errors.Is(err, errSaid) && !errors.Is(err, syscall.EPIPE) {
				return exitError{exitUsage, err}
			}
			return err
		},
		ValidArgsFunction: o.completeObjects(0),
	}
	o.clientOptions.addFlags(cmd)
	o.addAllNamespaces(cmd)
	o.addIdentity(cmd)
	o.outputOptions.addFlags(cmd, "json", "yaml", "name")
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "`MOMENT` to compare with")
	f.StringVar(&o.to, "to", "now", "`MOMENT` that is compared")
	f.StringVarP(&o.selector, "selector", "l", "", "only objects with these labels, at either moment")
	f.BoolVar(&o.allFields, "all-fields", false, "compare also what the server keeps for itself")
	f.BoolVarP(&o.unified, "unified", "u", false, "show the objects as YAML, by the lines that differ")
	f.BoolVar(&o.exitCode, "exit-code", false, "exit with 1 if something differs, and with 2 if it cannot be told")
	required(cmd, "from")
	_ = cmd.RegisterFlagCompletionFunc("from", completeMoments)
	_ = cmd.RegisterFlagCompletionFunc("to", completeMoments)
	return cmd
}

// clientVersion is of what commands themselves say to programs.
const clientVersion = "client.stele.dev/v1"

// errDiffers is an exit code; what differs has been printed.
var errDiffers = exitError{1, errSaid}

// objectDifference is what became of an object between two revisions.
type objectDifference struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	From       uint64            `json:"from"` // revisions
	To         uint64            `json:"to"`
	Change     string            `json:"change"` // created, deleted, changed, or replaced by another of the same name
	Object     objectReference   `json:"object"`
	Difference []fieldDifference `json:"difference"`

	before, after map[string]any
	hidden        secrets.Fields
}

func (d *objectDifference) kind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(d.Object.APIVersion, d.Object.Kind)
}

type objectReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Resource   string `json:"resource"` // with its group
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

func (r *objectReference) String() string {
	if r.Namespace == "" {
		return r.Resource + " " + r.Name
	}
	return r.Resource + " " + r.Namespace + "/" + r.Name
}

func (o *diffOptions) run(cmd *cobra.Command, args []string) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.check(); err != nil {
		return err
	}
	if o.unified && o.format != "" {
		return usagef("--unified and -o %s cannot be given together", o.format)
	}
	objects, err := parseObjects(args)
	if err != nil {
		return err
	}
	config, loader, err := o.config()
	if err != nil {
		return err
	}
	m, err := newMoments(config)
	if err != nil {
		return err
	}
	past := &pastReader{config: config, selector: o.selector}
	var from, to uint64
	if from, err = m.resolve(ctx, o.from); err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	if o.to != "now" { // or else it is the revision of the first answer
		if to, err = m.resolve(ctx, o.to); err != nil {
			return fmt.Errorf("--to: %w", err)
		}
	}
	resources, err := past.resources(objects, &o.clientOptions, loader, from, to)
	if err != nil {
		return err
	}
	out, err := o.open(cmd, false)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	printer := &diffPrinter{out: out, unified: o.unified, documents: documents{out: out, format: o.format}}
	seen := map[string]bool{}
	unknown := 0
	today, then := &shapes{config: config}, &shapes{config: atRevision(config, from)}
	for _, r := range resources {
		before, after, err := past.both(ctx, r, from, &to)
		var left *leftOutError
		if errors.As(err, &left) && len(objects) == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: not compared: %v\n", r.name(), err)
			unknown++
			continue
		}
		if err != nil {
			return err
		}
		for _, name := range r.names {
			if key := r.namespace + "/" + name; before[key] == nil && after[key] == nil && r.note == "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s %s: there was none at revision %d, nor at %d.\n", r.name(), strings.TrimPrefix(key, "/"), from, to)
			}
		}
		shape := today
		if r.gone {
			shape = then
		}
		different := o.compare(r, before, after, shape, seen)
		if r.note != "" && (r.asked || len(different) > 0) {
			fmt.Fprintln(cmd.ErrOrStderr(), r.note)
		}
		for _, d := range different {
			d.From, d.To = from, to
			if o.format == "" {
				kind := d.kind().GroupKind()
				d.hidden = today.secrets(kind).With(then.secrets(kind))
			}
			if err := printer.object(d); err != nil {
				return err
			}
		}
	}
	if err := printer.end(); err != nil {
		return err
	}
	switch {
	case unknown > 0 && unknown == len(resources):
		return errors.New("nothing could be compared")
	case printer.shown > 0 || o.format != "":
	case unknown > 0:
		o.hint(cmd, "Of what could be compared nothing differs between the revisions %d and %d.", from, to)
	default:
		o.hint(cmd, "Nothing differs between the revisions %d and %d.", from, to)
	}
	switch {
	case o.exitCode && printer.shown > 0:
		return errDiffers
	case o.exitCode && unknown > 0:
		return fmt.Errorf("%s could not be compared; name the kinds that should be", counted(unknown, "kind"))
	}
	return nil
}

// compare pairs the objects of a kind by their names. Objects that have been seen as another
// kind's are left out.
func (o *diffOptions) compare(r *pastResource, before, after map[string]*unstructured.Unstructured, shape *shapes, seen map[string]bool) []*objectDifference {
	var all []*objectDifference
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		object := keys[key]
		uid := string(object.GetUID())
		if uid != "" && seen[uid] {
			continue
		}
		seen[uid] = true
		d := &objectDifference{APIVersion: clientVersion, Kind: "Difference", Object: objectReference{
			APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Resource: r.name(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: uid,
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
		d.before, d.after = o.content(x), o.content(y)
		if x != nil && y != nil && !o.allFields {
			unidentified(d.before)
			unidentified(d.after)
		}
		d.Difference = fieldDifferences(difference.Between(d.before, d.after, difference.Options{Schema: shape.of(object.GroupVersionKind()), Everything: o.allFields}))
		if x == nil || y == nil || len(d.Difference) > 0 {
			all = append(all, d)
		}
	}
	return all
}

// unidentified takes the uids of an object and of its owners off: what was put back has others.
func unidentified(content map[string]any) {
	unstructured.RemoveNestedField(content, "metadata", "uid")
	owners, _, _ := unstructured.NestedFieldNoCopy(content, "metadata", "ownerReferences")
	list, _ := owners.([]any)
	for _, owner := range list {
		if owner, ok := owner.(map[string]any); ok {
			delete(owner, "uid")
		}
	}
}

// content is what counts of an object; nil for none.
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

// diffPrinter shows objects that differ.
type diffPrinter struct {
	documents
	out     *output
	unified bool
	shown   int
}

func (p *diffPrinter) object(d *objectDifference) error {
	p.shown++
	text, look := "", map[string]style{"created": added, "deleted": removed}[d.Change]
	if look == plain {
		look = altered
	}
	switch {
	case p.format == "name":
		text = resourceName(d.kind(), d.Object.Name) + "\n"
	case p.format != "":
		return p.add(d)
	case p.unified:
		unified, err := unifiedDifference(d)
		if err != nil {
			return err
		}
		text = p.out.colorLines("", unified)
	default:
		if p.shown == 1 {
			text = p.out.paint(faint, fmt.Sprintf("From revision %d to %d:", d.From, d.To)) + "\n"
		}
		note := ""
		if d.Change == "replaced" {
			note = " by another of the same name"
		}
		text += p.out.paint(look, d.Change+" "+d.Object.String()+note) + "\n" + p.out.differences("    ", withoutSecrets(d.hidden, d.Difference))
	}
	_, err := io.WriteString(p.out, text)
	return err
}

func (p *diffPrinter) end() error {
	if p.format == "json" || p.format == "yaml" {
		return p.documents.end()
	}
	return nil
}

// unifiedDifference is that of two objects as YAML.
func unifiedDifference(d *objectDifference) (string, error) {
	u := difflib.UnifiedDiff{Context: 3}
	for _, side := range []struct {
		name     *string
		lines    *[]string
		content  map[string]any
		revision uint64
		other    map[string]any
		when     string
	}{{&u.FromFile, &u.A, d.before, d.From, d.after, "before"}, {&u.ToFile, &u.B, d.after, d.To, d.before, "after"}} {
		if *side.name = "/dev/null"; side.content == nil {
			continue
		}
		content := side.content
		content = d.hidden.Content(content, side.other, side.when)
		text, err := yaml.Marshal(content)
		if err != nil {
			return "", err
		}
		*side.name = fmt.Sprintf("%s at %d", d.Object.String(), side.revision)
		*side.lines = splitLines(string(text))
	}
	return difflib.GetUnifiedDiffString(u)
}
