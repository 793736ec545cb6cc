package core

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/canonical"
	"stele.dev/stele/core/metadata"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/typed"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/builtin"
	"stele.dev/stele/schemas/program"
)

// schema holds the object against its kind: metadata by upstream's rules, all else by
// the policy's. Everything that is wrong is said at once.
func (p *Pipeline) schema(ctx context.Context, r *Request) error {
	if r.law {
		return p.compilePolicy(ctx, r)
	}
	if r.object == nil {
		return nil // a delete
	}
	o, kind := r.object, r.kind.Kind
	if m := r.mistyped; m != nil {
		return apierrors.NewInvalid(m.kind, o.meta.Name, m.errs)
	}
	names := metadata.NamesOf(kind.Group, kind.Plural)
	var errs field.ErrorList
	if r.oldMeta == nil {
		errs = metadata.ValidateNew(o.meta, kind.Namespaced, names)
	} else {
		errs = metadata.ValidateUpdate(o.meta, r.oldMeta, kind.Namespaced, names)
	}
	if kind.Builtin && kind.Group == "" && kind.Plural != "events" {
		errs = append(errs, metadata.ValidateCoreFinalizers(o.meta, r.oldMeta)...)
	}
	var found field.ErrorList
	if r.oldMeta == nil || kind.Builtin { // of which upstream excuses nothing
		found = r.kind.Program.Validate(o.content)
	} else {
		found = r.kind.Program.ValidateUpdate(o.content, r.oldContent)
	}
	found = r.kind.Reword(ctx, found, o.content, r.oldContent, r.info.Subresource == "status")
	if kind.Builtin {
		if len(found) > 0 {
			if err := r.typeError(); err != nil {
				return err
			}
		}
		o.content["metadata"] = validated(o.meta)
		if kind.Face != nil {
			found = append(found, kind.Face.Validate(o.content, r.oldContent)...)
		} else {
			found = append(found, builtin.Validate(kind.Kind.Kind, o.content, r.oldContent)...)
		}
	}
	errs = append(errs, found...)
	errs = append(errs, r.changedNumbers()...)
	errs = append(errs, r.kind.Scale.Validate(o.content, r.info.Subresource == "status")...)
	errs = append(errs, r.schemaRules(ctx, errs)...)
	if program.Retryable(errs) {
		return status.Unavailable(errs.ToAggregate().Error())
	}
	if len(errs) > 0 {
		return status.Invalid(kind.Stored().Storage().GroupVersionKind().GroupKind(), r.key.Name, errs)
	}
	if !kind.Builtin {
		for _, w := range metadata.Warnings(o.meta, r.oldMeta) {
			r.warn(w)
		}
	}
	return nil
}

// validated is what rules of built-in kinds look at of the metadata.
func validated(meta *metav1.ObjectMeta) map[string]any {
	m := map[string]any{"name": meta.Name, "namespace": meta.Namespace}
	if len(meta.Annotations) > 0 {
		annotations := make(map[string]any, len(meta.Annotations))
		for k, v := range meta.Annotations {
			annotations[k] = v
		}
		m["annotations"] = annotations
	}
	if at := meta.DeletionTimestamp; at != nil {
		m["deletionTimestamp"] = at.UTC().Format(time.RFC3339)
	}
	return m
}

// schemaRules holds the object against the rules in CEL of its schema, if it is sound
// enough for them, as upstream does.
func (r *Request) schemaRules(ctx context.Context, errs field.ErrorList) field.ErrorList {
	for _, e := range errs {
		switch e.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			if r.kind.HasRules() {
				return field.ErrorList{field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
			}
		}
	}
	var old *policy.Object
	if r.oldMeta != nil {
		old = &policy.Object{Meta: r.oldMeta, Content: r.oldContent}
	}
	found, warnings := r.kind.ValidateRules(ctx, &policy.Object{Meta: r.object.meta, Content: r.object.content}, old)
	for _, w := range warnings {
		r.warn(w)
	}
	return found
}

// typeError is upstream's answer to a value in a built-in kind that it cannot even
// decode: one of the wrong type, a time or base64 that is none. nil if it can.
func (r *Request) typeError() error {
	gvk := r.kind.GroupVersionKind()
	text, err := canonical.Object(gvk.GroupVersion().String(), gvk.Kind, r.object.meta, r.object.content)
	if err != nil {
		return err
	}
	if err := typed.TypeError(gvk, text); err != nil {
		return r.undecodable(gvk.Kind, err)
	}
	return nil
}
