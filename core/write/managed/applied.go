package managed

import (
	"maps"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"stele.dev/stele/policy"
)

// lastApplied is the annotation that the library also updates, for kubectl.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// quickApply is a fast path of Apply without the library. It handles a new object, and an apply with at least all
// fields that the manager applied before, if no other manager owns a changed field or the apply is forced. Then no
// field is removed. Everything else, such as conflicts, is left to the library. It reports whether it handled the
// request.
func (f *Fields) quickApply(old *policy.Object, applied map[string]any, manager string, force bool, at time.Time) (*policy.Object, bool) {
	switch {
	case applied["apiVersion"] != f.apiVersion || applied["kind"] != f.kind.Kind || manager == "":
		return nil, false
	case old == nil:
		return f.quickMake(applied, manager, at)
	}
	live := old.Meta.ManagedFields
	mine := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: f.apiVersion, FieldsType: "FieldsV1", Subresource: f.subresource}
	own, ok := f.ownEntry(live, &mine)
	if !ok || len(live) == 0 {
		return nil, false
	}
	root, ok := f.merge.Schema.Resolve(f.merge.TypeRef)
	if !ok || root.Map == nil {
		return nil, false
	}
	w := writer{schema: f.merge.Schema, applied: true}
	fields, ok := w.document(make([]byte, 0, 512), root.Map, f, applied, old.Meta)
	if !ok || string(fields) == "{}" || own >= 0 && !f.known.containsAll(f, &live[own], fields) {
		return nil, false
	}
	merged, ok := f.overlaid(root.Map, old, applied)
	if !ok || manager == "kubectl" && merged.Meta.Annotations[lastApplied] != "" {
		return nil, false
	}
	c, ok := f.change(old, merged)
	if !ok || c.removed != "" || !f.fits(old.Content) {
		return nil, false
	}
	entries, ok := f.entriesAfter(live, -1, c)
	if !ok {
		return nil, false
	}
	for i := range entries {
		if i != own && entries[i].FieldsV1 != live[i].FieldsV1 && !force {
			return nil, false
		}
	}
	if own < 0 {
		entries, own = append(entries, mine), len(entries)
	}
	if e := &entries[own]; e.FieldsV1 == nil || string(fields) != e.FieldsV1.GetRawString() {
		e.FieldsV1 = &metav1.FieldsV1{}
		e.FieldsV1.SetRawBytes(fields)
	}
	if c.set != "" {
		now := toSeconds(at)
		entries[own].Time = &now
	}
	merged.Meta.ManagedFields = slices.DeleteFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return e.FieldsV1 == nil })
	sortEntries(merged.Meta.ManagedFields)
	return merged, true
}

// overlaid returns the object with the applied values. It shares nothing with either input except managedFields, which
// are ignored.
func (f *Fields) overlaid(root *smd.Map, old *policy.Object, applied map[string]any) (*policy.Object, bool) {
	meta := *old.Meta
	meta.ManagedFields = nil
	merged := &policy.Object{Meta: meta.DeepCopy(), Content: runtime.DeepCopyJSON(old.Content)}
	o := overlay{schema: f.merge.Schema}
	for name, value := range applied {
		switch name {
		case "apiVersion", "kind":
		case "metadata":
			fields, _ := value.(map[string]any)
			merged.Meta.Labels = laid(merged.Meta.Labels, texts(fields["labels"]))
			merged.Meta.Annotations = laid(merged.Meta.Annotations, texts(fields["annotations"]))
		default:
			if !o.field(root, merged.Content, name, value) {
				return nil, false
			}
		}
	}
	return merged, true
}

func laid(over, texts map[string]string) map[string]string {
	if over == nil {
		return texts
	}
	maps.Copy(over, texts)
	return over
}

// quickMake returns a new object made of the applied values.
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
	now := toSeconds(at)
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

// texts returns the strings in a map.
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

// document writes the set of applied fields. Of metadata it accepts the required fields, labels and annotations.
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
		_, declared := root.FindField(name)
		if b, ok = w.value(b, of, applied[name], !declared); !ok {
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
	written := map[string]map[string]string{}
	for name, value := range fields {
		switch name {
		case "name":
			ok = meta.Name != "" && value == meta.Name
		case "namespace":
			ok = meta.Namespace != "" && value == meta.Namespace
		case "labels", "annotations":
			written[name], ok = onlyTexts(value)
		default:
			ok = false
		}
		if !ok {
			return nil, false
		}
	}
	if len(written) == 0 {
		return b, true
	}
	if subresource != "" {
		return nil, false
	}
	b, _ = field(b, "metadata")
	b = append(b, '{')
	for _, name := range []string{"annotations", "labels"} {
		if b, ok = w.texts(b, name, written[name]); !ok {
			return nil, false
		}
	}
	return append(b, '}'), true
}

// onlyTexts returns a value as a map of strings. It fails for any other value.
func onlyTexts(v any) (map[string]string, bool) {
	raw, _ := v.(map[string]any)
	is := texts(v)
	return is, len(is) > 0 && len(is) == len(raw)
}

// overlay sets values in an object, as the library merges them.
type overlay struct{ schema *smd.Schema }

// field sets a field to an applied value.
func (o overlay) field(t *smd.Map, into map[string]any, name string, value any) bool {
	of, ok := typeOf(t, name)
	if !ok {
		return false
	}
	was, had := into[name]
	if !had {
		into[name] = runtime.DeepCopyJSONValue(value)
		return true
	}
	return o.value(of, was, value, func(value any) { into[name] = value })
}

func (o overlay) value(of smd.TypeRef, was, is any, set func(any)) bool {
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

// items applies the items of a list, if the lists have the same items in the same order.
func (o overlay) items(t *smd.List, into, applied []any) bool {
	before, ok := keysOf(t, into)
	if !ok || len(into) != len(applied) {
		return false
	}
	after, ok := keysOf(t, applied)
	if !ok {
		return false
	}
	for i := range applied {
		if !slices.Equal(before[i].values, after[i].values) || !o.value(t.ElementType, into[i], applied[i], func(v any) { into[i] = v }) {
			return false
		}
	}
	return true
}

// leaf sets a value that is replaced as a whole. Numbers that are equal but of different types are left to the
// library.
func (o overlay) leaf(was, is any, set func(any)) bool {
	switch {
	case reflect.DeepEqual(was, is):
		return true
	case equal(was, is):
		return false
	}
	set(runtime.DeepCopyJSONValue(is))
	return true
}
