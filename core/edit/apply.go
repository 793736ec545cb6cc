package edit

import (
	"bytes"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/managed"
	"stele.dev/stele/core/metadata"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// applies tells whether the request is one of server-side apply (KEP-555).
func (d *Draft) applies() bool {
	return d.Info.Verb == "patch" && types.PatchType(d.Body.MediaType) == types.ApplyYAMLPatchType
}

// decodeApply merges what the client wants to be so into what is. What is not there is
// created.
func (d *Draft) decodeApply() error {
	if d.Old == nil && d.Info.Subresource != "" {
		return status.NotFound(d.Resource(), d.Key.Name)
	}
	if err := d.decodeApplied(); err != nil {
		return d.unappliable(err)
	}
	old, err := d.oldObject()
	if err != nil {
		return err
	}
	merged, err := d.fields().Apply(old, d.applied, d.Body.Options.FieldManager, d.Body.Options.Force, d.Received)
	if err != nil {
		return d.unappliable(err)
	}
	if err := d.strictApplied(); err != nil {
		return err
	}
	o := &Object{Meta: merged.Meta, Content: merged.Content}
	if old != nil {
		d.OldMeta, d.OldContent = old.Meta, old.Content // decoded once
	}
	if uid := o.Meta.UID; uid != "" && old == nil {
		return status.Conflict(d.Resource(), d.Key.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := metadata.CheckNamespace(o.Meta, d.Key.Namespace); err != nil {
		return status.BadRequest(err.Error())
	}
	switch name := o.Meta.Name; {
	case name == "":
		return status.BadRequestf("the name of the object (%s based on URL) was undeterminable: name must be provided", d.Key.Name)
	case name != d.Key.Name:
		return status.BadRequestf("the name of the object (%s) does not match the name on the URL (%s)", name, d.Key.Name)
	}
	if old == nil {
		return d.becomeNew(o)
	}
	return d.become(o)
}

// decodeApplied reads what is applied, once. Clients write it as JSON or as YAML; JSON is
// YAML, but quicker to read, unless it says something twice.
func (d *Draft) decodeApplied() error {
	if d.applied != nil {
		return nil
	}
	if bytes.HasPrefix(d.Body.Raw, []byte("{")) {
		if twice, err := kjson.UnmarshalStrict(d.Body.Raw, &d.applied); err == nil && len(twice) == 0 && d.applied != nil {
			return nil
		}
		d.applied = nil
	}
	text, err := utilyaml.ToJSON(d.Body.Raw)
	if err != nil {
		return fmt.Errorf("error encoding patch: %w", err)
	}
	if len(text) > call.MaxBody {
		return status.BodyTooLarge()
	}
	applied := map[string]any{}
	if err := utilyaml.Unmarshal(d.Body.Raw, &applied); err != nil {
		return fmt.Errorf("error decoding patch: %w", err)
	}
	d.appliedTwice = utilyaml.UnmarshalStrict(d.Body.Raw, &map[string]any{})
	if d.applied = applied; applied == nil { // it says null
		d.applied = map[string]any{}
	}
	return nil
}

// strictApplied refuses or warns of what is applied twice.
func (d *Draft) strictApplied() error {
	if d.appliedTwice == nil {
		return nil
	}
	switch d.Body.Options.Validation {
	case metav1.FieldValidationStrict:
		return status.BadRequestf("error strict decoding patch: %v", d.appliedTwice)
	case metav1.FieldValidationWarn:
		d.Warn(d.appliedTwice.Error())
	}
	return nil
}

// unappliable is the answer to what cannot be decoded or applied. Of secrets it must not quote
// what is there, or was sent.
func (d *Draft) unappliable(err error) error {
	var answer apierrors.APIStatus
	switch {
	case errors.As(err, &answer):
		return err
	case d.Sensitive():
		return status.BadRequest("what is applied cannot be decoded, or does not fit the schema of the object")
	}
	return status.BadRequest(err.Error())
}

// fields keeps the managedFields of what the request writes.
func (d *Draft) fields() *managed.Fields { return managed.Of(d.Kind, d.Info.Subresource) }

// oldObject is what is there, nil if nothing is.
func (d *Draft) oldObject() (*policy.Object, error) {
	if d.Old == nil {
		return nil, nil
	}
	meta, content, err := d.DecodeStored(d.Old.JSON)
	if err != nil {
		return nil, err
	}
	return &policy.Object{Meta: meta, Content: content}, nil
}

// withoutOld is the body of an update without managedFields, if it has those of the object
// as it is: who sends back what they read need not have them decoded.
func (d *Draft) withoutOld(text []byte) []byte {
	const key = `"managedFields"`
	if d.Old == nil || d.Body.MediaType == negotiate.YAML || bytes.Count(text, []byte(key)) != 1 {
		return text
	}
	rest, sent := metadata.Split(text)
	if _, have := metadata.Split(d.Old.JSON); sent == "" || sent != have {
		return text
	}
	return rest
}

// patched is what a patch is applied to. managedFields are in it if the patch could have to
// do with them.
func (d *Draft) patchTarget() []byte {
	object := d.Shown(d.Old.JSON)
	if types.PatchType(d.Body.MediaType) == types.JSONPatchType || bytes.Contains(d.Body.Raw, []byte("managedFields")) {
		return object
	}
	rest, _ := metadata.Split(object)
	return rest
}

// manage keeps the managedFields of what is written, other than by applying or as a Scale: those
// have done so already. sent are the managedFields that the client has.
func (d *Draft) manage(o *Object, sent []metav1.ManagedFieldsEntry) {
	if len(sent) == 0 && !d.Kind.Kind.Builtin {
		sent = nil // upstream's definitions do not tell what is empty from what is not there
	}
	o.Meta.ManagedFields = sent
	if d.applies() || d.Scales() {
		return
	}
	var old *policy.Object
	if d.OldMeta != nil {
		old = &policy.Object{Meta: d.OldMeta, Content: d.OldContent}
	}
	d.Unmanaged = d.fields().Update(old, &policy.Object{Meta: o.Meta, Content: o.Content}, d.Body.Options.FieldManager, d.Received)
}

// keepTimes takes back the times of managedFields where they are all that has changed: that is
// no change. What is empty and what is not there are encoded alike, and are the same.
func (d *Draft) keepTimes() {
	o := d.Object
	if !managed.DifferInTimesOnly(o.Meta.ManagedFields, d.OldMeta.ManagedFields) {
		return
	}
	meta := *o.Meta
	meta.ManagedFields = d.OldMeta.ManagedFields
	if equality.Semantic.DeepEqual(&meta, d.OldMeta) && equalContent(o.Content, d.OldContent, false) {
		o.Meta.ManagedFields = d.OldMeta.ManagedFields
	}
}
