package garbage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"stele.dev/stele/core/run/controllers/clients"
)

// collector processes the graph's queue.
type collector struct {
	*clients.Set
	*graph
}

func (c *collector) client(r schema.GroupVersionResource, namespace string) metadata.ResourceInterface {
	if namespace == "" {
		return c.Metadata.Resource(r)
	}
	return c.Metadata.Resource(r).Namespace(namespace)
}

// get returns the current object, nil if it does not exist. An answer that the kind is not served is an error.
func (c *collector) get(ctx context.Context, r schema.GroupVersionResource, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	o, err := c.client(r, namespace).Get(ctx, name, metav1.GetOptions{})
	if clients.Absent(err, name) {
		return nil, nil
	}
	return o, err
}

// collect does what is necessary for an object.
func (c *collector) collect(ctx context.Context, uid types.UID) error {
	if !c.complete() {
		return nil // a review will queue all objects
	}
	o := c.find(uid)
	if o == nil {
		return nil
	}
	var err error
	switch {
	case o.deleting && o.orphan:
		err = c.orphan(ctx, o)
	case o.deleting && o.foreground:
		err = c.awaitDependents(ctx, o)
	case !o.deleting && !c.kept(o):
		err = c.judge(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o, err)
	}
	return nil
}

// owners are the owners of an object, in their current state.
type owners struct {
	solid, waiting, gone []metav1.OwnerReference
	// unknown means that some owners may or may not exist.
	unknown bool
}

// judge deletes an object if it has to be deleted.
func (c *collector) judge(ctx context.Context, o *object) error {
	is, err := c.get(ctx, o.resource, o.namespace, o.name)
	if err != nil || is == nil || is.UID != o.uid || is.DeletionTimestamp != nil {
		return err // the graph will receive the deletion
	}
	found, err := c.ownersOf(ctx, o, is)
	switch {
	case err != nil:
		return err
	case found.unknown || len(found.waiting)+len(found.gone) == 0:
		return nil
	case len(found.solid) > 0:
		keep := slices.DeleteFunc(slices.Clone(is.OwnerReferences), func(r metav1.OwnerReference) bool {
			return !slices.ContainsFunc(found.solid, func(s metav1.OwnerReference) bool { return sameOwner(s, r) })
		})
		return c.setOwners(ctx, o, is, keep)
	}
	if dependents := c.dependentsOf(o.uid); len(found.waiting) > 0 && len(dependents) > 0 {
		return c.deleteForWaiting(ctx, o, is, dependents)
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case slices.Contains(is.Finalizers, metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(is.Finalizers, metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	return c.delete(ctx, o, is, policy)
}

// sameOwner reports whether two references are to the same object. Several references may have one UID.
func sameOwner(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Name == b.Name && a.Kind == b.Kind && a.APIVersion == b.APIVersion
}

// deleteForWaiting deletes an object whose owners wait for it, and which has dependents itself. It waits for its
// dependents too. In a circle of owners, it does not block its owners.
func (c *collector) deleteForWaiting(ctx context.Context, o *object, is *metav1.PartialObjectMetadata, dependents []*object) error {
	circle := slices.ContainsFunc(dependents, (*object).awaitsDependents)
	blocking := func(r metav1.OwnerReference) bool { return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion }
	if circle && slices.ContainsFunc(is.OwnerReferences, blocking) {
		unblocked := slices.Clone(is.OwnerReferences)
		for i := range unblocked {
			no := false
			unblocked[i].BlockOwnerDeletion = &no
		}
		return c.setOwners(ctx, o, is, unblocked) // then it is queued again
	}
	return c.delete(ctx, o, is, metav1.DeletePropagationForeground)
}

// ownersOf reads all owners of an object.
func (c *collector) ownersOf(ctx context.Context, o *object, is *metav1.PartialObjectMetadata) (*owners, error) {
	found := &owners{}
	for _, r := range is.OwnerReferences {
		k, ok := c.kind(r)
		if !ok {
			found.unknown = true // judged again when the kinds change
			continue
		}
		if k.namespaced && o.namespace == "" {
			found.unknown = true
			c.report(ctx, o, r)
			continue
		}
		namespace := o.namespace
		if !k.namespaced {
			namespace = ""
		}
		owner, err := c.get(ctx, k.GroupVersionResource, namespace, r.Name)
		switch {
		case err != nil:
			return nil, fmt.Errorf("its owner %s %s: %w", r.Kind, r.Name, err)
		case owner == nil || owner.UID != r.UID:
			found.gone = append(found.gone, r)
			if k.namespaced && c.elsewhere(r, o.namespace) {
				c.report(ctx, o, r)
			}
		case owner.DeletionTimestamp != nil && slices.Contains(owner.Finalizers, metav1.FinalizerDeleteDependents):
			found.waiting = append(found.waiting, r)
		default:
			found.solid = append(found.solid, r)
		}
	}
	return found, nil
}

func (o *object) String() string {
	return fmt.Sprintf("%s %s", o.resource.GroupResource(), types.NamespacedName{Namespace: o.namespace, Name: o.name})
}

// delete deletes an object if it has not changed since it was judged.
func (c *collector) delete(ctx context.Context, o *object, is *metav1.PartialObjectMetadata, policy metav1.DeletionPropagation) error {
	err := c.client(o.resource, o.namespace).Delete(ctx, o.name, metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &is.UID, ResourceVersion: &is.ResourceVersion},
	})
	if clients.Absent(err, o.name) {
		return nil
	}
	return err
}

// setOwners replaces the owners of an object if it has not changed since it was judged.
func (c *collector) setOwners(ctx context.Context, o *object, is *metav1.PartialObjectMetadata, to []metav1.OwnerReference) error {
	return c.patch(ctx, o, is, map[string]any{"ownerReferences": to})
}

// patch changes the metadata of an object if it has not changed.
func (c *collector) patch(ctx context.Context, o *object, is *metav1.PartialObjectMetadata, change map[string]any) error {
	change["uid"], change["resourceVersion"] = is.UID, is.ResourceVersion
	text, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return err
	}
	_, err = c.client(o.resource, o.namespace).Patch(ctx, o.name, types.MergePatchType, text, metav1.PatchOptions{})
	if clients.Absent(err, o.name) {
		return nil
	}
	return err
}

// release removes a finalizer from an object that is being deleted.
func (c *collector) release(ctx context.Context, o *object, finalizer string) error {
	is, err := c.get(ctx, o.resource, o.namespace, o.name)
	if err != nil || is == nil || is.UID != o.uid || !slices.Contains(is.Finalizers, finalizer) {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(is.Finalizers), func(f string) bool { return f == finalizer })
	return c.patch(ctx, o, is, map[string]any{"finalizers": left})
}

// awaitDependents removes the finalizer of an object if no dependent blocks it. Otherwise it queues the dependents.
func (c *collector) awaitDependents(ctx context.Context, o *object) error {
	blocked := false
	for _, d := range c.dependentsOf(o.uid) {
		if d.blocks(o) {
			if blocked = true; !d.awaitsDependents() {
				c.queue.Add(d.uid)
			}
		}
	}
	if blocked {
		return nil
	}
	return c.release(ctx, o, metav1.FinalizerDeleteDependents)
}

// orphan removes the references to an object from its dependents, and then its finalizer.
func (c *collector) orphan(ctx context.Context, o *object) error {
	for _, d := range c.dependentsOf(o.uid) {
		is, err := c.get(ctx, d.resource, d.namespace, d.name)
		if err != nil {
			return err
		}
		if is == nil || is.UID != d.uid {
			continue
		}
		keep := slices.DeleteFunc(slices.Clone(is.OwnerReferences), func(r metav1.OwnerReference) bool { return r.UID == o.uid })
		if len(keep) == len(is.OwnerReferences) {
			continue
		}
		if err := c.setOwners(ctx, d, is, keep); err != nil {
			return err
		}
	}
	return c.release(ctx, o, metav1.FinalizerOrphanDependents)
}

// report writes one Event about an object whose owner reference cannot be valid, because the owner is in another
// namespace.
func (c *collector) report(ctx context.Context, o *object, r metav1.OwnerReference) {
	if !c.firstReport(o.uid) {
		return
	}
	const component = "garbage-collector-controller"
	message := fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q", r.APIVersion, r.Kind, o.namespace, r.Name, r.UID, o.namespace)
	gvk, now := c.kindNamed(o.resource), time.Now()
	namespace := o.namespace
	namespace = cmp.Or(namespace, metav1.NamespaceDefault)
	at := now.UTC().Format(time.RFC3339)
	event := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata":       map[string]any{"namespace": namespace, "name": fmt.Sprintf("%s.%x", o.name, now.UnixNano())},
		"involvedObject": map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind, "namespace": o.namespace, "name": o.name, "uid": string(o.uid)},
		"type":           "Warning", "reason": "OwnerRefInvalidNamespace", "message": message,
		"source": map[string]any{"component": component}, "reportingComponent": component,
		"firstTimestamp": at, "lastTimestamp": at, "count": int64(1),
	}}
	if _, err := c.Objects.Resource(clients.Events).Namespace(namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		c.Logger.Warn("an owner is named that is in another namespace", "dependent", o.String(), "owner", message, "error", err)
	}
}
