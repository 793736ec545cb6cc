package core

import (
	"context"
	"time"

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

// schema validates the object: its metadata by Kubernetes' rules, and the rest by the schema of its kind. It reports
// all errors at once.
func (p *Pipeline) schema(ctx context.Context, r *Request) error {
	if r.write != nil {
		return r.write.Validate(ctx)
	}
	if r.Object == nil {
		return nil // a delete
	}
	o, kind := r.Object, r.Kind.Kind
	if m := r.Mistyped; m != nil {
		return status.Invalid(m.Kind, o.Meta.Name, m.Errs)
	}
	names := metadata.NamesOf(kind.Group, kind.Plural)
	var errs field.ErrorList
	if r.OldMeta == nil {
		errs = metadata.ValidateNew(o.Meta, kind.Namespaced, names)
	} else {
		errs = metadata.ValidateUpdate(o.Meta, r.OldMeta, kind.Namespaced, names)
	}
	if kind.Builtin && kind.Group == "" && kind.Plural != "events" {
		errs = append(errs, metadata.ValidateCoreFinalizers(o.Meta, r.OldMeta)...)
	}
	var found field.ErrorList
	if r.OldMeta == nil || kind.Builtin { // upstream does not ratchet built-in kinds
		found = r.Kind.Program.Validate(o.Content)
	} else {
		found = r.Kind.Program.ValidateUpdate(o.Content, r.OldContent)
	}
	found = r.Kind.Reword(ctx, found, o.Content, r.OldContent, r.Info.Subresource == "status")
	if kind.Builtin {
		if len(found) > 0 {
			if err := r.typeError(); err != nil {
				return err
			}
		}
		o.Content["metadata"] = validated(o.Meta)
		if kind.Face != nil {
			found = append(found, kind.Face.Validate(o.Content, r.OldContent)...)
		} else {
			found = append(found, builtin.Validate(kind.Kind.Kind, o.Content, r.OldContent)...)
		}
	}
	errs = append(errs, found...)
	errs = append(errs, r.ChangedNumbers()...)
	errs = append(errs, r.Kind.Scale.Validate(o.Content, r.Info.Subresource == "status")...)
	errs = append(errs, r.schemaRules(ctx, errs)...)
	if program.Retryable(errs) {
		return status.Unavailable(errs.ToAggregate().Error())
	}
	if len(errs) > 0 {
		return status.Invalid(kind.Stored().Storage().GroupVersionKind().GroupKind(), r.Key.Name, errs)
	}
	if !kind.Builtin {
		for _, w := range metadata.Warnings(o.Meta, r.OldMeta) {
			r.Warn(w)
		}
	}
	return nil
}

// validated returns the metadata that the rules of built-in kinds read.
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

// schemaRules evaluates the CEL rules of the schema. As in kube-apiserver, it skips them if earlier errors leave the
// object too incomplete.
func (r *Request) schemaRules(ctx context.Context, errs field.ErrorList) field.ErrorList {
	for _, e := range errs {
		switch e.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			if r.Kind.HasRules() {
				return field.ErrorList{field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
			}
		}
	}
	var old *policy.Object
	if r.OldMeta != nil {
		old = &policy.Object{Meta: r.OldMeta, Content: r.OldContent}
	}
	if consider := r.trace.OfKinds(); consider != nil {
		ctx = policy.Considering(ctx, consider)
	}
	found, warnings := r.Kind.ValidateRules(ctx, &policy.Object{Meta: r.Object.Meta, Content: r.Object.Content}, old)
	for _, w := range warnings {
		r.Warn(w)
	}
	return found
}

// typeError returns kube-apiserver's error if a value of a built-in kind cannot be decoded into its Go type, for
// example a malformed time.
func (r *Request) typeError() error {
	gvk := r.Kind.GroupVersionKind()
	text, err := canonical.Object(gvk.GroupVersion().String(), gvk.Kind, r.Object.Meta, r.Object.Content)
	if err != nil {
		return err
	}
	if err := typed.TypeError(gvk, text); err != nil {
		return r.Undecodable(gvk.Kind, err)
	}
	return nil
}
