package restore

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/cmd/stele/internal/secrets"
	"stele.dev/stele/core/object/difference"
)

// Kind is a kind that the server serves.
type Kind struct {
	schema.GroupVersionKind
	Resource          string
	Namespaced        bool
	StatusSubresource bool // so that status takes a write of its own
}

// gvr returns the resource of the kind.
func (k Kind) gvr() schema.GroupVersionResource { return k.GroupVersion().WithResource(k.Resource) }

// String returns the kind for people: deployment.apps, configmap.
func (k Kind) String() string { return strings.ToLower(k.GroupKind().String()) }

// Subject is an object to put back. Then is its state after that, and Now its present state. They are nil if the object
// does not exist.
type Subject struct {
	Kind            Kind
	Namespace, Name string
	Then, Now       *unstructured.Unstructured
	// Notes are notes for the user about Then. Stays says why Now is left alone.
	Notes []string
	Stays string
}

// Key returns the object's kind, namespace and name for people: configmap shop/settings.
func (s *Subject) Key() string {
	if s.Namespace == "" {
		return s.Kind.String() + " " + s.Name
	}
	return s.Kind.String() + " " + s.Namespace + "/" + s.Name
}

// Action is what a plan does with an object.
type Action string

// The actions.
const (
	Create Action = "create" // the object is gone
	Update Action = "update" // the object has changed, or another one has its name
	Delete Action = "delete" // the object was created since
	Keep   Action = "keep"   // the object was created since, and stays
	Same   Action = "same"   // the object has not changed
	Refuse Action = "refuse" // the object cannot be put back
)

// Item is a step of a plan: an object, the action, and its outcome.
type Item struct {
	Subject
	Action Action
	// Differences are what an update changes.
	Differences []difference.Entry
	// Secrets are the secret fields of the kind.
	Secrets secrets.Fields
	// Notes are notes for the user about the action.
	Notes []string
	// Missing are the fields that are not put back although the server accepts the write.
	Missing []string
	// Refused says why the object cannot be put back.
	Refused string

	// Revisions are the revisions of the writes.
	Revisions []string
	// Failed says why a write failed.
	Failed string

	want       map[string]any // the object to send, without resourceVersion
	wantStatus any
	withStatus bool          // status needs a write
	main       bool          // the object needs a write
	owners     map[int]*Item // owners that this plan writes, by the index of their references
	untried    bool          // could not be tried, because its namespace does not exist yet
	uid        types.UID     // after the write
	written    bool
}

// Writes reports whether the action is a write.
func (i *Item) Writes() bool {
	return i.Action == Create || i.Action == Update || i.Action == Delete
}

// Written reports whether at least one write of the item succeeded.
func (i *Item) Written() bool { return i.written }

// refuse records why the object cannot be put back.
func (i *Item) refuse(why string) { i.Action, i.Refused = Refuse, why }

// Complete reports whether the object was put back completely.
func (i *Item) Complete() bool { return i.Action != Refuse && i.Failed == "" && len(i.Missing) == 0 }

// note adds a note for the user.
func (i *Item) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// Plan has the steps that put objects back, in the order in which they are carried out.
type Plan struct {
	Items []*Item
	// LeftOut says what the plan leaves out by choice.
	LeftOut []string
	// Unread are the errors of kinds that the user may not read.
	Unread []string
	// Undo reports whether the plan takes writes back, instead of going back to a moment.
	Undo bool
}

// Count returns the number of items with one of the actions.
func (p *Plan) Count(actions ...Action) int {
	n := 0
	for _, i := range p.Items {
		if slices.Contains(actions, i.Action) {
			n++
		}
	}
	return n
}

// Writes returns the number of items that are written.
func (p *Plan) Writes() int { return p.Count(Create, Update, Delete) }

// Lost adds an object that cannot be put back, because its kind is no longer served.
func (p *Plan) Lost(k Kind, namespace, name string) {
	i := &Item{Subject: Subject{Kind: k, Namespace: namespace, Name: name}}
	i.refuse(fmt.Sprintf("the policy in force has no kind %s", k))
	p.Items = append(p.Items, i)
	p.order()
}

// Options say what a plan does with objects.
type Options struct {
	// Prune deletes objects that were created since.
	Prune bool
	// Status also puts status back where it is a subresource.
	Status bool
	// Undo deletes objects without Then, because writes that are taken back created them.
	Undo bool
}

// Owners returns the uid of the object that an owner reference in a namespace names, or "" if there is none.
type Owners func(namespace string, ref metav1.OwnerReference) (types.UID, error)

// unknownUID stands in for the uid of an owner that is not created yet.
const unknownUID = "00000000-0000-0000-0000-000000000000"

// Make plans how to put objects back.
func Make(subjects []Subject, owners Owners, o Options) *Plan {
	p := &Plan{}
	byUID := map[types.UID]*Item{} // by the uids of Then
	for _, s := range subjects {
		if s.Then == nil && s.Now == nil {
			continue
		}
		i := &Item{Subject: s, owners: map[int]*Item{}}
		p.Items = append(p.Items, i)
		if s.Then != nil {
			byUID[s.Then.GetUID()] = i
		}
	}
	for _, i := range p.Items {
		i.decide(o)
	}
	for _, i := range p.Items {
		if i.want != nil && i.Action != Refuse {
			i.settleOwners(byUID, owners)
			i.compare()
		}
	}
	p.order()
	p.refuseOwned()
	return p
}

// refuseOwned refuses objects whose owners cannot be put back. Owners come before the objects that they own.
func (p *Plan) refuseOwned() {
	for _, i := range p.Items {
		for _, owner := range i.owners {
			if owner.Action == Refuse && i.Writes() {
				i.refuse(fmt.Sprintf("its owner, %s, cannot be put back", owner.Key()))
			}
		}
	}
}

// decide chooses the action, as far as it does not depend on other objects.
func (i *Item) decide(o Options) {
	i.Notes = slices.Clone(i.Subject.Notes)
	switch {
	case i.Stays != "":
		i.Action = Keep
		i.note("%s", i.Stays)
		return
	case i.Then == nil && i.Now.GetDeletionTimestamp() != nil:
		i.Action = Keep
		i.note("came since, and is being deleted")
		return
	case i.Then == nil && o.Undo:
		i.Action = Delete
		i.note("was created by these writes")
		return
	case i.Then == nil && o.Prune:
		i.Action = Delete
		i.note("came since")
		return
	case i.Then == nil:
		i.Action = Keep
		i.note("came since; --prune deletes it")
		return
	case i.Now != nil && i.Now.GetDeletionTimestamp() != nil:
		i.refuse(fmt.Sprintf("it is being deleted, and waits for %s: it can come back once it is gone", strings.Join(i.waitsFor(), ", ")))
		return
	}
	i.want = i.Kind.content(i.Then)
	if o.Status {
		i.wantStatus = i.Kind.status(i.Then)
		i.withStatus = i.wantStatus != nil || i.Kind.status(i.Now) != nil
	}
	i.Action = Update
	if i.Now == nil {
		i.Action, i.main = Create, true
		i.note("gets a new uid, because %s is gone", i.Then.GetUID())
	} else if was, is := i.Then.GetUID(), i.Now.GetUID(); was != is {
		i.note("another object has the name since %s is gone: that is updated, and keeps its uid %s", was, is)
	}
	if i.Then.GetDeletionTimestamp() != nil {
		i.note("was being deleted then; comes back without that deletion")
	}
	finalizers := i.Then.GetFinalizers()
	kept := withoutCollector(finalizers)
	if len(kept) < len(finalizers) {
		i.note("without the finalizers of a deletion that had begun: %s", strings.Join(slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return slices.Contains(kept, f) }), ", "))
		setMeta(i.want, "finalizers", kept)
	}
	if len(kept) > 0 && (i.Now == nil || !slices.Equal(kept, i.Now.GetFinalizers())) {
		i.note("with its finalizers: %s", strings.Join(kept, ", "))
	}
}

// waitsFor returns the finalizers for which the deletion waits.
func (i *Item) waitsFor() []string {
	if f := i.Now.GetFinalizers(); len(f) > 0 {
		return f
	}
	return []string{"the objects in it"} // a namespace
}

// setMeta sets a list of metadata, or removes it if it is empty.
func setMeta[T any](content map[string]any, field string, list []T) {
	meta := content["metadata"].(map[string]any)
	if len(list) == 0 {
		delete(meta, field)
		return
	}
	items := make([]any, len(list))
	for n, x := range list {
		items[n] = x
	}
	meta[field] = items
}

// settleOwners decides which owner references the object gets. The garbage collector would delete an object whose
// owners are all gone.
func (i *Item) settleOwners(byUID map[types.UID]*Item, owners Owners) {
	refs := i.Then.GetOwnerReferences()
	if len(refs) == 0 {
		return
	}
	var kept []map[string]any
	for _, ref := range refs {
		name := strings.ToLower(ref.Kind) + " " + ref.Name
		uid := ref.UID
		if owner := byUID[ref.UID]; owner != nil && owner.isOwner(ref) {
			switch {
			case owner.Now == nil:
				i.owners[len(kept)] = owner
				uid = unknownUID
				i.note("its owner, %s, is created anew: it gets that one's uid", name)
			case owner.Now.GetUID() != uid:
				i.owners[len(kept)] = owner
				uid = owner.Now.GetUID()
				i.note("its owner, %s, is another one now: it gets that one's uid", name)
			}
		} else {
			is, err := owners(i.Namespace, ref)
			switch {
			case err != nil:
				i.note("its owner, %s, cannot be read (%v): if it is gone, the garbage collector deletes this again", name, err)
			case is == "":
				i.note("without its owner, %s, which is gone", name)
				continue
			case is != uid:
				i.note("without its owner, %s: another object has that name now", name)
				continue
			}
		}
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&ref)
		if err != nil {
			i.refuse(err.Error())
			return
		}
		raw["uid"] = string(uid)
		kept = append(kept, raw)
	}
	setMeta(i.want, "ownerReferences", kept)
}

// isOwner reports whether a reference with the item's uid names the item.
func (i *Item) isOwner(ref metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == i.Kind.Group && ref.Kind == i.Kind.Kind && ref.Name == i.Name
}

// compare finds what an update changes.
func (i *Item) compare() {
	if i.Action != Update {
		return
	}
	now := i.Kind.content(i.Now)
	i.main = !reflect.DeepEqual(now, i.want)
	i.Differences = difference.Between(now, i.want, difference.Options{})
	if i.withStatus {
		status := differencesOfStatus(i.Kind.status(i.Now), i.wantStatus)
		i.Differences, i.withStatus = append(i.Differences, status...), len(status) > 0
	}
	if !i.main && !i.withStatus {
		i.Action, i.Notes = Same, nil
		if len(i.Subject.Notes) > 0 { // other users have changed all of it since
			i.Action, i.Notes = Keep, i.Subject.Notes
		}
	}
}

// order sorts the items: namespaces first, owners before the objects that they own, deletions last.
func (p *Plan) order() {
	depth := map[*Item]int{}
	var depthOf func(i *Item, below int) int
	depthOf = func(i *Item, below int) int {
		if d, ok := depth[i]; ok || below > len(p.Items) { // owners may form a circle
			return d
		}
		d := 0
		for _, owner := range i.owners {
			d = max(d, depthOf(owner, below+1)+1)
		}
		depth[i] = d
		return d
	}
	phase := func(i *Item) int {
		switch {
		case i.Action == Keep:
			return 3
		case i.Action == Delete:
			return 2
		case i.Kind.IsNamespace():
			return 0
		}
		return 1
	}
	for _, i := range p.Items {
		depthOf(i, 0)
	}
	slices.SortStableFunc(p.Items, func(a, b *Item) int {
		return cmp.Or(phase(a)-phase(b), depth[a]-depth[b], compareNames(&a.Subject, &b.Subject))
	})
}

// compareNames sorts objects by kind, namespace and name.
func compareNames(a, b *Subject) int {
	return cmp.Or(strings.Compare(a.Kind.String(), b.Kind.String()), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
