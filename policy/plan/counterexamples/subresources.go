package counterexamples

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
)

// ofSubresource makes the objects of a generated update those of an update of its subresource: the stored object with another
// status, or Scales.
func (w *write) ofSubresource() {
	if w.old == nil {
		return
	}
	switch w.request.Subresource {
	case "status":
		content := admission.WithStatus(w.old.content, w.object.content)
		w.object = &object{w.old.meta, content}
	case "scale":
		w.whole = w.old
		w.object, w.old = scaleOf(w.is, w.old, w.object), scaleOf(w.is, w.old, w.old)
	}
}

// scaleOf returns the Scale of an object with the replicas of another one. Paths of a wrong type count as 0.
func scaleOf(v *policy.Version, o, replicas *object) *object {
	is, _ := v.Scale.Of(o.content)
	wanted, _ := v.Scale.Of(replicas.content)
	status := map[string]any{"replicas": is.Status}
	if is.Selector != "" {
		status["selector"] = is.Selector
	}
	meta := metav1.ObjectMeta{Name: o.meta.Name, Namespace: o.meta.Namespace}
	return &object{meta, map[string]any{"spec": map[string]any{"replicas": wanted.Spec}, "status": status}}
}

// stored returns the object that a write would store, if mutations made its object what made is; nil if that cannot be said.
func (w *write) stored(made *policy.Object) *policy.Object {
	switch w.request.Subresource {
	case "status":
		return &policy.Object{Meta: &w.object.meta, Content: admission.WithStatus(w.object.content, made.Content)}
	case "scale":
		spec, _ := made.Content["spec"].(map[string]any)
		replicas, ok := spec["replicas"].(int64)
		content := runtime.DeepCopyJSON(w.whole.content)
		if !ok || w.is.Scale.Set(content, replicas) != nil {
			return nil
		}
		return &policy.Object{Meta: &w.whole.meta, Content: content}
	}
	if w.is.Status {
		return &policy.Object{Meta: made.Meta, Content: admission.WithStatus(made.Content, w.object.content)}
	}
	return made
}

// before returns the object that is stored before the write, or nil before a create.
func (w *write) storedBefore() *policy.Object {
	if w.whole != nil {
		return w.whole.value()
	}
	return w.old.value()
}
