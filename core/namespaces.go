package core

import (
	"errors"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog/logpb"
)

// A namespace has finalizers of its own, beside those in metadata: spec.finalizers, which
// only /finalize changes. It is deleted in two steps, as in Kubernetes: a delete marks it,
// from when on it takes nothing new; whoever has emptied it takes their finalizers off,
// and with the last one it is gone. Kubernetes trusts them to have emptied it. Here the
// commit checks it (see [Request.remove]): a namespace without finalizers in which there is something stays until the
// namespace controller has emptied it, or until it is empty and finalized or deleted once more.

// finalize is the subresource that changes spec.finalizers.
const finalize = "finalize"

// immortal are the namespaces that the server makes, and keeps.
var immortal = map[string]bool{"default": true, "kube-system": true}

// checkMortal refuses to delete what is immortal.
func (r *Request) checkMortal() error {
	if r.resource() == commit.Namespaces && immortal[r.key.Name] {
		return apierrors.NewForbidden(r.resource(), r.key.Name, errors.New("this namespace may not be deleted"))
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
func (r *Request) deleteNamespace(w *write) (*write, error) {
	meta, content, err := decodeStored(r.old.JSON)
	if err != nil {
		return nil, err
	}
	if meta.DeletionTimestamp != nil {
		if len(meta.Finalizers) > 0 || !finalized(content) || r.holdsContent() {
			return nil, nil
		}
		r.remove(w)
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
	now := metav1.NewTime(r.received.Truncate(time.Second).UTC())
	meta.DeletionTimestamp, meta.ResourceVersion = &now, "" // without a grace period, as upstream
	meta.Finalizers = r.finalizersOfDelete()
	w.kind = logpb.Type_TYPE_UPDATED
	w.payload, err = r.encode(meta, content)
	return w, err
}

// remove makes it a write that removes the object for good: of a namespace, if it still is empty then.
func (r *Request) remove(w *write) {
	if r.resource() == commit.Namespaces {
		w.checks.EmptyNamespace = r.key.Name
	}
	w.kind, w.payload = logpb.Type_TYPE_DELETED, r.old.Payload()
}

// holdsContent reports whether the object is a namespace in which there is something. It stays until that is gone.
func (r *Request) holdsContent() bool {
	if r.resource() != commit.Namespaces {
		return false
	}
	_, found := r.tip.Objects.FirstIn(r.key.Name)
	return found
}

// held tells whether finalizers keep an object that is being deleted, as it is to become.
func (r *Request) held() bool {
	return len(r.object.meta.Finalizers) > 0 || r.resource() == commit.Namespaces && !finalized(r.object.content)
}
