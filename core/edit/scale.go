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
	"stele.dev/stele/core/managed"
	"stele.dev/stele/core/metadata"
	"stele.dev/stele/core/patch"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// The subresource scale shows an object as an autoscaling/v1 Scale, and lets its replicas
// be set: a write is one of the object, but conditions and rules of admission see Scales.
// The rules are those of k8s.io/apiextensions-apiserver's ScaleREST.

// noReplicas stands in a Scale for a number of replicas that the object does not have. What
// is sent has to have one.
const noReplicas = math.MinInt32

// scaleObject is an object of the request's kind as conditions and rules see it: as typed
// clients of Kubernetes would write it, that is, without replicas where there are none.
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

func untypedScale(scale *autoscalingv1.Scale) (*policy.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(scale)
	if err != nil {
		return nil, err
	}
	return &policy.Object{Meta: &scale.ObjectMeta, Content: content}, nil
}

// parseScale decodes a Scale, as [Request.parse] does objects.
func (d *Draft) parseScale(text []byte, strict []error) (*autoscalingv1.Scale, error) {
	text, strict, err := d.toJSON(text, strict)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &content); err != nil {
		return nil, d.Undecodable("", err)
	}
	if err := d.checkType(content, text); err != nil {
		return nil, err
	}
	scale := &autoscalingv1.Scale{}
	found, err := kjson.UnmarshalStrict(text, scale)
	if err != nil {
		return nil, d.Undecodable(policy.Scale.GroupVersionKind().Kind, err)
	}
	return scale, d.strict(append(strict, found...))
}

// decodeScale makes an object with other replicas of a Scale that is sent.
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
	case d.applies():
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

// applyScale merges what is applied into the Scale of an object, and keeps the object's
// managedFields.
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

// manageScale keeps the managedFields of an object of which the Scale is written, other than
// by applying.
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

// patchScale applies the patch to the Scale of an object.
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

// isNamed refuses what is sent about another object than the request is about.
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

// isIdentified refuses an update of an object with another uid; "" is any.
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
