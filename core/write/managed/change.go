package managed

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"stele.dev/stele/policy"
)

// change is what a write changes: the set of fields that it adds or modifies, and the set that it removes, as
// FieldsV1, "" if empty. Equal changes have equal text, which may differ from the library's.
type change struct{ set, removed string }

// change compares two versions of an object. It ignores fields that this endpoint does not write. It fails where a
// value changes to or from null, or changes its type.
func (f *Fields) change(old, updated *policy.Object) (change, bool) {
	root, ok := f.merge.Schema.Resolve(f.merge.TypeRef)
	if !ok || root.Map == nil {
		return change{}, false
	}
	var fields [512]byte
	d := differ{writer: writer{schema: f.merge.Schema}, set: append(fields[:0:256], '{'), removed: append(fields[256:256], '{')}
	if !slices.Contains(f.reset, "metadata") && !sameMeta(old.Meta, updated.Meta) && !d.metadata(root.Map, old.Meta, updated.Meta) {
		return change{}, false
	}
	if !d.fields(root.Map, old.Content, updated.Content, f.skips) {
		return change{}, false
	}
	return change{closed(d.set), closed(d.removed)}, true
}

// skips reports whether a top-level field is ignored.
func (f *Fields) skips(name string) bool {
	return name == "apiVersion" || name == "kind" || name == "metadata" || slices.Contains(f.reset, name)
}

func closed(b []byte) string {
	if len(b) == 1 {
		return ""
	}
	return string(append(b, '}'))
}

// differ writes the fields that differ between two values.
type differ struct {
	writer
	set, removed []byte
}

// metadata compares the fields of metadata that clients commonly write.
func (d *differ) metadata(root *smd.Map, a, b *metav1.ObjectMeta) bool {
	x, y := *a, *b
	before, after := map[string]any{}, map[string]any{}
	if !maps.Equal(x.Labels, y.Labels) {
		setTexts(before, "labels", x.Labels)
		setTexts(after, "labels", y.Labels)
		x.Labels, y.Labels = nil, nil
	}
	if !maps.Equal(x.Annotations, y.Annotations) {
		setTexts(before, "annotations", x.Annotations)
		setTexts(after, "annotations", y.Annotations)
		x.Annotations, y.Annotations = nil, nil
	}
	if !slices.Equal(x.Finalizers, y.Finalizers) {
		setItems(before, "finalizers", x.Finalizers)
		setItems(after, "finalizers", y.Finalizers)
		x.Finalizers, y.Finalizers = nil, nil
	}
	of, ok := typeOf(root, "metadata")
	return ok && sameMeta(&x, &y) && d.part("f:metadata", of, before, true, after, true)
}

func setTexts(fields map[string]any, name string, texts map[string]string) {
	if len(texts) == 0 {
		return
	}
	values := make(map[string]any, len(texts))
	for key, text := range texts {
		values[key] = text
	}
	fields[name] = values
}

func setItems(fields map[string]any, name string, items []string) {
	if len(items) == 0 {
		return
	}
	values := make([]any, len(items))
	for i, item := range items {
		values[i] = item
	}
	fields[name] = values
}

// part compares a field or item that exists in both parents or in one.
func (d *differ) part(name string, of smd.TypeRef, before any, had bool, after any, has bool) (ok bool) {
	label := func(b []byte) []byte { return append(append(append(separate(b), '"'), name...), `":`...) }
	switch {
	case !had:
		d.set, ok = d.value(label(d.set), of, after, true)
		return ok
	case !has:
		d.removed, ok = d.value(label(d.removed), of, before, true)
		return ok
	}
	set, removed := len(d.set), len(d.removed)
	d.set, d.removed = label(d.set), label(d.removed)
	inSet, inRemoved := len(d.set), len(d.removed)
	ok = d.compareUnequal(of, before, after)
	if len(d.set) == inSet {
		d.set = d.set[:set]
	}
	if len(d.removed) == inRemoved {
		d.removed = d.removed[:removed]
	}
	return ok
}

// compareUnequal compares two values that are not equal.
func (d *differ) compareUnequal(of smd.TypeRef, before, after any) bool {
	atom, ok := d.schema.Resolve(of)
	if !ok {
		return false
	}
	switch b := after.(type) {
	case map[string]any:
		a, ok := before.(map[string]any)
		switch {
		case !ok || atom.Map == nil:
			return false
		case atom.Map.ElementRelationship == smd.Atomic:
			return d.leaf(of, before, after)
		}
		return d.parts(func() bool { return d.fields(atom.Map, a, b, nil) })
	case []any:
		a, ok := before.([]any)
		switch {
		case !ok || atom.List == nil:
			return false
		case atom.List.ElementRelationship == smd.Atomic:
			return d.leaf(of, before, after)
		}
		return d.parts(func() bool { return d.items(atom.List, a, b) })
	}
	return scalar(before) && scalar(after) && d.leaf(of, before, after)
}

// leaf writes a value that changes as a whole.
func (d *differ) leaf(of smd.TypeRef, before, after any) bool {
	d.set = append(d.set, "{}"...)
	return valid(d.schema, of, before, true) && valid(d.schema, of, after, true)
}

// parts writes braces around parts, if there are any.
func (d *differ) parts(write func() bool) bool {
	set, removed := len(d.set), len(d.removed)
	d.set, d.removed = append(d.set, '{'), append(d.removed, '{')
	ok := write()
	d.set, d.removed = ended(d.set, set), ended(d.removed, removed)
	return ok
}

func ended(b []byte, from int) []byte {
	if len(b) == from+1 {
		return b[:from]
	}
	return append(b, '}')
}

// fields compares structs or maps, except skipped fields.
func (d *differ) fields(t *smd.Map, a, b map[string]any, skip func(string) bool) bool {
	from := len(d.keys)
	for name, before := range a {
		if after, ok := b[name]; (skip == nil || !skip(name)) && (!ok || !equal(before, after)) {
			d.keys = append(d.keys, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok && (skip == nil || !skip(name)) {
			d.keys = append(d.keys, name)
		}
	}
	to := len(d.keys)
	slices.Sort(d.keys[from:to])
	for i := from; i < to; i++ {
		name := d.keys[i]
		of, ok := typeOf(t, name)
		if !ok || !plain(name) {
			return false
		}
		before, had := a[name]
		after, has := b[name]
		if !d.part("f:"+name, of, before, had, after, has) {
			return false
		}
	}
	d.keys = d.keys[:from]
	return true
}

// items compares sets, and lists that are merged by keys.
func (d *differ) items(t *smd.List, a, b []any) bool {
	before, ok := members(t, a)
	if !ok {
		return false
	}
	after, ok := members(t, b)
	if !ok {
		return false
	}
	if len(a) > 0 && len(b) > 0 {
		for i := range before[0].values {
			if _, ok := compare(before[0].values[i], after[0].values[i]); !ok {
				return false
			}
		}
	}
	slices.SortFunc(before, keyed.compare)
	slices.SortFunc(after, keyed.compare)
	for i, j := 0, 0; i < len(before) || j < len(after); {
		var was, is keyed
		c := 0
		switch {
		case j == len(after):
			c = -1
		case i == len(before):
			c = 1
		default:
			c = before[i].compare(after[j])
		}
		if c <= 0 {
			was, i = before[i], i+1
		}
		if c >= 0 {
			is, j = after[j], j+1
		}
		if c == 0 && equal(was.of, is.of) {
			continue
		}
		item := was
		if c > 0 {
			item = is
		}
		name, ok := item.name(t)
		if !ok || !d.part(name, t.ElementType, was.of, c <= 0, is.of, c >= 0) {
			return false
		}
	}
	return true
}

// members returns the items of a set, or of a list that is merged by keys. It fails if two are equal, or if a key is
// not a string or an integer.
func members(t *smd.List, items []any) ([]keyed, bool) {
	if len(t.Keys) > 0 {
		return keysOf(t, items)
	}
	all := make([]keyed, len(items))
	for i, item := range items {
		all[i] = keyed{item, items[i : i+1]}
	}
	sorted := slices.Clone(all)
	ok := true
	slices.SortFunc(sorted, func(x, y keyed) int {
		c, comparable := compare(x.of, y.of)
		ok = ok && comparable && c != 0
		return c
	})
	if len(items) == 1 {
		_, ok = compare(items[0], items[0])
	}
	return all, ok
}

// name returns the name of an item in FieldsV1.
func (k keyed) name(t *smd.List) (string, bool) {
	if len(t.Keys) == 0 {
		b, ok := appendScalar([]byte("v:"), k.of, true)
		return string(b), ok
	}
	b, ok := appendKeys([]byte("k:{"), slices.Sorted(slices.Values(t.Keys)), k)
	return string(b), ok
}

// fits reports whether content is valid for the type, so that the library would find no error. It may return false for
// valid content.
func (f *Fields) fits(content map[string]any) bool {
	root, ok := f.merge.Schema.Resolve(f.merge.TypeRef)
	if !ok || root.Map == nil {
		return false
	}
	for name, v := range content {
		if name == "apiVersion" || name == "kind" || name == "metadata" {
			continue
		}
		of, ok := typeOf(root.Map, name)
		if !ok || !valid(f.merge.Schema, of, v, false) {
			return false
		}
	}
	return true
}

// member reports whether an item is valid in a set, or in a list that is merged by keys.
func member(t *smd.List, item any) bool {
	if len(t.Keys) == 0 {
		return scalar(item)
	}
	fields, ok := item.(map[string]any)
	if !ok {
		return false
	}
	for _, name := range t.Keys {
		switch fields[name].(type) {
		case string, int64:
		default:
			return false
		}
	}
	return true
}
