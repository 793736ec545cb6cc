package edit

import (
	"errors"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/logpb"
)

// A namespace has finalizers of its own, beside those in metadata: spec.finalizers, which
// only /finalize changes. It is deleted in two steps, as in Kubernetes: a delete marks it,
// from when on it takes nothing new; whoever has emptied it takes their finalizers off,
// and with the last one it is gone. Kubernetes trusts them to have emptied it. Here the
// commit checks it (see [Request.remove]): a namespace without finalizers in which there is something stays until the
// namespace controller has emptied it, or until it is empty and finalized or deleted once more.

// immortal are the namespaces that the server makes, and keeps.
var immortal = map[string]bool{"default": true, "kube-system": true}

// checkMortal refuses to delete what is immortal.
func (d *Draft) checkMortal() error {
	if d.Resource() == commit.Namespaces && immortal[d.Key.Name] {
		return status.Refused(d.Resource(), d.Key.Name, errors.New("this namespace may not be deleted"))
	}
	return nil
}

// finalized tells whether nothing holds a namespace back any longer.
func finalized(content map[string]any) bool {
	spec, _ := content["spec"].(map[string]any)
	finalizers, _ := spec["finalizers"].([]any)
	return len(finalizers) == 0
}

// setFinalizers makes the finalizers of a namespace those that were asked for.
func setFinalizers(content map[string]any, asked any) {
	spec, ok := content["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
		content["spec"] = spec
	}
	setOrDelete(spec, "finalizers", asked, asked != nil)
}

// withFinalizers is the content of a namespace with other finalizers: the server's own is
// set by nobody who would manage it.
func withFinalizers(content map[string]any, finalizers any) map[string]any {
	content = maps.Clone(content)
	spec, _ := content["spec"].(map[string]any)
	content["spec"] = maps.Clone(spec)
	setFinalizers(content, finalizers)
	return content
}

// askedFinalizers are the finalizers of a namespace that a body has.
func askedFinalizers(content map[string]any) any {
	spec, _ := content["spec"].(map[string]any)
	return spec["finalizers"]
}

// deleteNamespace marks a namespace, or, if it is marked, removes it unless there are
// finalizers, or objects in it. One that has none when it is marked gets that of the server, so that its
// content is deleted before it is: those of old logs have none.
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

// remove makes it a write that removes the object for good: of a namespace, if it still is empty then.
func (d *Draft) remove(w *Write) {
	if d.Resource() == commit.Namespaces {
		w.Checks.EmptyNamespace = d.Key.Name
	}
	w.Type, w.Payload = logpb.Type_TYPE_DELETED, d.Old.Payload()
}

// holdsContent reports whether the object is a namespace in which there is something. It stays until that is gone.
func (d *Draft) holdsContent() bool {
	if d.Resource() != commit.Namespaces {
		return false
	}
	_, found := d.Tip.Objects.FirstIn(d.Key.Name)
	return found
}

// held tells whether finalizers keep an object that is being deleted, as it is to become.
func (d *Draft) held() bool {
	return len(d.Object.Meta.Finalizers) > 0 || d.Resource() == commit.Namespaces && !finalized(d.Object.Content)
}
