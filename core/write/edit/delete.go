//lint:file-ignore SA1019 orphanDependents is taken as long as Kubernetes takes it

package edit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
)

// refuseUnsafe refuses a delete that is only for objects that cannot be read (KEP-3926). The log has none: an object
// that does not decode is never committed. Users without permission for such deletes get another error.
func (d *Draft) refuseUnsafe(ctx context.Context) error {
	if !call.IgnoresReadErrors(d.Body.Delete) {
		return nil
	}
	access := d.Access
	access.Verb = "unsafe-delete-ignore-read-errors"
	if decision := d.Tip.Policy.Authorize(ctx, &access); !decision.Allowed {
		return status.Refused(d.Resource(), d.Key.Name, fmt.Errorf("not permitted to do %q, reason: %s", access.Verb, decision.Reason))
	}
	return status.Conflict(d.Resource(), d.Key.Name, errors.New("ignoreStoreReadErrorWithClusterBreakingPotential is for objects that cannot be read, and this one can be"))
}

// finalizersOfDelete returns the finalizers that the object has after a delete: its own, and the garbage collector's
// finalizer that waitsFor returns. The rules are those of k8s.io/apiserver/pkg/registry/generic/registry.
func (d *Draft) finalizersOfDelete() []string {
	var has []string
	for _, f := range gjson.GetBytes(d.Old.JSON, "metadata.finalizers").Array() {
		has = append(has, f.Str)
	}
	wanted := d.waitsFor(has)
	others := slices.DeleteFunc(slices.Clone(has), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	want := others
	if wanted != "" {
		want = append(others, wanted)
	}
	if len(want) == len(has) && !slices.ContainsFunc(want, func(f string) bool { return !slices.Contains(has, f) }) {
		return has // in the object's order
	}
	return want
}

// waitsFor returns the garbage collector's finalizer that a delete sets or keeps on an object with the finalizers
// has; "" for none. Each delete decides anew.
func (d *Draft) waitsFor(has []string) string {
	o := d.Body.Delete
	switch {
	case d.Kind.NoGarbageCollection:
		return ""
	case o.OrphanDependents != nil && *o.OrphanDependents:
		return metav1.FinalizerOrphanDependents
	case o.OrphanDependents != nil:
		return ""
	case o.PropagationPolicy != nil:
		switch *o.PropagationPolicy {
		case metav1.DeletePropagationOrphan:
			return metav1.FinalizerOrphanDependents
		case metav1.DeletePropagationForeground:
			return metav1.FinalizerDeleteDependents
		}
		return ""
	}
	for _, f := range has {
		if f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents {
			return f
		}
	}
	return ""
}

// markDeleted sets the deletion timestamp of an object, unless an earlier delete has.
func markDeleted(meta *metav1.ObjectMeta, at time.Time) {
	now, zero := metav1.NewTime(at.Truncate(time.Second).UTC()), int64(0)
	if meta.DeletionTimestamp == nil && meta.Generation > 0 {
		meta.Generation++
	}
	if meta.DeletionTimestamp == nil || meta.DeletionTimestamp.After(now.Time) {
		meta.DeletionTimestamp = &now
	}
	meta.DeletionGracePeriodSeconds = &zero
}

// Unchanged returns the status code of a write after which the object still exists: 202 for a delete with the
// deprecated orphanDependents=false, as in kube-apiserver, else 200.
func (d *Draft) Unchanged() int {
	if o := d.Body.Delete; o != nil && o.OrphanDependents != nil && !*o.OrphanDependents {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// alreadyExists returns the error for a create of an existing object.
func (d *Draft) alreadyExists(object []byte) error {
	if exceeded := d.Tip.Quotas.Check(d.Resource(), d.Key.Namespace, nil, object); exceeded != nil {
		return d.OverQuota(exceeded) // as upstream, quotas are checked before names
	}
	err := status.AlreadyExists(d.Resource(), d.Key.Name)
	if gjson.GetBytes(d.Old.JSON, "metadata.deletionTimestamp").Exists() {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}
