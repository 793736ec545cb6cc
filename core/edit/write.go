package edit

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/canonical"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/logpb"
)

// write is what a request comes down to.
type Write struct {
	Type    logpb.Type
	Payload []byte // of the event: the object after, or its last state
	After   []byte // the object after, where the payload is the last state
	Kept    []byte // the object after as it is kept, see kept
	Code    int
	Checks  commit.Checks
}

// decide compares what is to be with what is. nil means that they are the same.
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
		if d.Old != nil {
			return nil, d.alreadyExists()
		}
		w.Type, w.Code, w.Checks.ActiveNamespace = logpb.Type_TYPE_CREATED, http.StatusCreated, d.Key.Namespace
		w.Payload, err = d.encode(d.Object.Meta, d.Object.Content)
	case d.Object == nil:
		return d.decideDelete(w)
	default:
		w.Type = logpb.Type_TYPE_UPDATED
		d.keepTimes()
		if !d.Kind.Kind.Builtin && d.Info.Subresource != "status" && d.contentChanged() {
			d.Object.Meta.Generation++
		}
		if w.Payload, err = d.encode(d.Object.Meta, d.Object.Content); err != nil {
			return nil, err
		}
		if d.OldMeta.DeletionTimestamp != nil && !d.held() && !d.holdsContent() {
			w.After = w.Payload
			d.remove(w)
			return w, nil
		}
		if d.Old.HasPayload(w.Payload) {
			return nil, nil
		}
		w.Kept, err = d.keepHidden(d.Object.Meta, d.Object.Content)
	}
	return w, err
}

// contentChanged: something else than metadata, or than a status with a place of its
// own.
func (d *Draft) contentChanged() bool {
	return !equalContent(d.Object.Content, d.OldContent, d.Kind.Status)
}

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

// maxObject is the largest object that is stored, in bytes: a small body can have large defaults.
const maxObject = 4 << 20

func (d *Draft) encode(meta *metav1.ObjectMeta, content map[string]any) ([]byte, error) {
	gvk := d.Kind.Kind.Stored().Storage().GroupVersionKind()
	if face := d.Kind.Kind.Face; face != nil {
		content = face.Store(content)
	}
	if d.applies() && len(d.Kind.Kind.Definition) > 0 && d.Object != nil {
		d.Kind.Program.Prune(content) // nulls that are applied and have been let through
	}
	if d.Kind.Kind.Converts() {
		stored, changed := d.Kind.Store(content)
		if content = stored; changed && d.Object != nil {
			d.Object.Adapted = true
		}
	}
	text, err := canonical.Object(gvk.GroupVersion().String(), gvk.Kind, meta, content)
	if err == nil && len(text) > maxObject && len(meta.ManagedFields) > 0 && !d.applies() {
		// Who set what is given up before what they set, as upstream does.
		meta.ManagedFields = nil
		text, err = canonical.Object(gvk.GroupVersion().String(), gvk.Kind, meta, content)
	}
	if err == nil && len(text) > maxObject {
		return nil, status.TooLarge("the object has %d bytes, with its defaults; limit is %d", len(text), maxObject)
	}
	return text, err
}

// decideDelete removes the object, or, while it has finalizers, marks it.
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

// withRevision is a payload as clients get it.
func WithRevision(payload []byte, revision uint64) []byte {
	at := bytes.Index(payload, []byte(`"metadata":{`)) + len(`"metadata":{`)
	return slices.Concat(payload[:at], fmt.Appendf(nil, `"resourceVersion":"%d",`, revision), payload[at:])
}
