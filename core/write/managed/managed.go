// Package managed maintains metadata.managedFields, which records who set which field of an object (KEP-555), and
// implements server-side apply. The rules are those of k8s.io/apimachinery/pkg/util/managedfields, as kube-apiserver
// applies them to custom resources. The common cases are computed here without that library, with the same result.
package managed

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"stele.dev/stele/policy"
)

// Fields maintains the managedFields of the objects of one version of a kind, for writes to the object or to one of
// its subresources. It is safe for concurrent use. For the subresource scale, see [Scale].
type Fields struct {
	kind        schema.GroupVersionKind
	apiVersion  string
	subresource string
	forms       map[string]form // how objects look, by apiVersion
	merge       typed.ParseableType
	reset       []string       // top-level fields that this endpoint does not write
	resets      []string       // apiVersions in which managers do not get these fields
	zero        map[string]any // an object before any field is set
	manager     *managedfields.FieldManager
	known       sets
}

// Of returns the Fields of a version, for writes to a subresource, or to the objects if it is "". It is made once.
func Of(v *policy.Version, subresource string) *Fields {
	return v.Keep(kept(subresource), func() any { return newFields(v, subresource) }).(*Fields)
}

type kept string

// form is how objects look in one version of managed fields.
type form struct {
	of    *policy.Kind
	as    *policy.Version
	merge typed.ParseableType
}

func newFields(v *policy.Version, subresource string) *Fields {
	f := &Fields{kind: v.GroupVersionKind(), subresource: subresource, merge: mergeType(v), zero: zero(v), forms: map[string]form{}}
	for _, k := range append([]*policy.Kind{v.Kind}, v.Kind.Equivalent...) {
		for _, other := range k.Versions {
			f.forms[other.GroupVersionKind().GroupVersion().String()] = form{k, other, f.merge}
			if k != v.Kind || v.From(other.Name) {
				f.forms[other.GroupVersionKind().GroupVersion().String()] = form{k, other, mergeType(other)}
			}
			if f.leaves(v, other) {
				f.resets = append(f.resets, other.GroupVersionKind().GroupVersion().String())
			}
		}
	}
	switch {
	case subresource == "finalize": // of namespaces, whose spec has the finalizers
		f.reset = []string{"status"}
	case subresource != "":
		f.reset = []string{"metadata", "spec"}
	case v.Status:
		f.reset = []string{"status"}
	}
	return f.ready()
}

// leaves reports whether the ignored fields of this endpoint are also removed from managers of another version. For
// custom kinds the rule is upstream's: on the status, in each version that has one; on the object, only in the version
// of the write.
func (f *Fields) leaves(v, other *policy.Version) bool {
	switch {
	case v.Kind.Builtin:
		return true
	case f.subresource != "":
		return other.Status
	}
	return other == v
}

// ready creates the library's part.
func (f *Fields) ready() *Fields {
	f.apiVersion = f.kind.GroupVersion().String()
	excluded := &fieldpath.Set{}
	for _, name := range f.reset {
		excluded.Insert(fieldpath.MakePathOrDie(name))
	}
	reset := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, apiVersion := range f.resets {
		if len(f.reset) > 0 {
			reset[fieldpath.APIVersion(apiVersion)] = excluded
		}
	}
	var err error
	f.manager, err = managedfields.NewDefaultCRDFieldManager(converter{f}, converter{f}, converter{f}, converter{f}, f.kind, f.kind.GroupVersion(), f.subresource, fieldpath.NewExcludeFilterSetMap(reset))
	if err != nil {
		panic(err) // fails only without a converter
	}
	return f
}

// Update sets the managedFields of an object that a manager wrote. old is nil for a new object. The managedFields in
// updated are those that the client sent; as in kube-apiserver, they count for writes to the object itself. On an
// error they are reset to those of the old object.
func (f *Fields) Update(old, updated *policy.Object, manager string, at time.Time) error {
	if f.quick(old, updated, manager, at) {
		return nil
	}
	return f.update(old, updated, manager, at)
}

// update is Update by the library.
func (f *Fields) update(old, updated *policy.Object, manager string, at time.Time) error {
	live := f.live(old)
	written := f.object(updated)
	known := times(live.meta.ManagedFields, written.meta.ManagedFields)
	result, err := f.manager.Update(live, written, manager)
	if err != nil {
		updated.Meta.ManagedFields = live.meta.ManagedFields
		return err
	}
	updated.Meta.ManagedFields = stamp(result.(*object).meta.ManagedFields, known, at)
	return nil
}

// Apply merges the fields that a manager applies into an object; old is nil if it does not exist. The result shares
// nothing with either. The error is a conflict with other managers (409), unless forced, or tells what is invalid
// (400).
func (f *Fields) Apply(old *policy.Object, applied map[string]any, manager string, force bool, at time.Time) (*policy.Object, error) {
	if o, ok := f.quickApply(old, applied, manager, force, at); ok {
		return o, nil
	}
	return f.apply(old, applied, manager, force, at)
}

// apply is Apply by the library.
func (f *Fields) apply(old *policy.Object, applied map[string]any, manager string, force bool, at time.Time) (*policy.Object, error) {
	live := f.live(old)
	known := times(live.meta.ManagedFields)
	result, err := f.manager.Apply(live, &unstructured.Unstructured{Object: applied}, manager, force)
	if err != nil {
		return nil, err
	}
	o := result.(*object)
	o.meta.ManagedFields = stamp(o.meta.ManagedFields, known, at)
	return &policy.Object{Meta: o.meta, Content: runtime.DeepCopyJSON(o.content)}, nil
}

// live returns the old object, or the zero object if there is none.
func (f *Fields) live(old *policy.Object) *object {
	if old == nil {
		return f.empty()
	}
	return f.object(old)
}

func (f *Fields) object(o *policy.Object) *object {
	meta := *o.Meta
	return &object{apiVersion: f.apiVersion, kind: f.kind.Kind, meta: &meta, content: o.Content}
}

func (f *Fields) empty() *object {
	return &object{apiVersion: f.apiVersion, kind: f.kind.Kind, meta: &metav1.ObjectMeta{}, content: f.zero}
}

// times returns the times of entries, which the library keeps.
func times(lists ...[]metav1.ManagedFieldsEntry) map[*metav1.Time]bool {
	known := map[*metav1.Time]bool{nil: true}
	for _, entries := range lists {
		for i := range entries {
			known[entries[i].Time] = true
		}
	}
	return known
}

// stamp replaces times that the library took from the clock by the time of the request. The result of a request must
// not depend on when, and how often, it is computed.
func stamp(entries []metav1.ManagedFieldsEntry, known map[*metav1.Time]bool, at time.Time) []metav1.ManagedFieldsEntry {
	now := toSeconds(at)
	stamped := false
	for i := range entries {
		if !known[entries[i].Time] {
			entries[i].Time, stamped = &now, true
		}
	}
	if stamped {
		sortEntries(entries)
	}
	return entries
}

// sortEntries sorts entries in kube-apiserver's order.
func sortEntries(entries []metav1.ManagedFieldsEntry) {
	seconds := func(t *metav1.Time) int64 {
		if t == nil {
			return 0
		}
		return t.Unix()
	}
	slices.SortFunc(entries, func(a, b metav1.ManagedFieldsEntry) int {
		if c := strings.Compare(string(a.Operation), string(b.Operation)); c != 0 {
			return c
		}
		if a, b := seconds(a.Time), seconds(b.Time); a != b {
			if a < b {
				return -1
			}
			return 1
		}
		if c := strings.Compare(a.Manager, b.Manager); c != 0 {
			return c
		}
		if c := strings.Compare(a.APIVersion, b.APIVersion); c != 0 {
			return c
		}
		return strings.Compare(a.Subresource, b.Subresource)
	})
}

// DifferInTimesOnly reports whether entries differ, but only in their times.
func DifferInTimesOnly(a, b []metav1.ManagedFieldsEntry) bool {
	if len(a) != len(b) {
		return false
	}
	differ := false
	for i := range a {
		a, b := &a[i], &b[i]
		if a.Manager != b.Manager || a.Operation != b.Operation || a.APIVersion != b.APIVersion || a.FieldsType != b.FieldsType ||
			a.Subresource != b.Subresource || a.FieldsV1.GetRawString() != b.FieldsV1.GetRawString() {
			return false
		}
		differ = differ || !a.Time.Equal(b.Time)
	}
	return differ
}

// object is an object in one version, for the library. The library handles its metadata separately.
type object struct {
	apiVersion, kind string
	meta             *metav1.ObjectMeta
	content          map[string]any
}

func (o *object) GetObjectKind() schema.ObjectKind { return o }
func (o *object) GetObjectMeta() metav1.Object     { return o.meta }
func (o *object) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.apiVersion, o.kind)
}
func (o *object) SetGroupVersionKind(gvk schema.GroupVersionKind) {
	o.apiVersion, o.kind = gvk.ToAPIVersionAndKind()
}

func (o *object) DeepCopyObject() runtime.Object {
	return &object{apiVersion: o.apiVersion, kind: o.kind, meta: o.meta.DeepCopy(), content: runtime.DeepCopyJSON(o.content)}
}

// unstructured returns the whole object without managedFields, which have no manager.
func (o *object) unstructured() (map[string]any, error) {
	whole := make(map[string]any, len(o.content)+3)
	for name, value := range o.content {
		whole[name] = value
	}
	meta := *o.meta
	meta.ManagedFields = nil
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&meta)
	whole["apiVersion"], whole["kind"], whole["metadata"] = o.apiVersion, o.kind, fields
	return whole, err
}

// converter implements what the library needs of a kind.
type converter struct{ *Fields }

func (c converter) ObjectToTyped(o runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	switch o := o.(type) {
	case *object:
		whole, err := o.unstructured()
		if err != nil {
			return nil, err
		}
		return c.forms[o.apiVersion].merge.FromUnstructured(whole, options...)
	case *unstructured.Unstructured:
		return c.merge.FromUnstructured(o.Object, options...)
	}
	return nil, fmt.Errorf("unexpected %T", o)
}

func (c converter) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	whole, ok := v.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, errors.New("the result is no object")
	}
	o := &object{meta: &metav1.ObjectMeta{}, content: make(map[string]any, len(whole))}
	for name, value := range whole {
		switch name {
		case "apiVersion":
			o.apiVersion, _ = value.(string)
		case "kind":
			o.kind, _ = value.(string)
		case "metadata":
			fields, _ := value.(map[string]any)
			if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, o.meta) == nil {
				continue
			}
			// As in kube-apiserver, an invalid time is ignored.
			meta, found, _, err := objectmeta.GetObjectMetaWithOptions(whole, objectmeta.ObjectMetaOptions{DropMalformedFields: true})
			if err != nil {
				return nil, err
			}
			if found {
				o.meta = meta
			}
		default:
			o.content[name] = value
		}
	}
	return o, nil
}

func (c converter) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	o, ok := in.(*object)
	if !ok {
		return nil, fmt.Errorf("unexpected %T", in)
	}
	version, ok := target.(schema.GroupVersion)
	from, to := c.forms[o.apiVersion], c.forms[version.String()]
	if !ok || to.of == nil {
		// With this error, the library removes managers of a version that no longer exists.
		return nil, runtime.NewNotRegisteredGVKErrForTarget("stele", version.WithKind(o.kind), target)
	}
	converted := *o
	converted.apiVersion = version.String()
	switch {
	case from.of != to.of:
		converted.content = from.of.Convert(o.content, to.of)
	case from.as != nil && to.as != nil:
		var err error
		if converted.content, err = from.as.Converted(o.content, to.as); err != nil {
			return nil, err
		}
	}
	return &converted, nil
}

func (c converter) Convert(_, _, _ any) error { return errors.New("objects are converted to versions") }

func (c converter) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// Default does nothing: defaults are filled in after an apply, and have no manager.
func (c converter) Default(runtime.Object) {}

func (c converter) New(schema.GroupVersionKind) (runtime.Object, error) { return c.empty(), nil }
