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

// What a delete does to an object that something else has to be done about first is decided
// here, by the rules of k8s.io/apiserver/pkg/registry/generic/registry. Those of the garbage
// collector's finalizers are that whoever deletes decides, each time anew.

// refuseUnsafe refuses to delete what can be read where only what cannot be is meant. It
// always can: what does not decode never gets into the log. Who may not ask for that does
// not hear of it (KEP-3926).
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

// finalizersOfDelete are those that the object keeps when it is deleted: its own, and the
// one of the garbage collector that the options ask for, or else that it has already.
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
		return has // in their order
	}
	return want
}

// waitsFor is the finalizer of the garbage collector that a delete leaves to an object which
// has some; "" if it does not wait for its dependents.
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

// markDeleted marks an object as one that goes when its finalizers have gone. It does nothing
// to one that is marked.
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

// unchanged is the code of the answer to a write that leaves the object there. Upstream says
// of a delete that it is only accepted where the deprecated option asks for its dependents.
func (d *Draft) Unchanged() int {
	if o := d.Body.Delete; o != nil && o.OrphanDependents != nil && !*o.OrphanDependents {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// alreadyExists is the answer to a create of what is there.
func (d *Draft) alreadyExists() error {
	err := status.AlreadyExists(d.Resource(), d.Key.Name)
	if gjson.GetBytes(d.Old.JSON, "metadata.deletionTimestamp").Exists() {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}
