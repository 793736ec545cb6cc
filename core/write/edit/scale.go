package edit

import (
	"encoding/json"
	"fmt"
	"math"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/object/patch"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/write/managed"
	"stele.dev/stele/policy"
)

// The subresource scale shows an object as an autoscaling/v1 Scale, and sets its replicas. A write changes the object, but
// conditions and admission rules see Scales. The rules are those of k8s.io/apiextensions-apiserver's ScaleREST.

// noReplicas stands in a Scale for the missing replicas of an object. A Scale that is written must have replicas.
const noReplicas = math.MinInt32

// scaleObject returns the Scale of an object, as conditions and admission rules see it.
func (d *Draft) scaleObject(o *policy.Object) (*policy.Object, error) {
	if o == nil {
		return nil, nil
	}
	scale, _, err := d.ScaleOf(o.Meta, o.Content)
	if err != nil {
		return nil, status.BadRequest(err.Error())
	}
	return untypedScale(scale)
}

// untypedScale converts a Scale to the form that conditions and admission rules read.
func untypedScale(scale *autoscalingv1.Scale) (*policy.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(scale)
	if err != nil {
		return nil, err
	}
	return &policy.Object{Meta: &scale.ObjectMeta, Content: content}, nil
}

// parseScale decodes a Scale, as parse decodes objects.
func (d *Draft) parseScale(text []byte, strict []error) (*autoscalingv1.Scale, error) {
	text, strict, err := d.toJSON(text, strict)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &content); err != nil {
		return nil, d.Undecodable("", err)
	}
	if _, err := d.checkType(content, text); err != nil { // a Scale is built in, so no other error is left for later
		return nil, err
	}
	scale := &autoscalingv1.Scale{}
	found, err := kjson.UnmarshalStrict(text, scale)
	if err != nil {
		return nil, d.Undecodable(policy.Scale.GroupVersionKind().Kind, err)
	}
	return scale, d.strict(append(strict, found...))
}

// decodeScale makes the object that a write of its Scale asks for: the stored object with other replicas.
func (d *Draft) decodeScale() error {
	var scale *autoscalingv1.Scale
	var err error
	if d.Info.Verb == "update" {
		if scale, err = d.parseScale(d.Body.Raw, nil); err != nil {
			return err
		}
		if err := d.isNamed(&scale.ObjectMeta); err != nil {
			return err
		}
	}
	if d.Old == nil {
		return status.NotFound(d.Resource(), d.Key.Name)
	}
	if scale != nil {
		if err := d.isIdentified(scale.UID); err != nil {
			return err
		}
	}
	meta, content, err := d.DecodeStored(d.Old.JSON)
	if err != nil {
		return err
	}
	old, has, err := d.ScaleOf(meta, content)
	if err != nil {
		return status.BadRequest(err.Error())
	}
	if !has {
		old.Spec.Replicas = noReplicas
	}
	switch {
	case d.Applies():
		if scale, err = d.applyScale(meta, old); err != nil {
			return err
		}
	case scale == nil:
		if scale, err = d.patchScale(old); err != nil {
			return err
		}
		fallthrough
	default:
		if err := d.manageScale(meta, old, scale); err != nil {
			return err
		}
	}
	if scale.Spec.Replicas == noReplicas {
		return status.BadRequestf("the spec replicas field %q cannot be empty", d.Kind.Scale.SpecReplicasPath)
	}
	if err := d.Kind.Scale.Set(content, int64(scale.Spec.Replicas)); err != nil {
		return status.BadRequest(err.Error())
	}
	if scale.ResourceVersion != "" {
		meta.ResourceVersion = scale.ResourceVersion
	}
	return d.become(&Object{Meta: meta, Content: content})
}

// applyScale applies a configuration to the Scale of an object, and updates the object's managedFields.
func (d *Draft) applyScale(meta *metav1.ObjectMeta, old *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
	if err := d.decodeApplied(); err != nil {
		return nil, d.unappliable(err)
	}
	is, err := untypedScale(old)
	if err != nil {
		return nil, err
	}
	merged, entries, err := managed.ScaleOf(d.Kind).Apply(meta.ManagedFields, is, d.applied, d.Body.Options.FieldManager, d.Body.Options.Force, d.Received)
	if err != nil {
		return nil, d.unappliable(err)
	}
	if err := d.strictApplied(); err != nil {
		return nil, err
	}
	meta.ManagedFields = entries
	text, err := json.Marshal(merged.Content)
	if err != nil {
		return nil, err
	}
	scale := &autoscalingv1.Scale{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, scale); err != nil { // a number may be too large
		return nil, d.unappliable(err)
	}
	scale.ObjectMeta = *merged.Meta
	return scale, d.isNamed(merged.Meta)
}

// manageScale updates the managedFields of an object whose Scale is updated or patched.
func (d *Draft) manageScale(meta *metav1.ObjectMeta, old, scale *autoscalingv1.Scale) error {
	is, err := untypedScale(old)
	if err != nil {
		return err
	}
	written, err := untypedScale(scale)
	if err != nil {
		return err
	}
	meta.ManagedFields, d.Unmanaged = managed.ScaleOf(d.Kind).Update(meta.ManagedFields, is, written, d.Body.Options.FieldManager, d.Received)
	return nil
}

func (d *Draft) patchScale(scale *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
	text, err := json.Marshal(scale)
	if err != nil {
		return nil, err
	}
	patched, strict, err := patch.Apply(d.Kind.GroupVersionKind(), types.PatchType(d.Body.MediaType), text, d.Body.Raw)
	if err != nil {
		return nil, err
	}
	d.patchedBody = patched
	if scale, err = d.parseScale(patched, strict); err != nil {
		return nil, err
	}
	return scale, d.isNamed(&scale.ObjectMeta)
}

// isNamed returns an error if the object in the body has another name or namespace than the path.
func (d *Draft) isNamed(meta *metav1.ObjectMeta) error {
	err := metadata.CheckNamespace(meta, d.Key.Namespace)
	if err == nil {
		err = metadata.CheckName(meta, d.Key.Name)
	}
	if err != nil {
		return status.BadRequest(err.Error())
	}
	return nil
}

// isIdentified returns an error if the body has another uid than the stored object. A body without a uid matches.
func (d *Draft) isIdentified(uid types.UID) error {
	is := ""
	if d.Old != nil {
		is = d.Old.UID
	}
	if uid == "" || string(uid) == is {
		return nil
	}
	return status.Conflict(d.Resource(), d.Key.Name,
		//lint:ignore ST1005 it is upstream's text
		fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, is))
}
