// Package serviceaccounts is the controller that creates a service account named default in every namespace.
package serviceaccounts

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"stele.dev/stele/core/controllers/clients"
)

const name = "default"

// Run runs the controller until the context ends.
func Run(ctx context.Context, set *clients.Set) error {
	c := &controller{set: set, queue: clients.NewQueue[string]()}
	var following sync.WaitGroup
	following.Go(func() { set.Follow(ctx, clients.Namespaces, "", followed{c, ofNamespace}) })
	following.Go(func() { set.Follow(ctx, clients.ServiceAccounts, "metadata.name="+name, followed{c, ofAccount}) })
	c.queue.Work(ctx, 1, set.Logger, c.sync)
	following.Wait()
	return ctx.Err()
}

type controller struct {
	set   *clients.Set
	queue clients.Queue[string] // names of namespaces

	mu sync.Mutex
	// known are the states of namespaces by name. heard are the bits whose watches have sent all objects.
	known map[string]state
	heard state
}

// state is what is known of a namespace. Each bit comes from a watch of its own.
type state uint8

const (
	ofNamespace state = 1 << iota // it exists, and is not being deleted
	ofAccount                     // it has the account
)

// followed sets and clears one bit.
type followed struct {
	*controller
	bit state
}

func (f followed) namespace(o *metav1.PartialObjectMetadata) string {
	if f.bit == ofNamespace {
		return o.Name
	}
	return o.Namespace
}

func (f followed) mark(namespace string, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.known[namespace]
	next := was &^ f.bit
	if is {
		next |= f.bit
	}
	if f.known == nil {
		f.known = map[string]state{}
	}
	if f.known[namespace] = next; next == 0 {
		delete(f.known, namespace)
	}
	if f.missing(next) {
		f.queue.Add(namespace)
	}
}

// missing reports whether a namespace needs an account.
func (c *controller) missing(s state) bool {
	return s == ofNamespace && c.heard == ofNamespace|ofAccount
}

func (f followed) Changed(o *metav1.PartialObjectMetadata) {
	f.mark(f.namespace(o), o.DeletionTimestamp == nil || f.bit == ofAccount)
}

func (f followed) Gone(o *metav1.PartialObjectMetadata) { f.mark(f.namespace(o), false) }

func (f followed) Replace(there []*metav1.PartialObjectMetadata) {
	gone := map[string]bool{}
	f.mu.Lock()
	for namespace, is := range f.known {
		if is&f.bit != 0 {
			gone[namespace] = true
		}
	}
	f.mu.Unlock()
	for _, o := range there {
		delete(gone, f.namespace(o))
		f.Changed(o)
	}
	for namespace := range gone {
		f.mark(namespace, false)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard |= f.bit
	for namespace, is := range f.known {
		if f.missing(is) {
			f.queue.Add(namespace)
		}
	}
}

// sync creates the account if it is missing.
func (c *controller) sync(ctx context.Context, namespace string) error {
	c.mu.Lock()
	missing := c.missing(c.known[namespace])
	c.mu.Unlock()
	if !missing {
		return nil
	}
	account := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"namespace": namespace, "name": name},
	}}
	_, err := c.set.Objects.Resource(clients.ServiceAccounts).Namespace(namespace).Create(ctx, account, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return nil // the namespace was deleted; a new one will queue it again
	}
	return err
}
