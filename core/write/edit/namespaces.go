package edit

import (
	"errors"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/logpb"
)

// As in Kubernetes, a namespace is deleted in two steps. A delete marks it, and from then on nothing is created in it. The
// namespace controller deletes its content and removes the finalizer in spec.finalizers, through /finalize. The last
// finalizer removes the namespace. Unlike in Kubernetes, the commit checks that the namespace is empty (see Draft.remove).

// immortal has the namespaces that the server creates and never deletes.
var immortal = map[string]bool{"default": true, "kube-system": true}

// checkMortal refuses to delete an immortal namespace.
func (d *Draft) checkMortal() error {
	if d.Resource() == commit.Namespaces && immortal[d.Key.Name] {
		return status.Refused(d.Resource(), d.Key.Name, errors.New("this namespace may not be deleted"))
	}
	return nil
}

// finalized reports whether a namespace has no spec.finalizers.
func finalized(content map[string]any) bool {
	spec, _ := content["spec"].(map[string]any)
	finalizers, _ := spec["finalizers"].([]any)
	return len(finalizers) == 0
}

// setFinalizers sets the spec.finalizers of a namespace; nil removes them.
func setFinalizers(content map[string]any, asked any) {
	spec, ok := content["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
		content["spec"] = spec
	}
	setOrDelete(spec, "finalizers", asked, asked != nil)
}

// withFinalizers returns a copy of a namespace's content with other spec.finalizers. managedFields follow from the
// copy, because no client manages the finalizer that the server adds.
func withFinalizers(content map[string]any, finalizers any) map[string]any {
	content = maps.Clone(content)
	spec, _ := content["spec"].(map[string]any)
	content["spec"] = maps.Clone(spec)
	setFinalizers(content, finalizers)
	return content
}

// askedFinalizers returns the spec.finalizers in the content of a body.
func askedFinalizers(content map[string]any) any {
	spec, _ := content["spec"].(map[string]any)
	return spec["finalizers"]
}

// KeepFinalizers returns a function that sets the spec.finalizers in content to what they are now. Preparing a namespace
// resets them, but a write of the subresource finalize sets them. For all other writes the function does nothing.
func (d *Draft) KeepFinalizers(content map[string]any) (restore func()) {
	if d.Info.Subresource != call.Finalize {
		return func() {}
	}
	asked := askedFinalizers(content)
	return func() { setFinalizers(content, asked) }
}

// deleteNamespace marks a namespace. If it is marked already, it is removed, unless it has finalizers or contains
// objects. A namespace without spec.finalizers, which only old logs have, gets the server's finalizer, so that its
// content is deleted first.
func (d *Draft) deleteNamespace(w *Write) (*Write, error) {
	meta, content, err := call.DecodeStored(d.Old.JSON)
	if err != nil {
		return nil, err
	}
	if meta.DeletionTimestamp != nil {
		if len(meta.Finalizers) > 0 || !finalized(content) || d.holdsContent() {
			return nil, nil
		}
		d.remove(w)
		return w, nil
	}
	if finalized(content) {
		setFinalizers(content, []any{"kubernetes"})
	}
	status, _ := content["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
		content["status"] = status
	}
	status["phase"] = "Terminating"
	now := metav1.NewTime(d.Received.Truncate(time.Second).UTC())
	meta.DeletionTimestamp, meta.ResourceVersion = &now, "" // without a grace period, as upstream
	meta.Finalizers = d.finalizersOfDelete()
	w.Type = logpb.Type_TYPE_UPDATED
	w.Payload, err = d.encode(meta, content)
	return w, err
}

// remove makes w the removal of the object. A namespace must still be empty at the commit.
func (d *Draft) remove(w *Write) {
	if d.Resource() == commit.Namespaces {
		w.Checks.EmptyNamespace = d.Key.Name
	}
	if d.Kind.Kind.Defines() {
		w.Checks.EmptyResources = append(w.Checks.EmptyResources, schema.ParseGroupResource(d.Key.Name))
	}
	w.Type, w.Payload = logpb.Type_TYPE_DELETED, d.Old.Payload()
}

// holdsContent reports whether the object is a namespace that contains objects, or a definition of whose kind there are objects.
func (d *Draft) holdsContent() bool {
	if d.Kind.Kind.Defines() {
		return d.Tip.Objects.Len(schema.ParseGroupResource(d.Key.Name)) > 0
	}
	if d.Resource() != commit.Namespaces {
		return false
	}
	_, found := d.Tip.Objects.FirstIn(d.Key.Name)
	return found
}

// held reports whether the written object has finalizers, which keep an object that is being deleted.
func (d *Draft) held() bool {
	return len(d.Object.Meta.Finalizers) > 0 || d.Resource() == commit.Namespaces && !finalized(d.Object.Content)
}
