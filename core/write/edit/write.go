package edit

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/canonical"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/conversion"
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
		if err := d.settleDefinition(); err != nil {
			return nil, err
		}
		w.Payload, err = d.encode(d.Object.Meta, d.Object.Content)
		if d.Old != nil {
			return nil, d.alreadyExists(w.Payload)
		}
	case d.Object == nil:
		return d.decideDelete(w)
	default:
		w.Type, w.Checks.Quota = logpb.Type_TYPE_UPDATED, true
		if err := d.settleDefinition(); err != nil {
			return nil, err
		}
		d.keepTimes()
		if d.hasGeneration() && d.Info.Subresource != "status" && !equalContent(d.Object.Content, d.OldContent, d.Kind.Status) {
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
		w.Kept, err = d.keepHidden(w.Payload)
	}
	return w, err
}

// hasGeneration reports whether objects of the kind have a generation.
func (d *Draft) hasGeneration() bool {
	k := d.Kind.Kind
	return !k.Builtin || k.Defines() || k.Brought != nil && k.Brought.Counted
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
	if face := d.Kind.Kind.Face; face != nil {
		content = face.Store(content)
	}
	if d.Applies() && !d.Kind.Kind.Definition.IsZero() && d.Object != nil {
		d.Kind.Program.Prune(content) // removes nulls that server-side apply lets through
	}
	if d.Kind.Kind.Converts() {
		stored, changed, err := d.convertToStore(content)
		if err != nil {
			return nil, err
		}
		if content = stored; changed && d.Object != nil {
			d.Object.Adapted = true
		}
	}
	return d.encodeStored(meta, content)
}

// convertToStore returns the content of the object in the storage version. An object that cannot be converted is refused.
func (d *Draft) convertToStore(content map[string]any) (map[string]any, bool, error) {
	var old *policy.Before
	if d.OldContent != nil && d.Kind.Loses() {
		_, stored, err := call.DecodeStored(d.Old.JSON)
		if err != nil {
			return nil, false, err
		}
		if versions.NameOf(d.Old.JSON) == d.Kind.Kind.StorageVersion {
			old = &policy.Before{Shown: d.OldContent, Stored: stored}
		}
	}
	stored, changed, err := d.Kind.Store(content, old)
	if err != nil {
		at := field.NewPath("")
		if step := (*conversion.Error)(nil); errors.As(err, &step) {
			at = field.NewPath(step.Field)
		}
		return nil, false, status.Invalid(d.Kind.GroupVersionKind().GroupKind(), d.Key.Name, field.ErrorList{field.Invalid(at, field.OmitValueType{}, err.Error())})
	}
	return stored, changed, nil
}

// encodeStored returns an object of the storage version as it is stored.
func (d *Draft) encodeStored(meta *metav1.ObjectMeta, content map[string]any) ([]byte, error) {
	return d.encodeIn(d.Kind.Kind.Stored().Storage().GroupVersionKind(), meta, content)
}

// encodeIn returns an object of a version as it is stored.
func (d *Draft) encodeIn(gvk schema.GroupVersionKind, meta *metav1.ObjectMeta, content map[string]any) ([]byte, error) {
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
func (d *Draft) decideDelete(w *Write) (_ *Write, err error) {
	if d.Resource() == commit.Namespaces {
		return d.deleteNamespace(w)
	}
	if d.Kind.Kind.Defines() {
		return d.deleteDefinition(w)
	}
	finalizers := d.finalizersOfDelete()
	if len(finalizers) > 0 {
		w.Type, w.Code = logpb.Type_TYPE_UPDATED, d.Unchanged()
		if w.Payload, err = d.marked(finalizers); err != nil || d.Old.HasPayload(w.Payload) {
			return nil, err // already marked
		}
		w.Kept, err = d.keepHidden(w.Payload)
		return w, err
	}
	d.remove(w)
	return w, nil
}

// marked returns the object marked as deleted. As in kube-apiserver it is what the request's version shows of it, unless the kind declares how its
// versions are converted: then it is as it was, also if it cannot be converted.
func (d *Draft) marked(finalizers []string) ([]byte, error) {
	decode := d.DecodeStored
	if d.Kind.Kind.Converted() {
		decode = call.DecodeStored
	}
	meta, content, err := decode(d.Old.JSON)
	if err != nil {
		return nil, err
	}
	meta.Finalizers, meta.ResourceVersion = finalizers, ""
	markDeleted(meta, d.Received)
	if !d.Kind.Kind.Converted() {
		return d.encode(meta, content)
	}
	gvk := d.Kind.Kind.Stored().Storage().GroupVersionKind()
	if name := versions.NameOf(d.Old.JSON); name != "" {
		gvk.Version = name // another one if it cannot be converted
	}
	return d.encodeIn(gvk, meta, content)
}

// WithRevision returns a payload with its revision as resourceVersion.
func WithRevision(payload []byte, revision uint64) []byte {
	at := bytes.Index(payload, []byte(`"metadata":{`)) + len(`"metadata":{`)
	return slices.Concat(payload[:at], fmt.Appendf(nil, `"resourceVersion":"%d",`, revision), payload[at:])
}
