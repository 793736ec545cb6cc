package edit

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/metadata"
)

// Fix sets the uid and the generated name of the object that a replayed write creates. Both may be empty.
func (d *Draft) Fix(uid, name string) {
	d.fixed = metav1.ObjectMeta{UID: types.UID(uid), Name: name, CreationTimestamp: metav1.NewTime(d.Received.Truncate(time.Second).UTC())}
}

// readResult reads the options of a replayed write whose body is not known. The result of a patch is not what its client sent, so
// that its unknown fields are nobody's mistake.
func (d *Draft) readResult() error {
	b := &call.Body{MediaType: d.HTTP.Header.Get("Content-Type")}
	if err := d.ReadOptions(b); err != nil {
		return err
	}
	if d.Info.Verb == "patch" {
		b.Options.Validation = metav1.FieldValidationIgnore
	}
	d.Body = b
	return nil
}

// decodeResult makes the object that a replayed write asks for from the one that it stored.
func (d *Draft) decodeResult() error {
	text, _ := metadata.Split(d.Result)
	meta, content, err := d.DecodeStored(text)
	if err != nil {
		return err
	}
	if d.Removed { // the log has the object before the write
		meta.Finalizers = nil
		if d.Resource() == commit.Namespaces {
			setFinalizers(content, nil)
		}
	}
	content["apiVersion"], content["kind"] = d.Kind.GroupVersionKind().ToAPIVersionAndKind()
	d.Mistyped, d.counted = nil, true
	meta.ResourceVersion, meta.ManagedFields = "", nil
	o := &Object{Meta: meta, Content: content, Text: text}
	if d.Info.Verb == "create" || d.Old == nil {
		return d.becomeNew(o)
	}
	meta.ResourceVersion = strconv.FormatUint(d.Old.Revision, 10)
	return d.become(o)
}
