// This file is the controller that completes deletions of CustomResourceDefinitions that the API brought: it deletes the objects of their kinds, waits for
// the finalizers of these, and then removes the finalizer of the definition. It also has the server decide again about names that
// were taken, once another definition has changed or is gone.

package controllers

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/run/controllers/clients"
	"stele.dev/stele/schemas/crd/definitions"
)

// definitionWorkers is how many definitions are worked on at once.
const definitionWorkers = 2

// runDefinitions runs the controller until the context ends.
func runDefinitions(ctx context.Context, set *clients.Set) error {
	c := &definitionController{Set: set, queue: clients.NewQueue[string]("customresourcedefinition")}
	var following sync.WaitGroup
	following.Go(func() { set.Follow(ctx, clients.Definitions, "", followedDefinitions{c}) })
	c.queue.Work(ctx, definitionWorkers, set.Logger, c.sync)
	following.Wait()
	return ctx.Err()
}

// definitionController has a queue of names of definitions that are being deleted, and of ofGroup and a group whose names are to be decided again.
type definitionController struct {
	*clients.Set
	queue clients.Queue[string]
}

const ofGroup = "group "

// followedDefinitions queues what there is to do.
type followedDefinitions struct{ *definitionController }

func (f followedDefinitions) Changed(o *metav1.PartialObjectMetadata) {
	if o.DeletionTimestamp != nil {
		f.queue.Add(o.Name)
	}
	f.Gone(o) // perhaps it had names before that are free now
}

func (f followedDefinitions) Replace(there []*metav1.PartialObjectMetadata) {
	for _, o := range there {
		f.Changed(o) // perhaps another one of the group has gone since
	}
}

func (f followedDefinitions) Gone(o *metav1.PartialObjectMetadata) {
	f.queue.Add(ofGroup + schema.ParseGroupResource(o.Name).Group)
}

func (c *definitionController) sync(ctx context.Context, item string) error {
	if group, ok := strings.CutPrefix(item, ofGroup); ok {
		return c.decideNames(ctx, group)
	}
	o, err := c.Objects.Resource(clients.Definitions).Get(ctx, item, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	d, err := typedDefinition(o)
	if err != nil || d.DeletionTimestamp == nil {
		return err
	}
	left, err := c.emptyKind(ctx, d)
	switch {
	case err != nil:
		return err
	case left > 0:
		return clients.ErrLater
	}
	return c.finalizeDefinition(ctx, o)
}

func typedDefinition(o *unstructured.Unstructured) (*definitions.Definition, error) {
	d := &definitions.Definition{}
	return d, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, d)
}

// emptyKind deletes the objects of the kind of a definition, and returns how many are left, which wait for their finalizers.
func (c *definitionController) emptyKind(ctx context.Context, d *definitions.Definition) (left int, err error) {
	if !definitions.InForce(d) {
		return 0, nil
	}
	i := slices.IndexFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served })
	if i < 0 {
		return 0, nil // nothing can be listed; the commit checks that there are no objects
	}
	r := c.Metadata.Resource(schema.GroupVersionResource{Group: d.Spec.Group, Version: d.Spec.Versions[i].Name, Resource: d.Status.AcceptedNames.Plural})
	there, err := r.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, ignoreNotFound(err) // the kind is not served if its definition does not compile any more
	}
	var done []string
	for i := range there.Items {
		in := there.Items[i].Namespace
		if slices.Contains(done, in) {
			continue
		}
		done = append(done, in)
		if e := r.Namespace(in).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); e != nil {
			err = errors.Join(err, e)
		}
	}
	if err != nil || len(there.Items) == 0 {
		return 0, err
	}
	if there, err = r.List(ctx, metav1.ListOptions{}); err != nil {
		return 0, err
	}
	return len(there.Items), nil
}

// finalizeDefinition removes the finalizer of a definition. If somebody else has removed it before the objects were gone, it deletes the definition once more.
func (c *definitionController) finalizeDefinition(ctx context.Context, o *unstructured.Unstructured) error {
	r := c.Objects.Resource(clients.Definitions)
	finalizers := o.GetFinalizers()
	others := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == definitions.Finalizer })
	switch {
	case len(others) < len(finalizers):
		o.SetFinalizers(others)
		_, err := r.Update(ctx, o, metav1.UpdateOptions{})
		return ignoreNotFound(err)
	case len(others) > 0:
		return nil // other finalizers are left
	}
	uid := o.GetUID()
	return ignoreNotFound(r.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}))
}

// decideNames has the server decide again about the names of the definitions of a group that have not all of theirs.
func (c *definitionController) decideNames(ctx context.Context, group string) error {
	r := c.Objects.Resource(clients.Definitions)
	there, err := r.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var failed error
	for i := range there.Items {
		d, err := typedDefinition(&there.Items[i])
		if err != nil {
			return err
		}
		if d.Spec.Group != group || reflect.DeepEqual(d.Spec.Names, d.Status.AcceptedNames) && apihelpers.IsCRDConditionTrue(d, apiextensionsv1.NamesAccepted) {
			continue
		}
		// The server writes the status with each write of the definition.
		_, err = r.Patch(ctx, d.Name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{}, "status")
		failed = errors.Join(failed, ignoreNotFound(err))
	}
	return failed
}
