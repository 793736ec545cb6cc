package restore

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"stele.dev/stele/core/difference"
)

// serverOwned is the metadata that only the server sets.
var serverOwned = []string{
	"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink",
	"deletionTimestamp", "deletionGracePeriodSeconds",
}

// content is what clients say of an object: all but server-owned metadata, and but for what
// is written apart from the rest, or by the server alone.
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
	if k.IsNamespace() { // the rest of it is its life cycle
		delete(content, "spec")
		delete(content, "status")
	}
	return content
}

// status of an object, where that is written apart from the rest.
func (k Kind) status(o *unstructured.Unstructured) any {
	if o == nil || !k.StatusSubresource || k.IsNamespace() {
		return nil
	}
	return o.Object["status"]
}

// IsNamespace tells whether its objects are namespaces.
func (k Kind) IsNamespace() bool { return k.Group == "" && k.Kind == "Namespace" }

// withoutCollector are the finalizers that outlive a deletion: those of the garbage collector
// say how an object is being deleted, and go with that.
func withoutCollector(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
	})
}

// differencesOfStatus tells what a status is to be another in; nil is an empty one.
func differencesOfStatus(from, to any) []difference.Entry {
	if from == nil {
		from = map[string]any{}
	}
	if to == nil {
		to = map[string]any{}
	}
	return difference.Between(map[string]any{"status": from}, map[string]any{"status": to}, difference.Options{})
}
