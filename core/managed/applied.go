package managed

import (
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"stele.dev/stele/policy"
)

// lastApplied is kept by the library as well, for kubectl.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// quickApply does what Apply does for what is not there, and for who applies the fields that
// they applied before, if nobody else has one whose value changes. It reports whether it did.
func (f *Fields) quickApply(old *policy.Object, applied map[string]any, manager string, at time.Time) (*policy.Object, bool) {
	switch {
	case applied["apiVersion"] != f.apiVersion || applied["kind"] != f.kind.Kind:
		return nil, false
	case old == nil:
		return f.quickMake(applied, manager, at)
	case manager == "kubectl" && old.Meta.Annotations[lastApplied] != "":
		return nil, false
	}
	live := old.Meta.ManagedFields
	own := slices.IndexFunc(live, func(e metav1.ManagedFieldsEntry) bool {
		return e.Operation == metav1.ManagedFieldsOperationApply && e.Manager == manager && e.Subresource == f.subresource
	})
	if own < 0 {
		return nil, false
	}
	others := make([]*fieldpath.Set, 0, len(live))
	for i := range live {
		set := f.known.of(f, &live[i])
		if live[i].APIVersion != f.apiVersion || set == nil {
			return nil, false
		}
		if i != own {
			others = append(others, set)
		}
	}
	root, ok := f.merge.Schema.Resolve(f.merge.TypeRef)
	if !ok || root.Map == nil {
		return nil, false
	}
	w := writer{schema: f.merge.Schema, applied: true}
	fields, ok := w.document(make([]byte, 0, 512), root.Map, f, applied, old.Meta)
	if !ok || string(fields) != live[own].FieldsV1.GetRawString() {
		return nil, false
	}
	merged := &policy.Object{Meta: old.Meta.DeepCopy(), Content: runtime.DeepCopyJSON(old.Content)}
	o := overlay{schema: f.merge.Schema}
	for name, value := range applied {
		if name == "apiVersion" || name == "kind" || name == "metadata" {
			continue
		}
		if !o.field(root.Map, merged.Content, name, value) {
			return nil, false
		}
	}
	for _, path := range o.modified {
		for _, set := range others {
			if set.Has(path) {
				return nil, false
			}
		}
	}
	if len(o.modified) > 0 {
		now := second(at)
		merged.Meta.ManagedFields[own].Time = &now
		sortEntries(merged.Meta.ManagedFields)
	}
	return merged, true
}

// quickMake makes a new object of what is applied.
func (f *Fields) quickMake(applied map[string]any, manager string, at time.Time) (*policy.Object, bool) {
	root, ok := f.merge.Schema.Resolve(f.merge.TypeRef)
	if !ok || root.Map == nil || len(f.zero) > 0 {
		return nil, false
	}
	fields, ok := applied["metadata"].(map[string]any)
	if !ok {
		return nil, false
	}
	meta := &metav1.ObjectMeta{}
	meta.Name, _ = fields["name"].(string)
	meta.Namespace, _ = fields["namespace"].(string)
	meta.Labels, meta.Annotations = texts(fields["labels"]), texts(fields["annotations"])
	if meta.Annotations[lastApplied] != "" {
		return nil, false
	}
	w := writer{schema: f.merge.Schema, applied: true}
	set, ok := w.document(make([]byte, 0, 512), root.Map, f, applied, meta)
	if !ok || string(set) == "{}" {
		return nil, false
	}
	now := second(at)
	e := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: f.apiVersion, Time: &now,
		FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{}, Subresource: f.subresource,
	}
	e.FieldsV1.SetRawBytes(set)
	meta.ManagedFields = []metav1.ManagedFieldsEntry{e}
	content := make(map[string]any, len(applied))
	for name, value := range applied {
		if name != "apiVersion" && name != "kind" && name != "metadata" {
			content[name] = runtime.DeepCopyJSONValue(value)
		}
	}
	return &policy.Object{Meta: meta, Content: content}, true
}

// texts are the strings in a map.
func texts(v any) map[string]string {
	is, _ := v.(map[string]any)
	if len(is) == 0 {
		return nil
	}
	texts := make(map[string]string, len(is))
	for key, value := range is {
		if text, ok := value.(string); ok {
			texts[key] = text
		}
	}
	return texts
}

// document writes the set of the fields that are applied. Of metadata it takes what has to
// be, and labels and annotations that are what they were.
func (w *writer) document(b []byte, root *smd.Map, f *Fields, applied map[string]any, meta *metav1.ObjectMeta) ([]byte, bool) {
	names := make([]string, 0, len(applied))
	for name := range applied {
		if name != "apiVersion" && name != "kind" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	b = append(b, '{')
	for _, name := range names {
		of, ok := typeOf(root, name)
		if !ok {
			return nil, false
		}
		if name == "metadata" {
			if b, ok = w.appliedMetadata(b, applied[name], meta, f.subresource); !ok {
				return nil, false
			}
			continue
		}
		if slices.Contains(f.reset, name) {
			return nil, false
		}
		if b, ok = field(b, name); !ok {
			return nil, false
		}
		if b, ok = w.value(b, of, applied[name], false); !ok {
			return nil, false
		}
	}
	return append(b, '}'), true
}

func (w *writer) appliedMetadata(b []byte, applied any, meta *metav1.ObjectMeta, subresource string) ([]byte, bool) {
	fields, ok := applied.(map[string]any)
	if !ok {
		return nil, false
	}
	maps := map[string]map[string]string{}
	for name, value := range fields {
		switch name {
		case "name":
			ok = meta.Name != "" && value == meta.Name
		case "namespace":
			ok = meta.Namespace != "" && value == meta.Namespace
		case "labels":
			maps[name], ok = asBefore(value, meta.Labels)
		case "annotations":
			maps[name], ok = asBefore(value, meta.Annotations)
		default:
			ok = false
		}
		if !ok {
			return nil, false
		}
	}
	if len(maps) == 0 {
		return b, true
	}
	if subresource != "" {
		return nil, false
	}
	b, _ = field(b, "metadata")
	b = append(b, '{')
	for _, name := range []string{"annotations", "labels"} {
		if b, ok = w.texts(b, name, maps[name]); !ok {
			return nil, false
		}
	}
	return append(b, '}'), true
}

// asBefore is a map of texts that are all what they were.
func asBefore(v any, was map[string]string) (map[string]string, bool) {
	raw, _ := v.(map[string]any)
	is := texts(v)
	if len(is) == 0 || len(is) != len(raw) {
		return nil, false
	}
	for key, text := range is {
		if before, had := was[key]; !had || before != text {
			return nil, false
		}
	}
	return is, true
}

// overlay sets values of an object, and remembers where they change.
type overlay struct {
	schema   *smd.Schema
	path     fieldpath.Path
	modified []fieldpath.Path
}

// field sets a field to a value that is applied, if it is there.
func (o *overlay) field(t *smd.Map, into map[string]any, name string, value any) bool {
	was, had := into[name]
	of, ok := typeOf(t, name)
	if !had || !ok {
		return false
	}
	o.path = append(o.path, fieldpath.PathElement{FieldName: &name})
	defer func() { o.path = o.path[:len(o.path)-1] }()
	set := func(value any) { into[name] = value }
	return o.value(of, was, value, set)
}

func (o *overlay) value(of smd.TypeRef, was, is any, set func(any)) bool {
	atom, ok := o.schema.Resolve(of)
	if !ok {
		return false
	}
	switch v := is.(type) {
	case map[string]any:
		before, ok := was.(map[string]any)
		if !ok || atom.Map == nil {
			return false
		}
		if atom.Map.ElementRelationship == smd.Atomic {
			return o.leaf(was, is, set)
		}
		if len(v) == 0 {
			return len(before) == 0
		}
		for name, value := range v {
			if !o.field(atom.Map, before, name, value) {
				return false
			}
		}
		return true
	case []any:
		before, ok := was.([]any)
		if !ok || atom.List == nil {
			return false
		}
		if atom.List.ElementRelationship == smd.Atomic {
			return o.leaf(was, is, set)
		}
		if len(atom.List.Keys) == 0 {
			return reflect.DeepEqual(was, is)
		}
		return o.items(atom.List, before, v)
	}
	return scalar(was) && scalar(is) && o.leaf(was, is, set)
}

// items applies to the items of a list, if they are all of them, in their order.
func (o *overlay) items(t *smd.List, into, applied []any) bool {
	before, ok := keysOf(t, into)
	if !ok || len(into) != len(applied) {
		return false
	}
	after, ok := keysOf(t, applied)
	if !ok {
		return false
	}
	for i := range applied {
		if !slices.Equal(before[i].values, after[i].values) {
			return false
		}
		o.path = append(o.path, fieldpath.PathElement{Key: after[i].list(t.Keys)})
		ok := o.value(t.ElementType, into[i], applied[i], func(v any) { into[i] = v })
		o.path = o.path[:len(o.path)-1]
		if !ok {
			return false
		}
	}
	return true
}

// leaf sets what changes as a whole. Numbers that are equal but not the same are left to the
// library.
func (o *overlay) leaf(was, is any, set func(any)) bool {
	switch {
	case reflect.DeepEqual(was, is):
		return true
	case equal(was, is):
		return false
	}
	o.modified = append(o.modified, o.path.Copy())
	set(runtime.DeepCopyJSONValue(is))
	return true
}
