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
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/write/managed"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/jsonvalue"
)

// Applies reports whether the request is a server-side apply (KEP-555).
func (d *Draft) Applies() bool {
	return d.Info.Verb == "patch" && types.PatchType(d.Body.MediaType) == types.ApplyYAMLPatchType
}

// decodeApply merges the applied configuration into the stored object, or creates the object.
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
	if old != nil {
		return d.become(o)
	}
	if v := o.Meta.ResourceVersion; v != "" {
		if _, err := call.ParseRevision(v); err != nil {
			return err
		}
	}
	return d.becomeNew(o)
}

// decodeApplied decodes the applied configuration, once. It is JSON or YAML. JSON is decoded by the faster JSON
// decoder, unless it has duplicate fields.
func (d *Draft) decodeApplied() error {
	if d.applied != nil {
		return nil
	}
	if bytes.HasPrefix(d.Body.Raw, []byte("{")) {
		if applied, twice, err := jsonvalue.UnmarshalObjectStrict(d.Body.Raw); err == nil && len(twice) == 0 {
			d.applied = applied
			return nil
		}
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
	if d.applied = applied; applied == nil { // the body is null
		d.applied = map[string]any{}
	}
	return nil
}

// strictApplied refuses duplicate fields of the applied configuration, or warns of them.
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

// unappliable returns the error for a configuration that cannot be decoded or applied. For secrets, it quotes neither
// the configuration nor the object.
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

// fields returns what updates the managedFields of the object.
func (d *Draft) fields() *managed.Fields { return managed.Of(d.Kind, d.Info.Subresource) }

// oldObject decodes the stored object; nil if there is none.
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

// withoutOld removes managedFields from the body of an update if they equal those of the stored object, so that they
// need not be decoded.
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

// patchTarget returns the object that a patch is applied to. managedFields are left out unless the patch may refer to
// them.
func (d *Draft) patchTarget() ([]byte, error) {
	object, err := d.Shown(d.Old.JSON)
	if err != nil {
		return nil, err
	}
	if types.PatchType(d.Body.MediaType) == types.JSONPatchType || bytes.Contains(d.Body.Raw, []byte("managedFields")) {
		return object, nil
	}
	rest, _ := metadata.Split(object)
	return rest, nil
}

// manage updates the managedFields of an object. Server-side apply and writes of a Scale have done so already. sent
// are the managedFields in the client's object.
func (d *Draft) manage(o *Object, sent []metav1.ManagedFieldsEntry) {
	if len(sent) == 0 && !d.Kind.Kind.Builtin {
		sent = nil // for custom resources, upstream treats empty and missing alike
	}
	o.Meta.ManagedFields = sent
	if d.Applies() || d.Scales() || d.Mode.Is(call.Replayed) { // no rule depends on them
		return
	}
	var old *policy.Object
	if d.OldMeta != nil {
		old = &policy.Object{Meta: d.OldMeta, Content: d.OldContent}
	}
	d.Unmanaged = d.fields().Update(old, &policy.Object{Meta: o.Meta, Content: o.Content}, d.Body.Options.FieldManager, d.Received)
}

// keepTimes restores the times in managedFields if nothing else has changed, so that the write changes nothing. Empty
// and missing fields of the metadata are equal.
func (d *Draft) keepTimes() {
	o := d.Object
	if !managed.DifferInTimesOnly(o.Meta.ManagedFields, d.OldMeta.ManagedFields) {
		return
	}
	meta := *o.Meta
	meta.ManagedFields = d.OldMeta.ManagedFields
	if equalContent(o.Content, d.OldContent, false) && equality.Semantic.DeepEqual(&meta, d.OldMeta) { // the slower one last
		o.Meta.ManagedFields = d.OldMeta.ManagedFields
	}
}
