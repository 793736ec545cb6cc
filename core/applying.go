package core

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
	"stele.dev/stele/core/managed"
	"stele.dev/stele/core/metadata"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/policy"
)

// applies tells whether the request is one of server-side apply (KEP-555).
func (r *Request) applies() bool {
	return r.info.Verb == "patch" && types.PatchType(r.body.mediaType) == types.ApplyYAMLPatchType
}

// decodeApply merges what the client wants to be so into what is. What is not there is
// created.
func (r *Request) decodeApply() error {
	if r.old == nil && r.info.Subresource != "" {
		return apierrors.NewNotFound(r.resource(), r.key.Name)
	}
	if err := r.body.decodeApplied(); err != nil {
		return r.unappliable(err)
	}
	old, err := r.oldObject()
	if err != nil {
		return err
	}
	merged, err := r.fields().Apply(old, r.body.applied, r.body.options.fieldManager, r.body.options.force, r.received)
	if err != nil {
		return r.unappliable(err)
	}
	if err := r.strictApplied(); err != nil {
		return err
	}
	o := &object{meta: merged.Meta, content: merged.Content}
	if old != nil {
		r.oldMeta, r.oldContent = old.Meta, old.Content // decoded once
	}
	if uid := o.meta.UID; uid != "" && old == nil {
		return apierrors.NewConflict(r.resource(), r.key.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := metadata.CheckNamespace(o.meta, r.key.Namespace); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	switch name := o.meta.Name; {
	case name == "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", r.key.Name))
	case name != r.key.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, r.key.Name))
	}
	if old == nil {
		return r.becomeNew(o)
	}
	return r.become(o)
}

// decodeApplied reads what is applied, once. Clients write it as JSON or as YAML; JSON is
// YAML, but quicker to read, unless it says something twice.
func (b *body) decodeApplied() error {
	if b.applied != nil {
		return nil
	}
	if bytes.HasPrefix(b.raw, []byte("{")) {
		if twice, err := kjson.UnmarshalStrict(b.raw, &b.applied); err == nil && len(twice) == 0 && b.applied != nil {
			return nil
		}
		b.applied = nil
	}
	text, err := utilyaml.ToJSON(b.raw)
	if err != nil {
		return fmt.Errorf("error encoding patch: %w", err)
	}
	if len(text) > maxBody {
		return tooLarge()
	}
	applied := map[string]any{}
	if err := utilyaml.Unmarshal(b.raw, &applied); err != nil {
		return fmt.Errorf("error decoding patch: %w", err)
	}
	b.strict = utilyaml.UnmarshalStrict(b.raw, &map[string]any{})
	if b.applied = applied; applied == nil { // it says null
		b.applied = map[string]any{}
	}
	return nil
}

// strictApplied refuses or warns of what is applied twice.
func (r *Request) strictApplied() error {
	if r.body.strict == nil {
		return nil
	}
	switch r.body.options.validation {
	case metav1.FieldValidationStrict:
		return apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: %v", r.body.strict))
	case metav1.FieldValidationWarn:
		r.warn(r.body.strict.Error())
	}
	return nil
}

// unappliable is the answer to what cannot be decoded or applied. Of secrets it must not quote
// what is there, or was sent.
func (r *Request) unappliable(err error) error {
	var answer apierrors.APIStatus
	switch {
	case errors.As(err, &answer):
		return err
	case r.sensitive():
		return apierrors.NewBadRequest("what is applied cannot be decoded, or does not fit the schema of the object")
	}
	return apierrors.NewBadRequest(err.Error())
}

// fields keeps the managedFields of what the request writes.
func (r *Request) fields() *managed.Fields { return managed.Of(r.kind, r.info.Subresource) }

// oldObject is what is there, nil if nothing is.
func (r *Request) oldObject() (*policy.Object, error) {
	if r.old == nil {
		return nil, nil
	}
	meta, content, err := r.decodeStored(r.old.JSON)
	if err != nil {
		return nil, err
	}
	return &policy.Object{Meta: meta, Content: content}, nil
}

// withoutOld is the body of an update without managedFields, if it has those of the object
// as it is: who sends back what they read need not have them decoded.
func (r *Request) withoutOld(text []byte) []byte {
	const key = `"managedFields"`
	if r.old == nil || r.body.mediaType == negotiate.YAML || bytes.Count(text, []byte(key)) != 1 {
		return text
	}
	rest, sent := metadata.Split(text)
	if _, have := metadata.Split(r.old.JSON); sent == "" || sent != have {
		return text
	}
	return rest
}

// patched is what a patch is applied to. managedFields are in it if the patch could have to
// do with them.
func (r *Request) patched() []byte {
	object := r.shown(r.old.JSON)
	if types.PatchType(r.body.mediaType) == types.JSONPatchType || bytes.Contains(r.body.raw, []byte("managedFields")) {
		return object
	}
	rest, _ := metadata.Split(object)
	return rest
}

// manage keeps the managedFields of what is written, other than by applying or as a Scale: those
// have done so already. sent are the managedFields that the client has.
func (r *Request) manage(o *object, sent []metav1.ManagedFieldsEntry) {
	if len(sent) == 0 && !r.kind.Kind.Builtin {
		sent = nil // upstream's definitions do not tell what is empty from what is not there
	}
	o.meta.ManagedFields = sent
	if r.applies() || r.scales() {
		return
	}
	var old *policy.Object
	if r.oldMeta != nil {
		old = &policy.Object{Meta: r.oldMeta, Content: r.oldContent}
	}
	r.unmanaged = r.fields().Update(old, &policy.Object{Meta: o.meta, Content: o.content}, r.body.options.fieldManager, r.received)
}

// keepTimes takes back the times of managedFields where they are all that has changed: that is
// no change. What is empty and what is not there are encoded alike, and are the same.
func (r *Request) keepTimes() {
	o := r.object
	if !managed.DifferInTimesOnly(o.meta.ManagedFields, r.oldMeta.ManagedFields) {
		return
	}
	meta := *o.meta
	meta.ManagedFields = r.oldMeta.ManagedFields
	if equality.Semantic.DeepEqual(&meta, r.oldMeta) && equalContent(o.content, r.oldContent, false) {
		o.meta.ManagedFields = r.oldMeta.ManagedFields
	}
}
