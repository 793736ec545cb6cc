//lint:file-ignore SA1019 orphanDependents is taken as long as Kubernetes takes it

package core

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What a delete does to an object that something else has to be done about first is decided
// here, by the rules of k8s.io/apiserver/pkg/registry/generic/registry. Those of the garbage
// collector's finalizers are that whoever deletes decides, each time anew.

// validateDelete checks the options of a delete.
func validateDelete(o *metav1.DeleteOptions, verb string) field.ErrorList {
	errs := metav1validation.ValidateDeleteOptions(o)
	if len(errs) == 0 && unsafe(o) && verb == "deletecollection" {
		errs = append(errs, field.Invalid(field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true, "is not allowed with DELETECOLLECTION, try again after removing the option"))
	}
	return errs
}

// unsafe tells whether only what cannot be read is to be deleted.
func unsafe(o *metav1.DeleteOptions) bool {
	return o.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *o.IgnoreStoreReadErrorWithClusterBreakingPotential
}

// refuseUnsafe refuses to delete what can be read where only what cannot be is meant. It
// always can: what does not decode never gets into the log. Who may not ask for that does
// not hear of it (KEP-3926).
func (r *Request) refuseUnsafe(ctx context.Context) error {
	if !unsafe(r.body.delete) {
		return nil
	}
	access := r.access
	access.Verb = "unsafe-delete-ignore-read-errors"
	if d := r.tip.Policy.Authorize(ctx, &access); !d.Allowed {
		return apierrors.NewForbidden(r.resource(), r.key.Name, fmt.Errorf("not permitted to do %q, reason: %s", access.Verb, d.Reason))
	}
	return apierrors.NewConflict(r.resource(), r.key.Name, errors.New("ignoreStoreReadErrorWithClusterBreakingPotential is for objects that cannot be read, and this one can be"))
}

// finalizersOfDelete are those that the object keeps when it is deleted: its own, and the
// one of the garbage collector that the options ask for, or else that it has already.
func (r *Request) finalizersOfDelete() []string {
	var has []string
	for _, f := range gjson.GetBytes(r.old.JSON, "metadata.finalizers").Array() {
		has = append(has, f.Str)
	}
	wanted := r.waitsFor(has)
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
func (r *Request) waitsFor(has []string) string {
	o := r.body.delete
	switch {
	case r.kind.NoGarbageCollection:
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
func (r *Request) unchanged() int {
	if o := r.body.delete; o != nil && o.OrphanDependents != nil && !*o.OrphanDependents {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// alreadyExists is the answer to a create of what is there.
func (r *Request) alreadyExists() error {
	err := apierrors.NewAlreadyExists(r.resource(), r.key.Name)
	if gjson.GetBytes(r.old.JSON, "metadata.deletionTimestamp").Exists() {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}
