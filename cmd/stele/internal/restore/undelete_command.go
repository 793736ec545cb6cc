package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/changes"
)

type undeleteOptions struct {
	restoreOptions
	uid, selector, since string
}

// UndeleteCommand returns the command that brings deleted objects back.
func UndeleteCommand() *cobra.Command {
	o := &undeleteOptions{}
	cmd := &cobra.Command{
		Use:   "undelete (KIND NAME... | KIND/NAME... | KIND -l SELECTOR | KIND --since MOMENT)",
		Short: "Bring back deleted objects, or a deleted namespace with its objects",
		Long: `Undelete creates a deleted object again, as it was before its deletion began. If several objects had
the name, it brings back the last one; --uid selects another one. A namespace comes back with its
objects.

-l selects the deleted objects of a kind by their labels, and --since by the time of their deletion.
Objects that exist again are left alone.

It shows a plan and asks you. Uids, owner references, finalizers and status are handled as by
stele revert. You need permission to list changes.log.stele.dev.

` + client.MomentHelp,
		Example: `  stele undelete database orders
  stele undelete databases orders billing
  stele undelete pipelines -n shop --since 14:00
  stele undelete cm/settings -n shop --uid 0ca24a37-1b1f-44cb-a2ad-6a5ee6e7b1bd
  stele undelete namespace shop --yes`,
		RunE: o.run,
	}
	o.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.uid, "uid", "", "uid of the object, if several had the name")
	f.StringVarP(&o.selector, "selector", "l", "", "objects of the kind that had these labels")
	f.StringVar(&o.since, "since", "", "objects of the kind that were deleted at a `MOMENT` or later")
	_ = cmd.RegisterFlagCompletionFunc("since", client.CompleteMoments)
	cmd.ValidArgsFunction = o.completeDeleted
	return cmd
}

// check returns an error for arguments that are missing or contradict each other.
func (o *undeleteOptions) check(cmd *cobra.Command, args []string) ([]client.ObjectNames, error) {
	named, err := client.ParseObjects(args)
	if err != nil {
		return nil, err
	}
	if len(named) == 0 {
		return nil, usage.Missing(cmd, "KIND and NAME of what was deleted")
	}
	chosen := o.selector != "" || o.since != ""
	for _, n := range named {
		switch {
		case len(n.Names) > 0 && chosen:
			return nil, usage.Errorf("names cannot be given together with -l or --since")
		case len(n.Names) == 0 && !chosen:
			return nil, usage.Missing(cmd, fmt.Sprintf("which %s: names, -l SELECTOR or --since MOMENT", n.Kind))
		}
	}
	if o.uid != "" && (chosen || len(named) > 1 || len(named[0].Names) > 1) {
		return nil, usage.Errorf("--uid is for one object")
	}
	return named, nil
}

// run finds the deleted objects and brings them back.
func (o *undeleteOptions) run(cmd *cobra.Command, args []string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	named, err := o.check(cmd, args)
	if err != nil {
		return err
	}
	r, err := o.begin(cmd)
	if err != nil {
		return err
	}
	var wanted []Subject
	for _, n := range named {
		found, err := o.subjects(ctx, r, n)
		if err != nil {
			return err
		}
		wanted = append(wanted, found...)
	}
	if len(wanted) == 0 {
		o.Hint(cmd, "No such objects were deleted, or all of them exist again.")
		return nil
	}
	return o.bringBack(ctx, r, wanted)
}

// subjects returns the deleted objects that the arguments select. It sets their names only.
func (o *undeleteOptions) subjects(ctx context.Context, r *restoring, n client.ObjectNames) ([]Subject, error) {
	kind, namespace, err := r.kind(n.Kind)
	if err != nil {
		return nil, err
	}
	var all []Subject
	for _, name := range n.Names {
		all = append(all, Subject{Kind: kind, Namespace: namespace, Name: name})
	}
	if len(n.Names) > 0 {
		return all, nil
	}
	q := client.ChangesQuery{Namespace: namespace, Resources: []schema.GroupResource{kind.gvr().GroupResource()}, Fields: fields.Set{"type": "Deleted"}}
	if err := (&client.ChangeFlags{Selector: o.selector, Since: o.since}).SelectBy(ctx, r.config, &q); err != nil {
		return nil, err
	}
	deletions, err := r.log.Some(ctx, q)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, c := range deletions {
		if c.Object == nil || seen[c.Object.Name] {
			continue
		}
		seen[c.Object.Name] = true
		now, err := r.client.Get(ctx, kind, namespace, c.Object.Name, 0)
		if err != nil {
			return nil, err
		}
		if now == nil {
			all = append(all, Subject{Kind: kind, Namespace: namespace, Name: c.Object.Name})
		}
	}
	return all, nil
}

// bringBack plans how to restore deleted objects, and carries out the plan.
func (o *undeleteOptions) bringBack(ctx context.Context, r *restoring, wanted []Subject) error {
	options := Options{Status: o.status}
	var subjects []Subject
	latest := uint64(0)
	for i := range wanted {
		what := &wanted[i]
		if now, err := r.client.Get(ctx, what.Kind, what.Namespace, what.Name, 0); err == nil && now != nil && now.GetDeletionTimestamp() != nil && o.uid == "" {
			return fmt.Errorf("%s is still being deleted; try again when it is gone", what.Key())
		}
		before, err := o.beforeDeletion(ctx, r, what)
		if err != nil {
			return err
		}
		latest = max(latest, before)
		if what.Kind.IsNamespace() {
			if len(wanted) > 1 {
				return usage.Errorf("bring namespaces back one by one: each comes back with its objects")
			}
			p, err := r.namespace(ctx, what.Name, before, options)
			if err != nil {
				return err
			}
			return r.carryOut(ctx, p, fmt.Sprintf("What was deleted, as it was at revision %d:", before), before)
		}
		s, err := r.client.Named(ctx, what.Kind, what.Namespace, what.Name, before)
		if err != nil {
			return err
		}
		subjects = append(subjects, s)
	}
	title := fmt.Sprintf("What was deleted, as it was at revision %d:", latest)
	if len(subjects) > 1 {
		title = "What was deleted, each as it was before:"
	}
	return r.carryOut(ctx, Make(subjects, r.client.Owners(ctx), options), title, latest)
}

// beforeDeletion returns the last revision before the deletion of an object began. Without --uid it finds the
// last object of that name.
func (o *undeleteOptions) beforeDeletion(ctx context.Context, r *restoring, what *Subject) (uint64, error) {
	deletion, err := o.deletion(ctx, r.log, what)
	if err != nil {
		return 0, err
	}
	// A deletion that waited for finalizers began with a write that is in the log, too.
	began := deletion
	for began.PreviousRevision > 0 {
		was, err := r.client.Get(ctx, what.Kind, what.Namespace, what.Name, began.PreviousRevision)
		if err != nil {
			return 0, err
		}
		if was == nil || was.GetDeletionTimestamp() == nil {
			break
		}
		if began, err = r.log.Get(ctx, what.Namespace, began.PreviousRevision); err != nil {
			return 0, err
		}
	}
	if what.Kind.IsNamespace() {
		return began.Revision - 1, nil // includes the last changes in the namespace
	}
	return began.PreviousRevision, nil
}

// deletion returns the change that deleted an object.
func (o *undeleteOptions) deletion(ctx context.Context, log *client.Changes, what *Subject) (*changes.Change, error) {
	selected := fields.Set{
		"type": "Deleted", "object.group": what.Kind.Group, "object.resource": what.Kind.Resource,
		"object.namespace": what.Namespace, "object.name": what.Name,
	}
	if o.uid != "" {
		selected["object.uid"] = o.uid
	}
	deletions, err := log.Some(ctx, client.ChangesQuery{Namespace: what.Namespace, Fields: selected, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(deletions) > 0 {
		return deletions[0], nil
	}
	if o.uid != "" {
		return nil, fmt.Errorf("no %s of the uid %s was ever deleted; `stele history %s %s` shows the objects that had the name", what.Key(), o.uid, what.Kind, what.Name)
	}
	return nil, fmt.Errorf("no %s was ever deleted", what.Key())
}

// completeDeleted offers kinds, and the names of objects that were deleted recently.
func (o *undeleteOptions) completeDeleted(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	kind, _, slashed := strings.Cut(word, "/")
	prefix := ""
	switch {
	case len(args) == 0 && slashed:
		prefix = kind + "/"
	case len(args) == 0:
		return o.CompleteKinds(cmd, args, word)
	case strings.Contains(args[0], "/"):
		return nil, usage.NoFiles
	default:
		kind = args[0]
	}
	names := o.deletedNames(cmd, kind)
	for i, name := range names {
		names[i] = prefix + name
	}
	return names, usage.NoFiles
}

// deletedNames returns the names of objects of a kind that were deleted recently.
func (o *undeleteOptions) deletedNames(cmd *cobra.Command, kind string) []string {
	return o.CompleteNames(cmd, kind, func(ctx context.Context, config *rest.Config, mapping *meta.RESTMapping, namespace string) ([]string, error) {
		log, err := client.NewChanges(config)
		if err != nil {
			return nil, err
		}
		deletions, err := log.Some(ctx, client.ChangesQuery{Namespace: namespace, Limit: 100, Fields: fields.Set{
			"type": "Deleted", "object.group": mapping.Resource.Group, "object.resource": mapping.Resource.Resource,
		}})
		names := []string{}
		for _, c := range deletions {
			if c.Object != nil && !slices.Contains(names, c.Object.Name) {
				names = append(names, c.Object.Name)
			}
		}
		return names, err
	})
}
