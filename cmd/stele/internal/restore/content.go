package restore

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"stele.dev/stele/core/object/difference"
)

// serverOwned are the fields of metadata that only the server sets.
var serverOwned = []string{
	"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink",
	"deletionTimestamp", "deletionGracePeriodSeconds",
}

// content returns the part of an object that clients write with the object itself: no metadata of the server, and no
// status that is a subresource.
func (k Kind) content(o *unstructured.Unstructured) map[string]any {
	if o == nil {
		return nil
	}
	content := runtime.DeepCopyJSON(o.Object)
	if meta, ok := content["metadata"].(map[string]any); ok {
		for _, field := range serverOwned {
			delete(meta, field)
		}
	}
	if k.StatusSubresource {
		delete(content, "status")
	}
	if k.IsNamespace() { // its spec and status are its life cycle
		delete(content, "spec")
		delete(content, "status")
	}
	return content
}

// status returns the status of an object if it is a subresource.
func (k Kind) status(o *unstructured.Unstructured) any {
	if o == nil || !k.StatusSubresource || k.IsNamespace() {
		return nil
	}
	return o.Object["status"]
}

// IsNamespace reports whether this is the kind Namespace.
func (k Kind) IsNamespace() bool { return k.Group == "" && k.Kind == "Namespace" }

// withoutCollector removes the finalizers of the garbage collector, which belong to a deletion and not to the object.
func withoutCollector(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
	})
}

// differencesOfStatus compares two statuses; nil is an empty one.
func differencesOfStatus(from, to any) []difference.Entry {
	if from == nil {
		from = map[string]any{}
	}
	if to == nil {
		to = map[string]any{}
	}
	return difference.Between(map[string]any{"status": from}, map[string]any{"status": to}, difference.Options{})
}
