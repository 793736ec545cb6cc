package restore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/changes"
)

type undoOptions struct {
	restoreOptions
	client.ChangeFlags
}

// UndoCommand returns the command that takes back the writes of a user or a client.
func UndoCommand() *cobra.Command {
	o := &undoOptions{}
	cmd := &cobra.Command{
		Use:   "undo (--actor USER | --user-agent PREFIX | --manager NAME) [KIND...]",
		Short: "Take back the writes of a user or a client, and leave those of others",
		Long: `Undo takes back the writes that stele log shows for the same --actor, --user-agent, --manager,
--since, --until, --name and -n, of all kinds or of those that are named. It compares three
states of each field: before these writes, after them, and now.

  - A field that nobody else changed since gets the value that it had before.
  - A field that somebody else changed since stays. The plan says who changed it.
  - An object that was deleted comes back, with a new uid, and so does what the garbage
    collector or the namespace's deletion deleted with it.
  - An object that was created is deleted, unless somebody else changed it since.

It shows a plan and asks you. It makes ordinary writes as your user, under the policy in force, as
stele revert does. The server tries each write before the first one is made. You need permission to
list changes.log.stele.dev.

The exit code is 1 if something could not be taken back, and 2 if there is no terminal to ask you on
and --yes is not given.

` + client.MomentHelp,
		Example: `  stele undo --actor della --user-agent cleanup.py --since 14:00 --dry-run
  stele undo --actor robot --since 1h -n shop databases
  stele undo --manager deploy-bot --since 1200 --until 1250 --yes`,
		RunE:              o.run,
		ValidArgsFunction: o.CompleteKinds,
	}
	o.restoreOptions.addFlags(cmd)
	cmd.Flags().Lookup("namespace").Usage = "only objects in this namespace (default: all)"
	o.AddWriters(cmd, &o.Flags)
	o.AddTimes(cmd)
	cmd.Flags().StringSliceVar(&o.Names, "name", nil, "only objects of this name; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions)
	return cmd
}

// run finds the writes, plans how to take them back, and carries out the plan.
func (o *undoOptions) run(cmd *cobra.Command, args []string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if len(o.Actors)+len(o.Agents)+len(o.Managers) == 0 {
		return usage.Missing(cmd, "whose writes: --actor, --user-agent or --manager")
	}
	for _, arg := range args {
		o.KindNames = append(o.KindNames, strings.Split(arg, ",")...)
	}
	r, err := o.begin(cmd)
	if err != nil {
		return err
	}
	u := &undoCommandRun{restoring: r, chosen: map[string]bool{}}
	if err := u.find(ctx, &o.ChangeFlags); err != nil {
		return err
	}
	if len(u.chosen) == 0 {
		o.Hint(cmd, "There are no such writes.%s", o.Strangers(ctx, r.log))
		return nil
	}
	p, err := u.plan(ctx)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("Taking back %s of %s, from revision %d to %d:", usage.Count(len(u.chosen), "write"), o.describeActors(), u.first, u.last)
	return r.carryOut(ctx, p, title, u.first-1)
}

// describeActors returns the users, clients and field managers whose writes are taken back, as text.
func (o *undoOptions) describeActors() string {
	text := usage.Enumerate(o.Actors)
	if len(o.Agents) > 0 {
		text = strings.TrimSpace(text + " by " + usage.Enumerate(o.Agents))
	}
	if len(o.Managers) > 0 {
		text = strings.TrimSpace(text + " as " + usage.Enumerate(o.Managers))
	}
	return text
}

// undoCommandRun is a running undo command.
type undoCommandRun struct {
	*restoring
	chosen      map[string]bool           // names of the changes that are taken back
	objects     map[changes.Object]uint64 // revision of the first of these changes, by object
	first, last uint64                    // revisions of these changes
}

// ref returns the object of a change without its uid.
func ref(c *changes.Change) changes.Object {
	return changes.Object{Group: c.Object.Group, Resource: c.Object.Resource, Kind: c.Object.Kind, Namespace: c.Object.Namespace, Name: c.Object.Name}
}

// restorable reports whether a change is about an object that can be put back.
func restorable(c *changes.Change) bool {
	return c.Object != nil && !IsTransient(schema.GroupKind{Group: c.Object.Group, Kind: c.Object.Kind})
}

// choose adds a change to the changes that are taken back.
func (u *undoCommandRun) choose(c *changes.Change) {
	u.chosen[c.Name] = true
	o := ref(c)
	if first, ok := u.objects[o]; !ok || c.Revision < first {
		u.objects[o] = c.Revision
	}
	if u.first == 0 || c.Revision < u.first {
		u.first = c.Revision
	}
	u.last = max(u.last, c.Revision)
}

// find collects the writes to take back, and the deletions that controllers made because of them.
func (u *undoCommandRun) find(ctx context.Context, filters *client.ChangeFlags) error {
	q := client.ChangesQuery{Namespace: u.restoreOptions.Namespace}
	var err error
	if q.Resources, err = filters.Resources(u.config); err != nil {
		return err
	}
	if err := filters.SelectBy(ctx, u.config, &q); err != nil {
		return err
	}
	found, err := u.log.Some(ctx, q)
	if err != nil {
		return err
	}
	u.objects = map[changes.Object]uint64{}
	gone, namespaces := map[string]bool{}, map[string]bool{}
	for _, c := range found {
		if !restorable(c) {
			continue
		}
		u.choose(c)
		if c.Type == "Deleted" || strings.HasPrefix(client.VerbOf(c), "delete") {
			gone[c.Object.UID] = true
			if c.Object.Group == "" && c.Object.Kind == "Namespace" {
				namespaces[c.Object.Name] = true
			}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return u.consequences(ctx, gone, namespaces)
}

// The users of the controllers that delete the dependents of a deleted owner, and the objects of a deleted namespace.
const (
	garbageCollector    = "system:serviceaccount:kube-system:generic-garbage-collector"
	namespaceController = "system:serviceaccount:kube-system:namespace-controller"
)

// consequences adds the deletions by controllers of objects whose owner or namespace was deleted.
func (u *undoCommandRun) consequences(ctx context.Context, gone, namespaces map[string]bool) error {
	for _, controller := range []string{namespaceController, garbageCollector} {
		deletions, err := u.log.Some(ctx, client.ChangesQuery{Differences: true, Fields: fields.Set{
			"type": "Deleted", "actor.user": controller, "since": strconv.FormatUint(u.first, 10),
		}})
		if err != nil {
			return err
		}
		for _, c := range slices.Backward(deletions) { // owners are deleted before their dependents
			if !restorable(c) {
				continue
			}
			if namespaces[c.Object.Namespace] || slices.ContainsFunc(ownersOf(c), func(uid string) bool { return gone[uid] }) {
				gone[c.Object.UID] = true
				u.choose(c)
			}
		}
	}
	return nil
}

// ownersOf returns the uids of a deleted object's owners.
func ownersOf(c *changes.Change) (uids []string) {
	for _, d := range c.Difference {
		if d.Path != "metadata.ownerReferences" {
			continue
		}
		owners, _ := d.From.([]any)
		for _, owner := range owners {
			if ref, ok := owner.(map[string]any); ok {
				uids = append(uids, fmt.Sprint(ref["uid"]))
			}
		}
	}
	return uids
}

// undoAtOnce limits how many objects are read at the same time.
const undoAtOnce = 8

// plan reads the versions of each object and makes the plan.
func (u *undoCommandRun) plan(ctx context.Context) (*Plan, error) {
	refs := slices.SortedFunc(maps.Keys(u.objects), func(a, b changes.Object) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	subjects, problems := make([]*Subject, len(refs)), make([]error, len(refs))
	var lost []changes.Object
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(undoAtOnce)
	for i, o := range refs {
		kind, ok := u.client.KindOf(schema.GroupKind{Group: o.Group, Kind: o.Kind})
		if !ok {
			lost = append(lost, o)
			continue
		}
		subject := Subject{Kind: kind, Namespace: o.Namespace, Name: o.Name}
		shape := u.shapes.Of(kind.GroupVersionKind)
		group.Go(func() error {
			versions, err := u.versions(reading, subject, u.objects[o])
			if client.Unreadable(err) {
				problems[i] = err
				return nil
			}
			if err == nil {
				subject = Undo(subject, versions, shape)
				subjects[i] = &subject
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var all []Subject
	for _, s := range subjects {
		if s != nil {
			all = append(all, *s)
		}
	}
	p := Make(all, u.client.Owners(ctx), Options{Undo: true, Status: u.status})
	p.Undo = true
	for _, o := range lost {
		p.Lost(Kind{GroupVersionKind: schema.GroupVersionKind{Group: o.Group, Kind: o.Kind}, Resource: o.Resource, Namespaced: o.Namespace != ""}, o.Namespace, o.Name)
	}
	for _, err := range problems {
		if err != nil {
			p.Unread = append(p.Unread, err.Error())
		}
	}
	return p, nil
}

// versions reads the versions of an object from before a revision until now.
func (u *undoCommandRun) versions(ctx context.Context, s Subject, first uint64) ([]Version, error) {
	found, err := u.changesOf(ctx, s, first)
	if err != nil {
		return nil, err
	}
	before, err := u.client.Get(ctx, s.Kind, s.Namespace, s.Name, first-1)
	if err != nil {
		return nil, err
	}
	all := []Version{{Object: before, Revision: first - 1}}
	for _, c := range slices.Backward(found) {
		v := Version{Undo: u.chosen[c.Name], By: client.ActorText(c), Revision: c.Revision}
		if c.Type == "Deleted" {
			if began := deletionOf(all); began != nil { // the user who began a deletion counts
				v.Undo, v.By = began.Undo, began.By
			}
		} else if v.Object, err = u.client.Get(ctx, s.Kind, s.Namespace, s.Name, c.Revision); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	now, err := u.client.Get(ctx, s.Kind, s.Namespace, s.Name, 0)
	if err != nil {
		return nil, err
	}
	last := all[len(all)-1]
	if (now == nil) != (last.Object == nil) || now != nil && now.GetResourceVersion() != last.Object.GetResourceVersion() {
		return nil, fmt.Errorf("%s is being changed: try again", s.Key())
	}
	return append(all, Version{Object: now, By: "the policy in force", Revision: last.Revision}), nil // it may convert the object
}

// deletionOf returns the version in which the object's deletion began, if it waited for finalizers; else nil.
func deletionOf(all []Version) *Version {
	var began *Version
	for i := len(all) - 1; i >= 0 && all[i].Object != nil && all[i].Object.GetDeletionTimestamp() != nil; i-- {
		began = &all[i]
	}
	return began
}
