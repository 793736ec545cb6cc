package metadata

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateCoreFinalizers checks the finalizers of most kinds of the core group as kube-apiserver does: their names
// must have a domain, except Kubernetes' own. Finalizers of old stay valid; old is nil for a new object.
func ValidateCoreFinalizers(meta, old *metav1.ObjectMeta) (errs field.ErrorList) {
	own := []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}
	path := field.NewPath("metadata", "finalizers")
	for i, name := range meta.Finalizers {
		if strings.Contains(name, "/") || slices.Contains(own, name) || old != nil && slices.Contains(old.Finalizers, name) {
			continue
		}
		errs = append(errs, field.Invalid(path.Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
	}
	return errs
}
