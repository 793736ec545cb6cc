// This file is the controller that fills Secrets of type kubernetes.io/service-account-token with a token
// of the service account that their annotation names, and deletes them when the account is deleted. It does not change
// what a Secret already contains, except the authorities of the server's certificate.

package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"stele.dev/stele/core/run/controllers/clients"
)

// runAccountTokens runs the controller until the context ends.
func runAccountTokens(ctx context.Context, set *clients.Set) error {
	if set.Issuer == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	c := &accountTokens{Set: set, queue: clients.NewQueue[types.NamespacedName]("serviceaccount_tokens"), known: map[types.NamespacedName]string{}, of: map[types.NamespacedName]sets.Set[string]{}}
	var following sync.WaitGroup
	following.Go(func() {
		set.Follow(ctx, clients.Secrets, "type="+string(corev1.SecretTypeServiceAccountToken), tokenSecrets{c})
	})
	following.Go(func() { set.Follow(ctx, clients.ServiceAccounts, "", tokenAccounts{c}) })
	c.queue.Work(ctx, 1, set.Logger, c.sync)
	following.Wait()
	return ctx.Err()
}

type accountTokens struct {
	*clients.Set
	queue clients.Queue[types.NamespacedName] // of Secrets

	mu sync.Mutex
	// known maps the existing Secrets to the account of each when it was last checked, "" before that. of maps
	// accounts to the same Secrets.
	known map[types.NamespacedName]string
	of    map[types.NamespacedName]sets.Set[string]
}

// tokenSecrets queues each Secret that changes.
type tokenSecrets struct{ *accountTokens }

func (s tokenSecrets) Changed(o *metav1.PartialObjectMetadata) {
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	s.mu.Lock()
	if _, ok := s.known[key]; !ok {
		s.known[key] = ""
	}
	s.mu.Unlock()
	s.queue.Add(key)
}

func (s tokenSecrets) Gone(o *metav1.PartialObjectMetadata) {
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	s.recordAccount(key, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, key)
}

func (s tokenSecrets) Replace(there []*metav1.PartialObjectMetadata) {
	s.mu.Lock()
	clear(s.known)
	clear(s.of)
	s.mu.Unlock()
	for _, o := range there {
		s.Changed(o)
	}
}

// tokenAccounts queues the Secrets of each deleted account.
type tokenAccounts struct{ *accountTokens }

func (a tokenAccounts) Changed(*metav1.PartialObjectMetadata) {}

func (a tokenAccounts) Gone(o *metav1.PartialObjectMetadata) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.of[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] {
		a.queue.Add(types.NamespacedName{Namespace: o.Namespace, Name: name})
	}
}

// Replace queues all Secrets, because deletions of accounts may have been missed.
func (a tokenAccounts) Replace([]*metav1.PartialObjectMetadata) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key := range a.known {
		a.queue.Add(key)
	}
}

// recordAccount records the account of a Secret, if the Secret still exists.
func (c *accountTokens) recordAccount(key types.NamespacedName, account string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.known[key]
	if !ok || before == account {
		return
	}
	c.known[key] = account
	if by := (types.NamespacedName{Namespace: key.Namespace, Name: before}); before != "" {
		if c.of[by].Delete(key.Name); len(c.of[by]) == 0 {
			delete(c.of, by)
		}
	}
	if by := (types.NamespacedName{Namespace: key.Namespace, Name: account}); account != "" {
		if c.of[by] == nil {
			c.of[by] = sets.Set[string]{}
		}
		c.of[by].Insert(key.Name)
	}
}

// sync fills a Secret, or deletes it if its account does not exist. It records the account before it looks it up, so
// that a later deletion of the account queues the Secret again. A Secret that is still in the queue needs no record:
// it will be synced anyway.
func (c *accountTokens) sync(ctx context.Context, key types.NamespacedName) error {
	o, err := c.Objects.Resource(clients.Secrets).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return ignoreAbsent(err, key.Name)
	}
	secret := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, secret); err != nil {
		return err
	}
	if secret.Type != corev1.SecretTypeServiceAccountToken {
		return nil
	}
	c.recordAccount(key, secret.Annotations[corev1.ServiceAccountNameKey])
	account, err := c.account(ctx, secret)
	switch {
	case err != nil:
		return err
	case account == nil:
		return ignoreAbsent(c.Objects.Resource(clients.Secrets).Namespace(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
		}), key.Name)
	}
	return c.fill(ctx, secret, account)
}

// ignoreAbsent returns nil for an error that says that the object does not exist.
func ignoreAbsent(err error, name string) error {
	if clients.Absent(err, name) {
		return nil
	}
	return err
}

// account returns the account of a Secret. It returns nil if there is none, or if its UID is not the one that the
// Secret names.
func (c *accountTokens) account(ctx context.Context, secret *corev1.Secret) (*unstructured.Unstructured, error) {
	name, uid := secret.Annotations[corev1.ServiceAccountNameKey], secret.Annotations[corev1.ServiceAccountUIDKey]
	if name == "" || len(content.IsPathSegmentName(name)) > 0 {
		return nil, nil
	}
	account, err := c.Objects.Resource(clients.ServiceAccounts).Namespace(secret.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || uid != "" && uid != string(account.GetUID()) {
		return nil, ignoreAbsent(err, name)
	}
	return account, nil
}

// fill adds the missing data to a Secret, if the Secret has not changed since it was read.
func (c *accountTokens) fill(ctx context.Context, secret *corev1.Secret, account *unstructured.Unstructured) error {
	data := map[string][]byte{}
	if ca := c.Issuer.RootCA; len(ca) > 0 && !bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], ca) {
		data[corev1.ServiceAccountRootCAKey] = ca
	}
	if len(secret.Data[corev1.ServiceAccountNamespaceKey]) == 0 {
		data[corev1.ServiceAccountNamespaceKey] = []byte(secret.Namespace)
	}
	needsToken := len(secret.Data[corev1.ServiceAccountTokenKey]) == 0
	switch immutable := secret.Immutable != nil && *secret.Immutable; {
	case len(data) == 0 && !needsToken:
		return nil
	case immutable:
		c.Logger.Warn("a Secret cannot be filled with a token, because it is immutable", "secret", secret.Namespace+"/"+secret.Name)
		return nil
	case needsToken:
		token, err := c.Issuer.Token(secret.Namespace, account.GetName(), string(account.GetUID()), secret.Name)
		if err != nil {
			return err
		}
		data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	change, err := json.Marshal(map[string]any{"data": data, "metadata": map[string]any{
		"uid": secret.UID, "resourceVersion": secret.ResourceVersion, "annotations": map[string]string{corev1.ServiceAccountUIDKey: string(account.GetUID())},
	}})
	if err != nil {
		return err
	}
	_, err = c.Objects.Resource(clients.Secrets).Namespace(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, change, metav1.PatchOptions{})
	return ignoreAbsent(err, secret.Name)
}
