// Package validity decides whether an object may be written as it is: by the rules for metadata, by the schema and the
// CEL rules of its kind, and by the admission rules of a policy. The stages schema and validation ask it about
// requests, package plans about stored objects and recorded writes.
package validity

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/object/canonical"
	"stele.dev/stele/core/object/gotypes"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/layer"
	"stele.dev/stele/schemas/builtin"
	"stele.dev/stele/schemas/crd/definitions"
)

// Write is a write of an object that has been decoded and prepared. It is for one goroutine.
type Write struct {
	// Version is the version of the request's path.
	Version     *policy.Version
	Subresource string
	// Object is the object to store, Old the stored one; nil for a create.
	Object, Old *policy.Object
	// Found are errors that were found earlier.
	Found field.ErrorList
	// Warnings are those of CEL rules; Check adds them.
	Warnings []string
}

// TypeError reports that a value of a built-in kind does not decode into its Go type.
type TypeError struct{ Err error }

func (e *TypeError) Error() string { return e.Err.Error() }

// Prepare prunes the content of an object and fills in its defaults. old is the content of the stored object, nil for a
// create. It returns the fields that the schema does not have, and whether anything changed. An error means that CUE
// could not be asked.
func Prepare(v *policy.Version, content, old map[string]any, applied bool) (unknown []string, changed bool, err *field.Error) {
	return PrepareNoting(v, content, old, applied, nil)
}

// PrepareNoting is Prepare. It calls left with the path of each default that is left out, because CUE refuses it once it is written out.
func PrepareNoting(v *policy.Version, content, old map[string]any, applied bool, left func(path string)) (unknown []string, changed bool, err *field.Error) {
	adapted := false
	if v.Kind.Defines() {
		asked := runtime.DeepCopyJSON(content)
		unknown = definitions.Prepare(content)
		return unknown, !reflect.DeepEqual(asked, content), nil
	}
	if v.Kind.Brought != nil {
		asked := runtime.DeepCopyJSON(content)
		unknown = v.Kind.Brought.Prepare(content)
		return unknown, !reflect.DeepEqual(asked, content), nil
	}
	if v.Kind.Builtin {
		asked := runtime.DeepCopyJSON(content)
		builtin.Prepare(v.Kind.Kind.Kind, content, old)
		adapted = !reflect.DeepEqual(asked, content)
	}
	unknown, changed, err = v.Program.PrepareNoting(content, applied, left)
	return unknown, changed || adapted, err
}

// Check returns all errors of the write: of its metadata, its schema, its scale and the CEL rules of its kind. The error
// is a [*TypeError].
func (w *Write) Check(ctx context.Context) (field.ErrorList, error) {
	kind, o := w.Version.Kind, w.Object
	if kind.Defines() {
		return w.checkDefinition(ctx)
	}
	if kind.Brought != nil {
		return w.checkRules()
	}
	var oldMeta *metav1.ObjectMeta
	var oldContent map[string]any
	if w.Old != nil {
		oldMeta, oldContent = w.Old.Meta, w.Old.Content
	}
	names := metadata.NamesOf(kind.Group, kind.Plural)
	var errs field.ErrorList
	if w.Old == nil {
		errs = metadata.ValidateNew(o.Meta, kind.Namespaced, names)
	} else {
		errs = metadata.ValidateUpdate(o.Meta, oldMeta, kind.Namespaced, names)
	}
	if kind.Builtin && kind.Group == "" && kind.Plural != "events" {
		errs = append(errs, metadata.ValidateCoreFinalizers(o.Meta, oldMeta)...)
	}
	var found field.ErrorList
	if w.Old == nil || kind.Builtin { // upstream does not ratchet built-in kinds
		found = w.Version.Program.Validate(o.Content)
	} else {
		found = w.Version.Program.ValidateUpdate(o.Content, oldContent)
	}
	found = w.Version.Reword(ctx, found, o.Content, oldContent, w.Subresource == "status")
	if kind.Builtin {
		if len(found) > 0 {
			if err := w.typeError(); err != nil {
				return nil, err
			}
		}
		o.Content["metadata"] = validated(o.Meta)
		if kind.Resource() == "resourcequotas" {
			found = append(found, builtin.ValidateResourceQuota(o.Content, oldContent, kind.QuotaNames())...)
		} else if kind.Face != nil {
			found = append(found, kind.Face.Validate(o.Content, oldContent)...)
		} else {
			found = append(found, builtin.Validate(kind.Kind.Kind, o.Content, oldContent)...)
		}
	}
	errs = append(errs, found...)
	errs = append(errs, w.Found...)
	errs = append(errs, w.Version.Scale.Validate(o.Content, w.Subresource == "status")...)
	return append(errs, w.rules(ctx, errs)...), nil
}

// checkDefinition is Check for a CustomResourceDefinition: kube-apiserver's validation, and then what cannot be enforced here.
func (w *Write) checkDefinition(ctx context.Context) (field.ErrorList, error) {
	if err := w.typeError(); err != nil {
		return nil, err
	}
	of := &definitions.Written{Meta: w.Object.Meta, Content: w.Object.Content, Status: w.Subresource == "status"}
	if w.Old != nil {
		of.OldMeta, of.OldContent = w.Old.Meta, w.Old.Content
	}
	errs, warnings := definitions.Validate(ctx, of)
	errs = append(errs, ownAnnotations(w.Object.Meta)...)
	w.Warnings = append(w.Warnings, warnings...)
	if len(errs) > 0 || of.Status || w.Old != nil && reflect.DeepEqual(w.Object.Content["spec"], w.Old.Content["spec"]) {
		return append(errs, w.Found...), nil
	}
	d, err := definitions.Of(w.Object.Meta, w.Object.Content)
	if err != nil {
		return nil, err
	}
	errs, warnings = layer.CheckDefinition(d)
	w.Warnings = append(w.Warnings, warnings...)
	return append(errs, w.Found...), nil
}

// checkRules is Check for an object whose rules are in force: kube-apiserver's validation, and then what cannot be enforced here.
func (w *Write) checkRules() (field.ErrorList, error) {
	if err := w.typeError(); err != nil {
		return nil, err
	}
	kind, o := w.Version.Kind, w.Object
	var errs field.ErrorList
	var was map[string]any
	if w.Old == nil {
		errs = metadata.ValidateNew(o.Meta, kind.Namespaced, kind.Brought.Names)
	} else {
		errs, was = metadata.ValidateUpdate(o.Meta, w.Old.Meta, kind.Namespaced, kind.Brought.Names), w.Old.Content
	}
	errs = append(errs, ownAnnotations(o.Meta)...)
	if found := kind.Brought.Validate(o.Content, was); len(found) > 0 {
		return append(append(errs, found...), w.Found...), nil
	}
	found, err := layer.Check(kind.Brought, o.Content)
	return append(append(errs, found...), w.Found...), err
}

// rules evaluates the CEL rules of the schema. As in kube-apiserver, it skips them if earlier errors leave the object too
// incomplete, except for what the schema says of the object's name, which is no rule there.
func (w *Write) rules(ctx context.Context, errs field.ErrorList) field.ErrorList {
	for _, e := range errs {
		switch e.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			found, warnings := w.Version.ValidateNames(ctx, w.Object, w.Old)
			if w.Warnings = append(w.Warnings, warnings...); w.Version.HasRules() {
				found = append(found, field.Invalid(nil, nil, Unchecked))
			}
			return found
		}
	}
	found, warnings := w.Version.ValidateRules(ctx, w.Object, w.Old)
	w.Warnings = append(w.Warnings, warnings...)
	return found
}

// Unchecked is the text of the error which says that CEL rules were skipped because of other errors.
const Unchecked = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"

// typeError returns a [*TypeError] if a value of a built-in kind cannot be decoded into its Go type, for example a
// malformed time.
func (w *Write) typeError() error {
	gvk := w.Version.GroupVersionKind()
	text, err := canonical.Object(gvk.GroupVersion().String(), gvk.Kind, w.Object.Meta, w.Object.Content)
	if err != nil {
		return err
	}
	if err := gotypes.TypeError(gvk, text); err != nil {
		return &TypeError{err}
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

// ownAnnotations returns an error for each annotation that would show an object as one of the policy.
func ownAnnotations(meta *metav1.ObjectMeta) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(meta.Annotations)) {
		if strings.HasPrefix(name, policy.OwnAnnotations) {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(name), "only objects of the policy have it; remove it"))
		}
	}
	return errs
}
