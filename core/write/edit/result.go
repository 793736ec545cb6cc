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

// readRecorded reads the recorded body of a replayed write and its options, or only these if the body is not known. Unknown fields are
// no errors: a policy that has no such field any more refuses what its schema says, and not each client that validates strictly.
func (d *Draft) readRecorded() error {
	if d.Result == nil {
		if err := d.ReadBody(); err != nil {
			return err
		}
	} else {
		b := &call.Body{MediaType: d.HTTP.Header.Get("Content-Type")}
		if err := d.ReadOptions(b); err != nil {
			return err
		}
		d.Body = b
	}
	d.Body.Options.Validation = metav1.FieldValidationIgnore
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
