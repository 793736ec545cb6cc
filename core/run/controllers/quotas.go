// This file is the controller that reports the usage of resource quotas in their status, as Kubernetes'
// resourcequota-controller. Nothing relies on the status: the committer decides from its own projection whether a write
// fits, so that a status that is late, or wrong, admits nothing and refuses nothing.

package controllers

import (
	"context"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"stele.dev/stele/core/run/controllers/clients"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/projections/quotas"
)

// quotaInterval is the shortest time between two looks at what changed: the writes in between make one write of a status.
const quotaInterval = 100 * time.Millisecond

// quotaWorkers is how many statuses are written at a time.
const quotaWorkers = 2

// runQuotas runs the controller until the context ends.
func runQuotas(ctx context.Context, set *clients.Set) error {
	if set.Usage == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	c := &quotaController{set: set, queue: clients.NewQueue[quotaKey]("resource_quota_controller_resource_changes")}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.queue.Work(ctx, quotaWorkers, set.Logger, c.sync)
	}()
	c.follow(ctx)
	<-done
	return ctx.Err()
}

type quotaController struct {
	set   *clients.Set
	queue clients.Queue[quotaKey]
	seen  map[quotaKey]*quotas.Quota // as follow last saw them; only follow uses it
}

// quotaKey identifies a quota.
type quotaKey struct{ namespace, name string }

// follow queues each quota whose usage or limits have changed.
func (c *quotaController) follow(ctx context.Context) {
	var last *quotas.State
	for {
		grown := c.set.Usage.Grown()
		if now := c.set.Usage.Quotas(); now != last {
			last = now
			c.compare(now)
			if steady.Wait(ctx, quotaInterval) != nil {
				return
			}
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return
		}
	}
}

func (c *quotaController) compare(now *quotas.State) {
	next := make(map[quotaKey]*quotas.Quota, len(c.seen))
	now.All(func(q *quotas.Quota) bool {
		k := quotaKey{q.Namespace, q.Name}
		if next[k] = q; c.seen[k] != q {
			c.queue.Add(k)
		}
		return true
	})
	c.seen = next
}

// sync writes the status of a quota if it is another one than it should be.
func (c *quotaController) sync(ctx context.Context, k quotaKey) error {
	resource := c.set.Objects.Resource(clients.ResourceQuotas).Namespace(k.namespace)
	object, err := resource.Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	q := c.set.Usage.Quotas().Quota(k.namespace, k.name)
	if q == nil || q.UID != string(object.GetUID()) {
		return nil // it is queued when the usage has it
	}
	hard, used := map[string]any{}, map[string]any{}
	for i := range q.Lines {
		l := &q.Lines[i]
		if hard[l.Name] = l.Hard.Text(l.Format); l.Tracked() {
			used[l.Name] = l.Used.Text(l.Format)
		}
	}
	if quotaReported(object, "hard", hard) && quotaReported(object, "used", used) {
		return nil
	}
	object.Object["status"] = map[string]any{"hard": hard, "used": used}
	_, err = resource.UpdateStatus(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// quotaReported reports whether a field of the status has these quantities.
func quotaReported(object *unstructured.Unstructured, field string, want map[string]any) bool {
	has, _, _ := unstructured.NestedMap(object.Object, "status", field)
	return maps.Equal(has, want)
}
