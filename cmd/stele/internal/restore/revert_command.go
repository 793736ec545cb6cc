package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/changes"
)

type revertOptions struct {
	restoreOptions
	to, selector string
	all          bool
}

// RevertCommand returns the command that puts objects back to what they were at a moment.
func RevertCommand() *cobra.Command {
	o := &revertOptions{}
	cmd := &cobra.Command{
		Use:   "revert --to MOMENT (KIND NAME... | KIND/NAME... | KIND -l SELECTOR | KIND --all | -A KIND | -n NAMESPACE)",
		Short: "Put objects back to what they were at a moment",
		Long: `Revert puts objects back to what they were at a moment: named objects, objects with labels (then or
now), all objects of a kind in a namespace (--all) or in all namespaces (-A), or with -n alone all
objects in a namespace. It shows a plan, with the users who changed an object since, and asks you.

It makes ordinary creates, updates and deletes as your user, under the policy in force. The server
tries each write before the first one is made, and the plan shows what it refuses.

  - A deleted object is created again, with a new uid. If another object has its name now, that one
    is updated and keeps its uid.
  - An object that was created since stays, unless --prune is given.
  - An owner reference stays if its owner exists. If the owner comes back, too, the reference gets its
    new uid. If the owner is gone, the reference is dropped, because the garbage collector would
    delete the object at once.
  - Finalizers come back, except those of the garbage collector. An object that was being deleted at
    that moment comes back without that deletion.

An object that changes between the plan and its write is left alone and named.

A revert of a namespace leaves out events, leases, the service account default and objects of the
policy. The exit code is 1 if something could not be put back, and 2 if there is no terminal to ask
you on and --yes is not given.

` + client.MomentHelp,
		Example: `  stele revert --to 1200 database orders
  stele revert --to 10m configmaps -l app=web --dry-run
  stele revert --to "yesterday 14:00" -n shop --prune
  stele revert --to 1h databases -n shop --all
  stele revert --to 1200 -A databases --yes`,
		RunE:              o.run,
		ValidArgsFunction: o.CompleteObjects(0),
	}
	o.addFlags(cmd)
	o.AddAllNamespaces(cmd)
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "`MOMENT` to go back to")
	f.StringVarP(&o.selector, "selector", "l", "", "only objects with these labels, at either moment")
	f.BoolVar(&o.all, "all", false, "all objects of the kind in the namespace")
	f.BoolVar(&o.prune, "prune", false, "delete objects that were created since")
	usage.Required(cmd, "to")
	_ = cmd.RegisterFlagCompletionFunc("to", client.CompleteMoments)
	return cmd
}

// run reads the objects, and plans and carries out their revert.
func (o *revertOptions) run(cmd *cobra.Command, args []string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	named, err := o.check(args)
	if err != nil {
		return err
	}
	r, err := o.begin(cmd)
	if err != nil {
		return err
	}
	revision, err := client.Resolve(ctx, r.config, o.to)
	if err != nil {
		return err
	}
	options := Options{Prune: o.prune, Status: o.status}
	if len(named) == 0 {
		p, err := r.namespace(ctx, o.Namespace, revision, options)
		if err != nil {
			return err
		}
		r.sayWhoChanged(ctx, p, revision)
		return r.carryOut(ctx, p, fmt.Sprintf("The namespace %s, back to revision %d:", o.Namespace, revision), revision)
	}
	subjects, unread, err := o.subjects(ctx, r, named, revision)
	if err != nil {
		return err
	}
	p := Make(subjects, r.client.Owners(ctx), options)
	p.Unread = unread
	r.sayWhoChanged(ctx, p, revision)
	return r.carryOut(ctx, p, fmt.Sprintf("Back to revision %d:", revision), revision)
}

// check returns an error for arguments that are missing or contradict each other.
func (o *revertOptions) check(args []string) ([]client.ObjectNames, error) {
	named, err := client.ParseObjects(args)
	if err != nil {
		return nil, err
	}
	if len(named) == 0 {
		switch {
		case o.Everywhere || o.selector != "" || o.all:
			return nil, usage.Errorf("missing KIND: -A, -l and --all choose among the objects of a kind")
		case o.Namespace == "":
			return nil, usage.Errorf("missing what to put back: KIND NAME..., KIND/NAME..., KIND --all, KIND -l SELECTOR, -A KIND, or -n NAMESPACE for everything in it")
		}
	}
	for _, n := range named {
		switch {
		case len(n.Names) > 0 && o.Everywhere:
			return nil, usage.Errorf("names and -A cannot be given together: use -n NAMESPACE")
		case len(n.Names) > 0 && o.selector != "":
			return nil, usage.Errorf("names and -l cannot be given together")
		case len(n.Names) > 0 && o.all:
			return nil, usage.Errorf("names and --all cannot be given together")
		case len(n.Names) == 0 && !o.Everywhere && !o.all && o.selector == "":
			return nil, usage.Errorf("missing which %s: names, -l SELECTOR, --all for all in the namespace, or -A for all in all namespaces", n.Kind)
		}
	}
	return named, nil
}

// subjects reads the objects that the arguments select. unread has the errors of kinds that the user may not read.
func (o *revertOptions) subjects(ctx context.Context, r *restoring, named []client.ObjectNames, revision uint64) (subjects []Subject, unread []string, err error) {
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range named {
		kind, namespace, err := r.kind(n.Kind)
		if err != nil {
			return nil, nil, err
		}
		var found []Subject
		if len(n.Names) == 0 {
			found, err = r.client.Selected(ctx, kind, namespace, selector, revision)
		} else {
			found, err = r.named(ctx, kind, namespace, n.Names, revision)
		}
		switch {
		case client.Unreadable(err):
			unread = append(unread, err.Error())
		case err != nil:
			return nil, nil, err
		}
		subjects = append(subjects, found...)
	}
	if len(subjects) == 0 && len(unread) > 0 {
		return nil, nil, errors.New(strings.Join(unread, "\n"))
	}
	return subjects, unread, nil
}

// named reads the named objects. Each must exist now or have existed at the revision.
func (r *restoring) named(ctx context.Context, kind Kind, namespace string, names []string, revision uint64) ([]Subject, error) {
	var subjects []Subject
	for _, name := range names {
		s, err := r.client.Named(ctx, kind, namespace, name, revision)
		if err != nil {
			return nil, err
		}
		if s.Then == nil && s.Now == nil {
			return nil, fmt.Errorf("there was no %s at revision %d, and there is none now", s.Key(), revision)
		}
		subjects = append(subjects, s)
	}
	return subjects, nil
}

// sayWhoChanged adds a note to each update: how often the object changed since the revision, and which users changed it,
// because the update overwrites these changes. It adds no notes if the user may not list changes.
func (r *restoring) sayWhoChanged(ctx context.Context, p *Plan, revision uint64) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(undoAtOnce)
	for _, i := range p.Items {
		if i.Action != Update {
			continue
		}
		group.Go(func() error {
			since, err := r.changesOf(ctx, i.Subject, revision+1)
			if err == nil && len(since) > 0 {
				i.Notes = append([]string{changedSince(since)}, i.Notes...)
			}
			return err
		})
	}
	_ = group.Wait() // without the permission to list changes, there are no notes
}

// changedSince returns how often an object changed, and which users changed it, as text.
func changedSince(since []*changes.Change) string {
	var who []string
	for _, c := range since {
		if actor := client.ActorText(c); !slices.Contains(who, actor) {
			who = append(who, actor)
		}
	}
	slices.Sort(who)
	times := "once"
	if len(since) > 1 {
		times = fmt.Sprintf("%d times", len(since))
	}
	return "changed " + times + " since, by " + strings.Join(who, ", ")
}
