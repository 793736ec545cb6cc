package edit

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/write/validity"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/program"
)

// Replace makes o the object of the write. o is what mutating admission made of the object that [Draft.Objects] returned,
// and is not used afterwards. As in kube-apiserver, what the write cannot change stays as it is, fields that the schema
// does not have are dropped, and defaults are filled in. The error is an invalid field, such as another name.
func (d *Draft) Replace(o *policy.Object) error {
	is := d.Object
	if o.Meta.Namespace == "" { // as in kube-apiserver, which fills it in after admission
		o.Meta.Namespace = is.Meta.Namespace
	}
	if errs := sameIdentity(o.Meta, is.Meta); len(errs) > 0 {
		return status.Invalid(d.Seen().GroupVersionKind().GroupKind(), is.Meta.Name, errs)
	}
	next, err := d.allowed(o)
	if err != nil {
		return err
	}
	next.Text, next.Adapted = is.Text, true
	defer d.KeepFinalizers(next.Content)()
	if _, _, err := validity.Prepare(d.Kind, next.Content, d.OldContent, d.Applies()); err != nil {
		errs := field.ErrorList{err}
		if program.Retryable(errs) {
			return status.Unavailable(err.Error())
		}
		return status.Invalid(d.Kind.GroupVersionKind().GroupKind(), is.Meta.Name, errs)
	}
	d.keepDefinitionStatus(next.Content)
	d.Object = next
	return nil
}

// sameIdentity returns the fields that identify an object and that differ.
func sameIdentity(meta, is *metav1.ObjectMeta) (errs field.ErrorList) {
	at := field.NewPath("metadata")
	if meta.Name != is.Name {
		errs = append(errs, field.Invalid(at.Child("name"), meta.Name, "admission cannot change the name"))
	}
	if meta.Namespace != is.Namespace {
		errs = append(errs, field.Invalid(at.Child("namespace"), meta.Namespace, "admission cannot change the namespace"))
	}
	return errs
}

// allowed returns the draft's object with those changes of o that the write may make.
func (d *Draft) allowed(o *policy.Object) (*Object, error) {
	is := d.Object
	switch {
	case d.Scales():
		content := runtime.DeepCopyJSON(is.Content)
		spec, _ := o.Content["spec"].(map[string]any)
		replicas, ok := spec["replicas"].(int64)
		if !ok {
			return nil, status.BadRequestf("the spec replicas field %q cannot be empty", d.Kind.Scale.SpecReplicasPath)
		}
		if err := d.Kind.Scale.Set(content, replicas); err != nil {
			return nil, status.BadRequest(err.Error())
		}
		return &Object{Meta: is.Meta, Content: content}, nil
	case d.Info.Subresource == "status":
		content := maps.Clone(is.Content)
		value, has := o.Content["status"]
		setOrDelete(content, "status", value, has)
		return &Object{Meta: is.Meta, Content: content}, nil
	}
	if d.Kind.Status {
		value, has := is.Content["status"]
		setOrDelete(o.Content, "status", value, has)
	}
	if d.Resource() == commit.Namespaces && d.Info.Subresource != call.Finalize {
		value, has := is.Content["spec"]
		setOrDelete(o.Content, "spec", value, has)
	}
	for _, key := range []string{"apiVersion", "kind"} {
		value, has := is.Content[key]
		setOrDelete(o.Content, key, value, has)
	}
	metadata.KeepSystemFields(o.Meta, is.Meta)
	d.dropDuplicateOwners(o.Meta)
	d.labelNamespace(o.Meta)
	return &Object{Meta: o.Meta, Content: o.Content}, nil
}
