package edit

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/canonical"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/logpb"
)

// Write is the change to commit for a request.
type Write struct {
	Type    logpb.Type
	Payload []byte // the event's object: after the write, or the last one before its removal
	After   []byte // the object of an update that removes it, for the answer; else nil
	Kept    []byte // the object with its hidden fields, see keepHidden; nil if it has none
	Code    int
	Checks  commit.Checks
}

// Decide compares the object with the stored one, and returns the change to commit; nil if they are equal.
func (d *Draft) Decide() (*Write, error) {
	w := &Write{Code: http.StatusOK, Checks: commit.Checks{PolicyRevision: d.Tip.PolicyRevision(), Object: &d.Key}}
	if d.Old != nil {
		w.Checks.Revision = d.Old.Revision
	}
	if ns := d.SawNamespace; ns != nil {
		w.Checks.Namespace, w.Checks.NamespaceRevision = d.Key.Namespace, ns.Revision
	}
	var err error
	switch {
	case d.Creates():
		w.Type, w.Code, w.Checks.ActiveNamespace, w.Checks.Quota = logpb.Type_TYPE_CREATED, http.StatusCreated, d.Key.Namespace, true
		w.Payload, err = d.encode(d.Object.Meta, d.Object.Content)
		if d.Old != nil {
			return nil, d.alreadyExists(w.Payload)
		}
	case d.Object == nil:
		return d.decideDelete(w)
	default:
		w.Type, w.Checks.Quota = logpb.Type_TYPE_UPDATED, true
		d.keepTimes()
		if !d.Kind.Kind.Builtin && d.Info.Subresource != "status" && !equalContent(d.Object.Content, d.OldContent, d.Kind.Status) {
			d.Object.Meta.Generation++
		}
		if w.Payload, err = d.encode(d.Object.Meta, d.Object.Content); err != nil {
			return nil, err
		}
		if d.OldMeta.DeletionTimestamp != nil && !d.held() && !d.holdsContent() {
			if w.After, err = d.removed(w.Payload); err != nil {
				return nil, err
			}
			w.Checks.Quota = false
			d.remove(w)
			return w, nil
		}
		if !d.Anew && d.Old.HasPayload(w.Payload) {
			return nil, nil
		}
		w.Kept, err = d.keepHidden(d.Object.Meta, d.Object.Content)
	}
	return w, err
}

// equalContent reports whether two objects are equal but for apiVersion, kind, metadata and, if exceptStatus, status.
func equalContent(a, b map[string]any, exceptStatus bool) bool {
	compared := func(name string) bool {
		return name != "apiVersion" && name != "kind" && name != "metadata" && (name != "status" || !exceptStatus)
	}
	for name, value := range a {
		if other, ok := b[name]; compared(name) && (!ok || !canonical.Equal(value, other)) {
			return false
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok && compared(name) {
			return false
		}
	}
	return true
}

// encode returns an object as it is stored, in the storage version.
func (d *Draft) encode(meta *metav1.ObjectMeta, content map[string]any) ([]byte, error) {
	gvk := d.Kind.Kind.Stored().Storage().GroupVersionKind()
	if face := d.Kind.Kind.Face; face != nil {
		content = face.Store(content)
	}
	if d.Applies() && !d.Kind.Kind.Definition.IsZero() && d.Object != nil {
		d.Kind.Program.Prune(content) // removes nulls that server-side apply lets through
	}
	if d.Kind.Kind.Converts() {
		stored, changed := d.Kind.Store(content)
		if content = stored; changed && d.Object != nil {
			d.Object.Adapted = true
		}
	}
	text, err := canonical.Object(gvk.GroupVersion().String(), gvk.Kind, meta, content)
	if err == nil && len(text) > commit.MaxObject && len(meta.ManagedFields) > 0 && !d.Applies() {
		// As upstream, an object that is too large loses its managedFields first.
		meta.ManagedFields = nil
		text, err = canonical.Object(gvk.GroupVersion().String(), gvk.Kind, meta, content)
	}
	if err == nil && len(text) > commit.MaxObject {
		return nil, status.TooLarge("the object has %d bytes, with its defaults; limit is %d", len(text), commit.MaxObject)
	}
	return text, err
}

// removed returns the object of an update that removes it, whose stored form is given. As in kube-apiserver, it is as the client wrote
// it, with the defaults of its version, because it is never stored and read.
func (d *Draft) removed(stored []byte) ([]byte, error) {
	if !d.Kind.Kind.Converts() || d.Kind.Kind.Face != nil {
		return stored, nil
	}
	gvk := d.Kind.GroupVersionKind()
	return canonical.Object(gvk.GroupVersion().String(), gvk.Kind, d.Object.Meta, d.Object.Content)
}

// decideDelete removes the object. If it has finalizers, it is only marked.
func (d *Draft) decideDelete(w *Write) (*Write, error) {
	if d.Resource() == commit.Namespaces {
		return d.deleteNamespace(w)
	}
	finalizers := d.finalizersOfDelete()
	if len(finalizers) > 0 {
		meta, content, err := d.DecodeStored(d.Old.JSON)
		if err != nil {
			return nil, err
		}
		meta.Finalizers, meta.ResourceVersion = finalizers, ""
		markDeleted(meta, d.Received)
		w.Type, w.Code = logpb.Type_TYPE_UPDATED, d.Unchanged()
		if w.Payload, err = d.encode(meta, content); err != nil || d.Old.HasPayload(w.Payload) {
			return nil, err // already marked
		}
		w.Kept, err = d.keepHidden(meta, content)
		return w, err
	}
	d.remove(w)
	return w, nil
}

// WithRevision returns a payload with its revision as resourceVersion.
func WithRevision(payload []byte, revision uint64) []byte {
	at := bytes.Index(payload, []byte(`"metadata":{`)) + len(`"metadata":{`)
	return slices.Concat(payload[:at], fmt.Appendf(nil, `"resourceVersion":"%d",`, revision), payload[at:])
}
