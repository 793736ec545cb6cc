// This file is the controller that completes deletions of namespaces: it deletes the objects in a namespace,
// kind by kind, waits for their finalizers, writes into the status what it waits for, and then removes the namespace's
// finalizer. The server itself keeps a namespace while it has objects.

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"stele.dev/stele/core/run/controllers/clients"
	"stele.dev/stele/policy"
)

// namespaceWorkers is how many namespaces are emptied at once.
const namespaceWorkers = 2

// runNamespaces runs the controller until the context ends.
func runNamespaces(ctx context.Context, set *clients.Set) error {
	c := &namespaceController{Set: set, queue: clients.NewQueue[string]("namespace")}
	var following sync.WaitGroup
	following.Go(func() { set.Follow(ctx, clients.Namespaces, "", terminatingNamespaces{c}) })
	c.queue.Work(ctx, namespaceWorkers, set.Logger, c.sync)
	following.Wait()
	return ctx.Err()
}

type namespaceController struct {
	*clients.Set
	queue clients.Queue[string] // names of namespaces that are being deleted
}

// terminatingNamespaces queues the namespaces that are being deleted.
type terminatingNamespaces struct{ *namespaceController }

func (t terminatingNamespaces) Changed(o *metav1.PartialObjectMetadata) {
	if o.DeletionTimestamp != nil {
		t.queue.Add(o.Name)
	}
}

func (t terminatingNamespaces) Replace(there []*metav1.PartialObjectMetadata) {
	for _, o := range there {
		t.Changed(o)
	}
}

func (t terminatingNamespaces) Gone(*metav1.PartialObjectMetadata) {}

// sync continues the deletion of a namespace as far as possible.
func (c *namespaceController) sync(ctx context.Context, name string) error {
	ns, err := c.get(ctx, name)
	if err != nil || ns == nil || ns.DeletionTimestamp == nil {
		return err
	}
	left := c.empty(ctx, ns)
	if ns, err = c.report(ctx, ns, left); err != nil {
		return ignoreNotFound(err)
	}
	switch {
	case left.failed():
		return left.err()
	case len(left.remaining) > 0:
		return clients.ErrLater
	}
	return c.finalize(ctx, ns)
}

func (c *namespaceController) get(ctx context.Context, name string) (*corev1.Namespace, error) {
	o, err := c.Objects.Resource(clients.Namespaces).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, ignoreNotFound(err)
	}
	return typedNamespace(o)
}

// ignoreNotFound returns nil for an error that says that the namespace does not exist.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func typedNamespace(o *unstructured.Unstructured) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	return ns, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, ns)
}

// write updates a namespace if it has not changed since it was read.
func (c *namespaceController) write(ctx context.Context, ns *corev1.Namespace, subresource string) (*corev1.Namespace, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ns)
	if err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{Object: content}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	o, err = c.Objects.Resource(clients.Namespaces).Update(ctx, o, metav1.UpdateOptions{}, subresource)
	if err != nil {
		return nil, err
	}
	return typedNamespace(o)
}

// finalize removes the finalizer. If the finalizer was removed by somebody else before the namespace was empty, it
// deletes the namespace once more.
func (c *namespaceController) finalize(ctx context.Context, ns *corev1.Namespace) error {
	others := slices.DeleteFunc(slices.Clone(ns.Spec.Finalizers), func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	switch {
	case len(others) < len(ns.Spec.Finalizers):
		ns.Spec.Finalizers = others
		_, err := c.write(ctx, ns, "finalize")
		return ignoreNotFound(err)
	case len(others)+len(ns.Finalizers) > 0:
		return nil // other finalizers are left
	}
	if err := c.Objects.Resource(clients.Namespaces).Delete(ctx, ns.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &ns.UID, ResourceVersion: &ns.ResourceVersion},
	}); err != nil {
		return ignoreNotFound(err)
	}
	if left, err := c.get(ctx, ns.Name); err != nil || left == nil || left.UID != ns.UID {
		return err
	}
	return clients.ErrLater // it still has objects
}

// namespaceContent is what remains in a namespace after an attempt to empty it.
type namespaceContent struct {
	remaining  map[schema.GroupVersionResource]int // number of objects
	finalizers map[string]int                      // number of objects that wait for a finalizer
	discovery  error
	parsing    error
	deleting   []error
}

func (l *namespaceContent) failed() bool {
	return l.discovery != nil || l.parsing != nil || len(l.deleting) > 0
}

func (l *namespaceContent) err() error {
	return errors.Join(append(slices.Clone(l.deleting), l.discovery, l.parsing)...)
}

// empty deletes all objects in a namespace that can be deleted now.
func (c *namespaceController) empty(ctx context.Context, ns *corev1.Namespace) *namespaceContent {
	l := &namespaceContent{remaining: map[schema.GroupVersionResource]int{}, finalizers: map[string]int{}}
	lists, err := c.Served.ServerPreferredNamespacedResources() // use what it returns, even if it is incomplete
	l.discovery = err
	if len(lists) == 0 && err == nil {
		l.discovery = errors.New("nothing is served")
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			l.parsing = errors.Join(l.parsing, err)
			continue
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && clients.Deletable(gv.WithResource(r.Name).GroupResource(), r.Verbs) {
				if err := c.emptyOf(ctx, ns.Name, gv.WithResource(r.Name), r.Verbs, l); err != nil {
					l.deleting = append(l.deleting, fmt.Errorf("%s: %w", gv.WithResource(r.Name).GroupResource(), err))
				}
			}
		}
	}
	return l
}

// emptyOf deletes the objects of a resource, and counts those that remain.
func (c *namespaceController) emptyOf(ctx context.Context, namespace string, r schema.GroupVersionResource, verbs []string, l *namespaceContent) error {
	in := c.Metadata.Resource(r).Namespace(namespace)
	there, err := stored(ctx, in)
	if err != nil || len(there.Items) == 0 {
		return ignoreNotFound(err)
	}
	background := metav1.DeletePropagationBackground
	if slices.Contains(verbs, "deletecollection") {
		err = in.DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{})
	} else {
		for _, o := range there.Items {
			if o.DeletionTimestamp != nil {
				continue // it waits for its finalizers
			}
			if e := ignoreNotFound(in.Delete(ctx, o.Name, metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &o.UID}})); e != nil {
				err = errors.Join(err, e)
			}
		}
	}
	if err != nil {
		return err
	}
	if there, err = stored(ctx, in); err != nil {
		return ignoreNotFound(err)
	}
	if n := len(there.Items); n > 0 {
		l.remaining[r] = n
	}
	for _, o := range there.Items {
		for _, f := range o.Finalizers {
			l.finalizers[f]++
		}
	}
	return nil
}

// stored returns the objects of a resource that are stored: those that show what the policy says go with it, or with their namespace.
func stored(ctx context.Context, r metadata.ResourceInterface) (*metav1.PartialObjectMetadataList, error) {
	there, err := r.List(ctx, metav1.ListOptions{})
	if err == nil {
		there.Items = slices.DeleteFunc(there.Items, func(o metav1.PartialObjectMetadata) bool { return o.Annotations[policy.RuleAnnotation] != "" })
	}
	return there, err
}

// report updates the status if it changes.
func (c *namespaceController) report(ctx context.Context, ns *corev1.Namespace, l *namespaceContent) (*corev1.Namespace, error) {
	changed := ns.Status.Phase != corev1.NamespaceTerminating
	ns.Status.Phase = corev1.NamespaceTerminating
	for _, is := range l.conditions() {
		i := slices.IndexFunc(ns.Status.Conditions, func(was corev1.NamespaceCondition) bool { return was.Type == is.Type })
		is.LastTransitionTime = metav1.Now()
		switch {
		case i < 0:
			ns.Status.Conditions = append(ns.Status.Conditions, is)
		case ns.Status.Conditions[i].Status != is.Status || ns.Status.Conditions[i].Message != is.Message || ns.Status.Conditions[i].Reason != is.Reason:
			ns.Status.Conditions[i] = is
		default:
			continue
		}
		changed = true
	}
	if !changed {
		return ns, nil
	}
	return c.write(ctx, ns, "status")
}

// conditions returns the conditions of the status, as Kubernetes writes them, because clients read them.
func (l *namespaceContent) conditions() []corev1.NamespaceCondition {
	condition := func(t corev1.NamespaceConditionType, bad bool, reason, message, okReason, okMessage string) corev1.NamespaceCondition {
		if bad {
			return corev1.NamespaceCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message}
		}
		return corev1.NamespaceCondition{Type: t, Status: corev1.ConditionFalse, Reason: okReason, Message: okMessage}
	}
	discovering, groups := fmt.Sprint(l.discovery), 0
	if failed, ok := errors.AsType[*discovery.ErrGroupDiscoveryFailed](l.discovery); ok {
		groups = len(failed.Groups)
	}
	var resources, finalizers []string
	for r, n := range l.remaining {
		resources = append(resources, fmt.Sprintf("%s.%s has %d resource instances", r.Resource, r.Group, n))
	}
	for f, n := range l.finalizers {
		finalizers = append(finalizers, fmt.Sprintf("%s in %d resource instances", f, n))
	}
	slices.Sort(resources)
	slices.Sort(finalizers)
	return []corev1.NamespaceCondition{
		condition(corev1.NamespaceDeletionDiscoveryFailure, l.discovery != nil,
			"DiscoveryFailed", fmt.Sprintf("Discovery failed for some groups, %d failing: %s", groups, discovering),
			"ResourcesDiscovered", "All resources successfully discovered"),
		condition(corev1.NamespaceDeletionGVParsingFailure, l.parsing != nil,
			"GroupVersionParsingFailed", fmt.Sprint(l.parsing),
			"ParsedGroupVersions", "All legacy kube types successfully parsed"),
		condition(corev1.NamespaceDeletionContentFailure, len(l.deleting) > 0,
			"ContentDeletionFailed", fmt.Sprintf("Failed to delete all resource types, %d remaining: %v", len(l.deleting), errors.Join(l.deleting...)),
			"ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
		condition(corev1.NamespaceContentRemaining, len(resources) > 0,
			"SomeResourcesRemain", "Some resources are remaining: "+strings.Join(resources, ", "),
			"ContentRemoved", "All content successfully removed"),
		condition(corev1.NamespaceFinalizersRemaining, len(finalizers) > 0,
			"SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+strings.Join(finalizers, ", "),
			"ContentHasNoFinalizers", "All content-preserving finalizers finished"),
	}
}
