package metadata

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Warnings returns kube-apiserver's warnings about the metadata of a valid custom object: finalizers without a domain.
// old is nil for a new object.
func Warnings(meta, old *metav1.ObjectMeta) (warnings []string) {
	const path = "metadata.finalizers"
	added := slices.DeleteFunc(slices.Clone(meta.Finalizers), func(f string) bool { return old != nil && slices.Contains(old.Finalizers, f) })
	slices.Sort(added)
	for _, name := range slices.Compact(added) {
		for _, wrong := range validation.IsQualifiedName(name) {
			warnings = append(warnings, fmt.Sprintf("%s: %q: %s", path, name, wrong))
		}
		switch name {
		case metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, string(corev1.FinalizerKubernetes):
			continue
		}
		if strings.Contains(name, "/") {
			continue
		}
		advice := "prefer a domain-qualified finalizer name"
		if strings.Contains(name, ".") {
			advice += " including a path (/)"
		}
		warnings = append(warnings, fmt.Sprintf("%s: %q: %s to avoid accidental conflicts with other finalizer writers", path, name, advice))
	}
	return warnings
}
