package restore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/core/object/difference"
	"stele.dev/stele/policy"
)

// FieldManager is the field manager of all writes.
const FieldManager = "stele-revert"

// Client reads past and current objects, and writes. It is safe for concurrent use.
type Client struct {
	dynamic dynamic.Interface
	kinds   map[schema.GroupVersionKind]Kind
	// preferred has the preferred version of each kind.
	preferred map[schema.GroupKind]schema.GroupVersionKind
	writable  []Kind // in their preferred versions
	// Progress is called with the number of steps that are done, and of all steps. It may be nil.
	Progress func(what string, done, of int)
}

// NewClient returns a client and reads which kinds the server serves.
func NewClient(d discovery.DiscoveryInterface, objects dynamic.Interface) (*Client, error) {
	served, err := client.ReadKinds(d)
	if err != nil {
		return nil, err
	}
	c := &Client{dynamic: objects, kinds: map[schema.GroupVersionKind]Kind{}, preferred: map[schema.GroupKind]schema.GroupVersionKind{}}
	for i := range served {
		s := &served[i]
		k := Kind{GroupVersionKind: s.GroupVersionKind, Resource: s.Resource, Namespaced: s.Namespaced, StatusSubresource: s.StatusSubresource}
		c.kinds[k.GroupVersionKind] = k
		if !s.Preferred {
			continue
		}
		if _, ok := c.preferred[k.GroupKind()]; !ok {
			c.preferred[k.GroupKind()] = k.GroupVersionKind
		}
		if s.Can("list", "create", "update", "delete") {
			c.writable = append(c.writable, k)
		}
	}
	slices.SortFunc(c.writable, func(a, b Kind) int { return strings.Compare(a.String(), b.String()) })
	return c, nil
}

// Kind returns a kind that the server serves.
func (c *Client) Kind(gvk schema.GroupVersionKind) (Kind, error) {
	k, ok := c.kinds[gvk]
	if !ok {
		return Kind{}, fmt.Errorf("the server does not serve %s", gvk)
	}
	return k, nil
}

// KindOf returns a kind in the version that the server prefers, or false if the server does not serve it.
func (c *Client) KindOf(k schema.GroupKind) (Kind, bool) {
	kind, ok := c.kinds[c.preferred[k]]
	return kind, ok
}

// IsTransient reports whether a kind is Event or Lease, which are not put back.
func IsTransient(k schema.GroupKind) bool { return slices.Contains(transient, k) }

// resource returns the API of a kind's objects in a namespace.
func (c *Client) resource(k Kind, namespace string) dynamic.ResourceInterface {
	if !k.Namespaced {
		return c.dynamic.Resource(k.gvr())
	}
	return c.dynamic.Resource(k.gvr()).Namespace(namespace)
}

// list calls each for the objects of a kind in a namespace ("" for all) at a revision, or now if it is 0. With a name it
// reads only that object. A kind that did not exist at the revision has no objects.
func (c *Client) list(ctx context.Context, k Kind, namespace, name string, revision uint64, each func(*unstructured.Unstructured)) error {
	if !k.Namespaced {
		namespace = ""
	}
	_, err := client.ObjectQuery{Resource: k.gvr(), Namespace: namespace, Name: name, Revision: revision}.List(ctx, c.dynamic, each)
	if revision > 0 && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Get reads an object as it was at a revision, or as it is now if the revision is 0. It returns nil if the object does
// not exist.
func (c *Client) Get(ctx context.Context, k Kind, namespace, name string, revision uint64) (found *unstructured.Unstructured, err error) {
	err = c.list(ctx, k, namespace, name, revision, func(o *unstructured.Unstructured) { found = o })
	return found, err
}

// Named reads an object as it was at a revision and as it is now.
func (c *Client) Named(ctx context.Context, k Kind, namespace, name string, revision uint64) (s Subject, err error) {
	if !k.Namespaced {
		namespace = ""
	}
	s = Subject{Kind: k, Namespace: namespace, Name: name}
	if s.Then, err = c.Get(ctx, k, namespace, name, revision); err == nil {
		s.Now, err = c.Get(ctx, k, namespace, name, 0)
	}
	return s, err
}

// Selected reads the objects of a kind in a namespace ("" for all) that a selector selects at a revision or now.
func (c *Client) Selected(ctx context.Context, k Kind, namespace string, selector labels.Selector, revision uint64) ([]Subject, error) {
	found := map[types.NamespacedName]*Subject{}
	of := func(o *unstructured.Unstructured) *Subject {
		key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
		if found[key] == nil {
			found[key] = &Subject{Kind: k, Namespace: key.Namespace, Name: key.Name}
		}
		return found[key]
	}
	if err := c.list(ctx, k, namespace, "", revision, func(o *unstructured.Unstructured) { of(o).Then = o }); err != nil {
		return nil, err
	}
	if err := c.list(ctx, k, namespace, "", 0, func(o *unstructured.Unstructured) { of(o).Now = o }); err != nil {
		return nil, err
	}
	var subjects []Subject
	for _, s := range found {
		if selects(selector, s.Then) || selects(selector, s.Now) {
			subjects = append(subjects, *s)
		}
	}
	slices.SortFunc(subjects, func(a, b Subject) int { return compareNames(&a, &b) })
	return subjects, nil
}

// selects reports whether a selector selects an object; nil is never selected.
func selects(selector labels.Selector, o *unstructured.Unstructured) bool {
	return o != nil && selector.Matches(labels.Set(o.GetLabels()))
}

// transient are the kinds that are not put back: events and leases.
var transient = []schema.GroupKind{{Kind: "Event"}, {Group: "events.k8s.io", Kind: "Event"}, {Group: "coordination.k8s.io", Kind: "Lease"}}

// leftOutOfNamespaces lists the objects that a revert of a namespace leaves out.
const leftOutOfNamespaces = "events, leases, the service account default, and objects of the policy (roles and bindings)"

// Namespace reads the objects of all kinds in a namespace, and the namespace itself if it is gone. unread has the
// errors of kinds that the user may not read.
func (c *Client) Namespace(ctx context.Context, namespace string, revision uint64) (subjects []Subject, leftOut, unread []string, err error) {
	leftOut = []string{leftOutOfNamespaces}
	if k, ok := c.kinds[schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}]; ok {
		itself, err := c.Named(ctx, k, "", namespace, revision)
		switch {
		case client.Unreadable(err):
			unread = append(unread, err.Error())
		case err != nil:
			return nil, nil, nil, err
		case itself.Then == nil:
			return nil, nil, nil, fmt.Errorf("there was no namespace %q at revision %d", namespace, revision)
		case itself.Now == nil:
			subjects = append(subjects, itself)
		}
	}
	read := 0
	for n, k := range c.writable {
		c.progress("read", n+1, len(c.writable))
		if !k.Namespaced || slices.Contains(transient, k.GroupKind()) {
			continue
		}
		found, err := c.Selected(ctx, k, namespace, labels.Everything(), revision)
		switch {
		case client.Unreadable(err):
			unread = append(unread, err.Error())
		case err != nil:
			return nil, nil, nil, fmt.Errorf("%s: %w", k, err)
		default:
			read++
		}
		for _, s := range found {
			if !(k.Group == "" && k.Kind == "ServiceAccount" && s.Name == "default") && !ofPolicy(s.Then) && !ofPolicy(s.Now) {
				subjects = append(subjects, s)
			}
		}
	}
	if read == 0 && len(unread) > 0 {
		return nil, nil, nil, errors.New(strings.Join(unread, "\n"))
	}
	return subjects, leftOut, unread, nil
}

// ofPolicy reports whether an object shows what the policy says; nil does not.
func ofPolicy(o *unstructured.Unstructured) bool {
	return o != nil && o.GetAnnotations()[policy.RuleAnnotation] != ""
}

// progress reports how many steps are done.
func (c *Client) progress(what string, done, of int) {
	if c.Progress != nil {
		c.Progress(what, done, of)
	}
}

// Owners returns a function that asks the server for the uid of an owner, once for each owner. The function is not
// safe for concurrent use.
func (c *Client) Owners(ctx context.Context) Owners {
	type owner struct {
		uid types.UID
		err error
	}
	known := map[string]owner{}
	return func(namespace string, ref metav1.OwnerReference) (types.UID, error) {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil {
			return "", err
		}
		k, ok := c.kinds[c.preferred[gv.WithKind(ref.Kind).GroupKind()]]
		if !ok {
			return "", nil // a kind that is not served has no objects
		}
		key := k.String() + "/" + namespace + "/" + ref.Name
		o, ok := known[key]
		if ok {
			return o.uid, o.err
		}
		found, err := c.resource(k, namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			o.uid = found.GetUID()
		case !apierrors.IsNotFound(err):
			o.err = err
		}
		known[key] = o
		return o.uid, o.err
	}
}

// atOnce limits how many dry runs are under way at the same time.
const atOnce = 8

// Try sends every write of a plan as a dry run. An item that the server refuses becomes one that cannot be put back.
// Objects in a namespace that does not exist yet cannot be tried.
func (c *Client) Try(ctx context.Context, p *Plan) error {
	coming := map[string]*Item{} // namespaces that the plan creates
	for _, i := range p.Items {
		if i.Kind.IsNamespace() && i.Action == Create {
			coming[i.Name] = i
		}
	}
	var tried []*Item
	for _, i := range p.Items {
		switch {
		case !i.Writes():
		case i.Namespace != "" && coming[i.Namespace] != nil:
			i.untried = true
		default:
			tried = append(tried, i)
		}
	}
	if err := c.try(ctx, tried); err != nil {
		return err
	}
	for _, i := range p.Items {
		if namespace := coming[i.Namespace]; i.untried && namespace.Action == Refuse {
			i.untried = false
			i.refuse("its namespace cannot be put back")
		}
	}
	p.refuseOwned()
	return nil
}

// Untried returns the number of writes that could not be tried.
func (p *Plan) Untried() int {
	n := 0
	for _, i := range p.Items {
		if i.untried {
			n++
		}
	}
	return n
}

// try sends the writes of items as dry runs, several at the same time.
func (c *Client) try(ctx context.Context, items []*Item) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for n, i := range items {
		c.progress("tried", n, len(items))
		group.Go(func() error {
			err := c.write(ctx, i, true)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				i.refuse(text(err))
			}
			return nil
		})
	}
	err := group.Wait()
	c.progress("tried", len(items), len(items))
	return err
}

// Apply makes the writes of a plan one after the other. A write fails if the object has changed since the plan was
// made; Apply then continues with the next. After it has created a namespace, it tries all writes in it before it makes
// them.
func (c *Client) Apply(ctx context.Context, p *Plan) error {
	written := 0
	for n, i := range p.Items {
		if i.untried && i.Writes() {
			var rest []*Item
			for _, later := range p.Items[n:] {
				if later.untried && later.Writes() {
					rest = append(rest, later)
				}
				later.untried = false
			}
			if err := c.try(ctx, rest); err != nil {
				return err
			}
			p.refuseOwned()
			for _, later := range rest { // the user has seen the plan already
				later.Failed, later.Refused = later.Refused, ""
			}
		}
		if !i.Writes() {
			continue
		}
		if err := c.write(ctx, i, false); err != nil {
			i.Failed = text(err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		written++
		c.progress("wrote", written, p.Writes())
	}
	return nil
}

// write sends the writes of an item, or tries them as dry runs.
func (c *Client) write(ctx context.Context, i *Item, dry bool) error {
	var dryRun []string
	if dry {
		dryRun = []string{metav1.DryRunAll}
	}
	resource := c.resource(i.Kind, i.Namespace)
	if i.Action == Delete {
		uid, version := i.Now.GetUID(), i.Now.GetResourceVersion()
		err := resource.Delete(ctx, i.Name, metav1.DeleteOptions{DryRun: dryRun, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		if apierrors.IsNotFound(err) && !dry {
			return nil // it was deleted with its owner
		}
		i.written = err == nil && !dry
		return err
	}
	want := &unstructured.Unstructured{Object: i.want}
	want = want.DeepCopy()
	if !dry {
		if err := i.nameOwners(want); err != nil {
			return err
		}
	}
	is := i.Now
	var err error
	switch {
	case i.Action == Create:
		is, err = resource.Create(ctx, want, metav1.CreateOptions{DryRun: dryRun, FieldManager: FieldManager})
	case i.main:
		want.SetUID(i.Now.GetUID())
		want.SetResourceVersion(i.Now.GetResourceVersion())
		is, err = resource.Update(ctx, want, metav1.UpdateOptions{DryRun: dryRun, FieldManager: FieldManager})
	}
	switch {
	case err != nil:
		return err
	case dry:
		return c.tried(ctx, i, is)
	case i.main:
		i.wrote(is)
	}
	if !i.withStatus || len(differencesOfStatus(is.Object["status"], i.wantStatus)) == 0 {
		return nil
	}
	if is, err = resource.UpdateStatus(ctx, i.statusOn(is), metav1.UpdateOptions{FieldManager: FieldManager}); err != nil {
		return fmt.Errorf("its status: %w", err)
	}
	i.wrote(is)
	return nil
}

// wrote records the result of a write.
func (i *Item) wrote(is *unstructured.Unstructured) {
	i.uid, i.written = is.GetUID(), true
	if version := is.GetResourceVersion(); (i.Now == nil || version != i.Now.GetResourceVersion()) && !slices.Contains(i.Revisions, version) {
		i.Revisions = append(i.Revisions, version)
	}
}

// statusOn returns the object with the status that is to be written.
func (i *Item) statusOn(is *unstructured.Unstructured) *unstructured.Unstructured {
	is = is.DeepCopy()
	if is.Object["status"] = i.wantStatus; i.wantStatus == nil {
		delete(is.Object, "status")
	}
	return is
}

// tried records which fields differ in the result of a dry run, because the server would not put them back.
func (c *Client) tried(ctx context.Context, i *Item, is *unstructured.Unstructured) error {
	if i.main {
		for _, d := range difference.Between(i.want, i.Kind.content(is), difference.Options{}) {
			if d.Op == difference.Remove {
				i.Missing = append(i.Missing, d.Path+": the server leaves it out today")
			} else {
				i.Missing = append(i.Missing, fmt.Sprintf("%s: the server makes it %s today", d.Path, i.show(d.Path, d.To)))
			}
		}
	}
	changes := i.Action == Create || !reflect.DeepEqual(i.Kind.content(is), i.Kind.content(i.Now))
	if i.withStatus {
		if err := c.tryStatus(ctx, i); err == nil {
			changes = true
		} else if !changes {
			return err
		} else {
			i.withStatus, i.Missing = false, append(i.Missing, "status: "+text(err))
		}
	}
	if !changes {
		return errors.New("the server would keep the object as it is")
	}
	return nil
}

// tryStatus tries to write a status. For an object that does not exist yet it asks whether the user may write it.
func (c *Client) tryStatus(ctx context.Context, i *Item) error {
	if i.Action == Update {
		_, err := c.resource(i.Kind, i.Namespace).UpdateStatus(ctx, i.statusOn(i.Now), metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: FieldManager})
		return err
	}
	review, err := c.dynamic.Resource(accessReviews).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{
			"verb": "update", "group": i.Kind.Group, "version": i.Kind.Version, "resource": i.Kind.Resource, "subresource": "status",
			"namespace": i.Namespace, "name": i.Name,
		}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil // the write itself will show it
	}
	if allowed, _, _ := unstructured.NestedBool(review.Object, "status", "allowed"); !allowed {
		return fmt.Errorf("you may not update %s/status", i.Kind.gvr().GroupResource())
	}
	return nil
}

var accessReviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}

// nameOwners sets the uids of owners that this plan has created.
func (i *Item) nameOwners(want *unstructured.Unstructured) error {
	if len(i.owners) == 0 {
		return nil
	}
	refs := want.GetOwnerReferences()
	for n, owner := range i.owners {
		uid := owner.uid
		if uid == "" && owner.Now != nil && owner.Failed == "" {
			uid = owner.Now.GetUID()
		}
		if uid == "" {
			return fmt.Errorf("its owner, %s, was not put back", owner.Key())
		}
		refs[n].UID = uid
	}
	want.SetOwnerReferences(refs)
	return nil
}

// text returns the server's message of an error.
func text(err error) string {
	var status *apierrors.StatusError
	if errors.As(err, &status) && status.ErrStatus.Message != "" && !strings.HasPrefix(err.Error(), "its status") {
		return status.ErrStatus.Message
	}
	return err.Error()
}
