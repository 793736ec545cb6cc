package core

import (
	"encoding/json"
	"fmt"
	"math"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/managed"
	"stele.dev/stele/core/metadata"
	"stele.dev/stele/core/patch"
	"stele.dev/stele/policy"
)

// The subresource scale shows an object as an autoscaling/v1 Scale, and lets its replicas
// be set: a write is one of the object, but conditions and rules of admission see Scales.
// The rules are those of k8s.io/apiextensions-apiserver's ScaleREST.

// scales tells whether the request is about the scale of an object.
func (r *Request) scales() bool { return r.info.Subresource == "scale" }

// seen is the version as which the request sees objects.
func (r *Request) seen() *policy.Version { return r.kind.Seen(r.info.Subresource) }

// noReplicas stands in a Scale for a number of replicas that the object does not have. What
// is sent has to have one.
const noReplicas = math.MinInt32

// scaleOf shows an object as a Scale, and tells whether it has the number of replicas
// that are wanted.
func (r *Request) scaleOf(meta *metav1.ObjectMeta, content map[string]any) (*autoscalingv1.Scale, bool, error) {
	n, err := r.kind.Scale.Of(content)
	if err != nil {
		return nil, false, err
	}
	as := policy.Scale.GroupVersionKind()
	return &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: as.GroupVersion().String(), Kind: as.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion, CreationTimestamp: meta.CreationTimestamp,
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(n.Spec)},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(n.Status), Selector: n.Selector},
	}, n.HasSpec, nil
}

// view is an object as it is stored, as the request wants to see it.
func (r *Request) view(object []byte) ([]byte, error) {
	if !r.scales() {
		return r.shown(object), nil
	}
	meta, content, err := r.decodeStored(object)
	if err != nil {
		return nil, err
	}
	scale, has, err := r.scaleOf(meta, content)
	switch {
	case err != nil && r.write:
		return nil, apierrors.NewBadRequest(err.Error())
	case err != nil:
		return nil, apierrors.NewInternalError(err)
	case !has && !r.write:
		return nil, apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", r.kind.Scale.SpecReplicasPath)) // as upstream
	}
	return json.Marshal(scale)
}

// scaleObject is an object of the request's kind as conditions and rules see it: as typed
// clients of Kubernetes would write it, that is, without replicas where there are none.
func (r *Request) scaleObject(o *policy.Object) (*policy.Object, error) {
	if o == nil {
		return nil, nil
	}
	scale, _, err := r.scaleOf(o.Meta, o.Content)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
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
func (r *Request) parseScale(text []byte, strict []error) (*autoscalingv1.Scale, error) {
	text, strict, err := r.toJSON(text, strict)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &content); err != nil {
		return nil, r.undecodable("", err)
	}
	if err := r.checkType(content, text); err != nil {
		return nil, err
	}
	scale := &autoscalingv1.Scale{}
	found, err := kjson.UnmarshalStrict(text, scale)
	if err != nil {
		return nil, r.undecodable(policy.Scale.GroupVersionKind().Kind, err)
	}
	return scale, r.strict(append(strict, found...))
}

// decodeScale makes an object with other replicas of a Scale that is sent.
func (r *Request) decodeScale() error {
	var scale *autoscalingv1.Scale
	var err error
	if r.info.Verb == "update" {
		if scale, err = r.parseScale(r.body.raw, nil); err != nil {
			return err
		}
		if err := r.isNamed(&scale.ObjectMeta); err != nil {
			return err
		}
	}
	if r.old == nil {
		return apierrors.NewNotFound(r.resource(), r.key.Name)
	}
	if scale != nil {
		if err := r.isIdentified(scale.UID); err != nil {
			return err
		}
	}
	meta, content, err := r.decodeStored(r.old.JSON)
	if err != nil {
		return err
	}
	old, has, err := r.scaleOf(meta, content)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if !has {
		old.Spec.Replicas = noReplicas
	}
	switch {
	case r.applies():
		if scale, err = r.applyScale(meta, old); err != nil {
			return err
		}
	case scale == nil:
		if scale, err = r.patchScale(old); err != nil {
			return err
		}
		fallthrough
	default:
		if err := r.manageScale(meta, old, scale); err != nil {
			return err
		}
	}
	if scale.Spec.Replicas == noReplicas {
		return apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty", r.kind.Scale.SpecReplicasPath))
	}
	if err := r.kind.Scale.Set(content, int64(scale.Spec.Replicas)); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if scale.ResourceVersion != "" {
		meta.ResourceVersion = scale.ResourceVersion
	}
	return r.become(&object{meta: meta, content: content})
}

// applyScale merges what is applied into the Scale of an object, and keeps the object's
// managedFields.
func (r *Request) applyScale(meta *metav1.ObjectMeta, old *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
	if err := r.body.decodeApplied(); err != nil {
		return nil, r.unappliable(err)
	}
	is, err := untypedScale(old)
	if err != nil {
		return nil, err
	}
	merged, entries, err := managed.ScaleOf(r.kind).Apply(meta.ManagedFields, is, r.body.applied, r.body.options.fieldManager, r.body.options.force, r.received)
	if err != nil {
		return nil, r.unappliable(err)
	}
	if err := r.strictApplied(); err != nil {
		return nil, err
	}
	meta.ManagedFields = entries
	text, err := json.Marshal(merged.Content)
	if err != nil {
		return nil, err
	}
	scale := &autoscalingv1.Scale{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, scale); err != nil { // a number may be too large
		return nil, r.unappliable(err)
	}
	scale.ObjectMeta = *merged.Meta
	return scale, r.isNamed(merged.Meta)
}

// manageScale keeps the managedFields of an object of which the Scale is written, other than
// by applying.
func (r *Request) manageScale(meta *metav1.ObjectMeta, old, scale *autoscalingv1.Scale) error {
	is, err := untypedScale(old)
	if err != nil {
		return err
	}
	written, err := untypedScale(scale)
	if err != nil {
		return err
	}
	meta.ManagedFields, r.unmanaged = managed.ScaleOf(r.kind).Update(meta.ManagedFields, is, written, r.body.options.fieldManager, r.received)
	return nil
}

// patchScale applies the patch to the Scale of an object.
func (r *Request) patchScale(scale *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
	text, err := json.Marshal(scale)
	if err != nil {
		return nil, err
	}
	patched, strict, err := patch.Apply(r.kind.GroupVersionKind(), types.PatchType(r.body.mediaType), text, r.body.raw)
	if err != nil {
		return nil, err
	}
	r.body.patched = patched
	if scale, err = r.parseScale(patched, strict); err != nil {
		return nil, err
	}
	return scale, r.isNamed(&scale.ObjectMeta)
}

// isNamed refuses what is sent about another object than the request is about.
func (r *Request) isNamed(meta *metav1.ObjectMeta) error {
	err := metadata.CheckNamespace(meta, r.key.Namespace)
	if err == nil {
		err = metadata.CheckName(meta, r.key.Name)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// isIdentified refuses an update of an object with another uid; "" is any.
func (r *Request) isIdentified(uid types.UID) error {
	is := ""
	if r.old != nil {
		is = r.old.UID
	}
	if uid == "" || string(uid) == is {
		return nil
	}
	return apierrors.NewConflict(r.resource(), r.key.Name,
		//lint:ignore ST1005 it is upstream's text
		fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, is))
}
