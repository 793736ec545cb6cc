// This file is the controller that creates a service account named default in every namespace.

package controllers

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"stele.dev/stele/core/run/controllers/clients"
)

const defaultAccount = "default"

// runServiceAccounts runs the controller until the context ends.
func runServiceAccounts(ctx context.Context, set *clients.Set) error {
	c := &serviceAccountController{set: set, queue: clients.NewQueue[string]("serviceaccount")}
	var following sync.WaitGroup
	following.Go(func() { set.Follow(ctx, clients.Namespaces, "", followedAccounts{c, ofNamespace}) })
	following.Go(func() {
		set.Follow(ctx, clients.ServiceAccounts, "metadata.name="+defaultAccount, followedAccounts{c, ofAccount})
	})
	c.queue.Work(ctx, 1, set.Logger, c.sync)
	following.Wait()
	return ctx.Err()
}

type serviceAccountController struct {
	set   *clients.Set
	queue clients.Queue[string] // names of namespaces

	mu sync.Mutex
	// known are the states of namespaces by name. heard are the bits whose watches have sent all objects.
	known map[string]accountState
	heard accountState
}

// accountState is what is known of a namespace. Each bit comes from a watch of its own.
type accountState uint8

const (
	ofNamespace accountState = 1 << iota // it exists, and is not being deleted
	ofAccount                            // it has the account
)

// followedAccounts sets and clears one bit.
type followedAccounts struct {
	*serviceAccountController
	bit accountState
}

func (f followedAccounts) namespace(o *metav1.PartialObjectMetadata) string {
	if f.bit == ofNamespace {
		return o.Name
	}
	return o.Namespace
}

func (f followedAccounts) mark(namespace string, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.known[namespace]
	next := was &^ f.bit
	if is {
		next |= f.bit
	}
	if f.known == nil {
		f.known = map[string]accountState{}
	}
	if f.known[namespace] = next; next == 0 {
		delete(f.known, namespace)
	}
	if f.missing(next) {
		f.queue.Add(namespace)
	}
}

// missing reports whether a namespace needs an account.
func (c *serviceAccountController) missing(s accountState) bool {
	return s == ofNamespace && c.heard == ofNamespace|ofAccount
}

func (f followedAccounts) Changed(o *metav1.PartialObjectMetadata) {
	f.mark(f.namespace(o), o.DeletionTimestamp == nil || f.bit == ofAccount)
}

func (f followedAccounts) Gone(o *metav1.PartialObjectMetadata) { f.mark(f.namespace(o), false) }

func (f followedAccounts) Replace(there []*metav1.PartialObjectMetadata) {
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
func (c *serviceAccountController) sync(ctx context.Context, namespace string) error {
	c.mu.Lock()
	missing := c.missing(c.known[namespace])
	c.mu.Unlock()
	if !missing {
		return nil
	}
	account := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"namespace": namespace, "name": defaultAccount},
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
