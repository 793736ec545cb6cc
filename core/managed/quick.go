package managed

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"stele.dev/stele/policy"
)

// maxUpdaters is how many entries of updates there can be before the library merges some.
const maxUpdaters = 10

// quick does what Update does where that is simple: for a new object, whose fields are all
// its maker's; and where a manager changes values of fields that are its own already, or
// nothing. It reports whether it did. A test holds it to the library.
func (f *Fields) quick(old, updated *policy.Object, manager string, at time.Time) bool {
	sent := updated.Meta.ManagedFields
	if f.subresource != "" {
		sent = nil
	}
	if old == nil {
		return sent == nil && f.made(updated, manager, at)
	}
	live := old.Meta.ManagedFields
	if sent != nil && !f.same(sent, live) {
		return false
	}
	return f.changed(old, updated, manager, at)
}

// made is for a new object.
func (f *Fields) made(o *policy.Object, manager string, at time.Time) bool {
	w := writer{schema: f.merge.Schema}
	fields, ok := w.object(make([]byte, 0, 512), f, o)
	if !ok {
		return false
	}
	if string(fields) == "{}" { // it has only what nobody manages
		o.Meta.ManagedFields = nil
		return true
	}
	now := second(at)
	e := f.entry(manager)
	e.Time, e.FieldsType, e.FieldsV1 = &now, "FieldsV1", &metav1.FieldsV1{}
	e.FieldsV1.SetRawBytes(fields)
	o.Meta.ManagedFields = []metav1.ManagedFieldsEntry{e}
	return true
}

func second(at time.Time) metav1.Time { return metav1.NewTime(at.Truncate(time.Second).UTC()) }

// entry is what names the updates of a manager.
func (f *Fields) entry(manager string) metav1.ManagedFieldsEntry {
	if manager == "" {
		manager = "unknown"
	}
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: f.apiVersion, Subresource: f.subresource}
}

// changed is for an object that has managedFields.
func (f *Fields) changed(old, updated *policy.Object, manager string, at time.Time) bool {
	live := old.Meta.ManagedFields
	if len(live) == 0 { // nobody has asked for them
		updated.Meta.ManagedFields = nil
		return true
	}
	if !sameMeta(old.Meta, updated.Meta) {
		return false
	}
	all := make([]*fieldpath.Set, len(live))
	own, updaters := -1, 0
	mine := f.entry(manager)
	for i := range live {
		e := &live[i]
		if e.Operation == metav1.ManagedFieldsOperationUpdate {
			updaters++
		}
		if e.APIVersion != f.apiVersion || updaters > maxUpdaters {
			return false
		}
		if all[i] = f.known.of(f, e); all[i] == nil {
			return false
		}
		if e.Manager == mine.Manager && e.Operation == mine.Operation && e.Subresource == mine.Subresource {
			own = i
		}
	}
	d := differ{schema: f.merge.Schema}
	if !d.object(f, old.Content, updated.Content) {
		return false
	}
	if len(d.modified) == 0 {
		updated.Meta.ManagedFields = live
		return true
	}
	for _, path := range d.modified {
		for i, set := range all {
			if set.Has(path) != (i == own) {
				return false
			}
		}
	}
	if own < 0 {
		return false
	}
	entries := slices.Clone(live)
	now := second(at)
	entries[own].Time = &now
	sortEntries(entries)
	updated.Meta.ManagedFields = entries
	return true
}

// sameMeta compares what of metadata is managed.
func sameMeta(a, b *metav1.ObjectMeta) bool {
	return a.GenerateName == b.GenerateName && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		slices.Equal(a.Finalizers, b.Finalizers) && (len(a.OwnerReferences)+len(b.OwnerReferences) == 0 || reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences)) &&
		a.DeletionTimestamp.Equal(b.DeletionTimestamp) && reflect.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds)
}

// same tells whether entries say the same, in whatever order they name fields.
func (f *Fields) same(a, b []metav1.ManagedFieldsEntry) bool {
	if len(a) != len(b) || len(a) == 0 {
		return false
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if x.Manager != y.Manager || x.Operation != y.Operation || x.APIVersion != y.APIVersion || x.Subresource != y.Subresource ||
			x.FieldsType != y.FieldsType || !x.Time.Equal(y.Time) {
			return false
		}
		if x.FieldsV1.GetRawString() == y.FieldsV1.GetRawString() {
			continue
		}
		s, t := f.known.of(f, x), f.known.of(f, y)
		if s == nil || t == nil || !s.Equals(t) {
			return false
		}
	}
	return true
}

// sets are decoded sets of fields, by their encoding. Few are in use of a kind at a time.
type sets struct {
	mu   sync.Mutex
	m    map[string]*fieldpath.Set
	size int // of the encodings
}

// What is kept takes some ten times the room of its encoding, and of each kind there may be
// some: clients choose what they are.
const (
	maxSets = 256 << 10 // bytes of all encodings that are kept
	maxSet  = 16 << 10  // of one
)

// of returns the set of an entry, nil if the library would not leave it as it is: then it
// cannot be decoded, is empty, or the type was another one when it was made.
func (s *sets) of(f *Fields, e *metav1.ManagedFieldsEntry) *fieldpath.Set {
	if e.FieldsType != "FieldsV1" || e.FieldsV1 == nil {
		return nil
	}
	raw := e.FieldsV1.GetRawBytes()
	s.mu.Lock()
	set, ok := s.m[string(raw)]
	s.mu.Unlock()
	if ok {
		return set
	}
	set = &fieldpath.Set{}
	empty, err := f.merge.FromUnstructured(map[string]any{})
	if err != nil || set.FromJSON(e.FieldsV1.GetRawReader()) != nil || set.Empty() {
		set = nil
	} else if changed, err := typed.ReconcileFieldSetWithSchema(set, empty); err != nil || changed != nil {
		set = nil
	}
	if len(raw) > maxSet {
		return set
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.m[string(raw)]; ok { // by another request, meanwhile
		return set
	}
	if s.size += len(raw); s.m == nil || s.size > maxSets {
		s.m, s.size = make(map[string]*fieldpath.Set), len(raw)
	}
	s.m[string(raw)] = set
	return set
}

// differ finds where two objects differ, as long as both have the same fields.
type differ struct {
	schema   *smd.Schema
	path     fieldpath.Path
	modified []fieldpath.Path
}

func (d *differ) object(f *Fields, a, b map[string]any) bool {
	root, ok := d.schema.Resolve(f.merge.TypeRef)
	if !ok || root.Map == nil {
		return false
	}
	return d.fields(root.Map, a, b, func(name string) bool {
		return name == "apiVersion" || name == "kind" || name == "metadata" || slices.Contains(f.reset, name)
	})
}

// fields compares structs or maps but for what is skipped.
func (d *differ) fields(t *smd.Map, a, b map[string]any, skip func(string) bool) bool {
	shared := 0
	for name, before := range a {
		after, ok := b[name]
		if ok {
			shared++
		}
		if skip != nil && skip(name) {
			continue
		}
		if !ok {
			return false
		}
		if equal(before, after) {
			continue
		}
		of, ok := typeOf(t, name)
		if !ok {
			return false
		}
		d.path = append(d.path, fieldpath.PathElement{FieldName: &name})
		ok = d.differ(of, before, after)
		d.path = d.path[:len(d.path)-1]
		if !ok {
			return false
		}
	}
	if shared == len(b) {
		return true
	}
	for name := range b {
		if _, ok := a[name]; !ok && (skip == nil || !skip(name)) {
			return false
		}
	}
	return true
}

func typeOf(t *smd.Map, name string) (smd.TypeRef, bool) {
	if f, ok := t.FindField(name); ok {
		return f.Type, true
	}
	return t.ElementType, t.ElementType != smd.TypeRef{}
}

// differ compares two values that are not equal.
func (d *differ) differ(of smd.TypeRef, a, b any) bool {
	atom, ok := d.schema.Resolve(of)
	if !ok {
		return false
	}
	switch after := b.(type) {
	case map[string]any:
		before, ok := a.(map[string]any)
		if !ok || atom.Map == nil {
			return false
		}
		if atom.Map.ElementRelationship == smd.Atomic {
			return d.leaf(of, b)
		}
		return len(before) > 0 && len(after) > 0 && d.fields(atom.Map, before, after, nil)
	case []any:
		before, ok := a.([]any)
		if !ok || atom.List == nil {
			return false
		}
		if atom.List.ElementRelationship == smd.Atomic {
			return d.leaf(of, b)
		}
		return len(before) == len(after) && d.items(atom.List, before, after)
	default:
		return atom.Scalar != nil && scalar(a) && scalar(b) && d.leaf(of, b)
	}
}

// items compares the items of lists that are merged by keys, if they are the same ones.
func (d *differ) items(t *smd.List, a, b []any) bool {
	before, ok := keysOf(t, a)
	if !ok {
		return false
	}
	after, ok := keysOf(t, b)
	if !ok {
		return false
	}
	for i := range b {
		if !slices.Equal(before[i].values, after[i].values) {
			return false
		}
		if equal(a[i], b[i]) {
			continue
		}
		d.path = append(d.path, fieldpath.PathElement{Key: after[i].list(t.Keys)})
		ok := d.differ(t.ElementType, a[i], b[i])
		d.path = d.path[:len(d.path)-1]
		if !ok {
			return false
		}
	}
	return true
}

func (d *differ) leaf(of smd.TypeRef, after any) bool {
	d.modified = append(d.modified, d.path.Copy())
	return valid(d.schema, of, after)
}

// equal compares values as the library does: numbers by what they are.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			if other, ok := b[name]; !ok || !equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case int64:
		if b, ok := b.(float64); ok {
			return float64(a) == b
		}
	case float64:
		if b, ok := b.(int64); ok {
			return a == float64(b)
		}
	}
	return a == b
}

func scalar(v any) bool {
	switch v.(type) {
	case string, bool, int64, float64:
		return true
	}
	return false
}

// valid tells whether a value is of a type, and is nothing that the library has to look at.
func valid(s *smd.Schema, of smd.TypeRef, v any) bool {
	atom, ok := s.Resolve(of)
	if !ok {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		if atom.Map == nil {
			return false
		}
		for name, value := range v {
			of, ok := typeOf(atom.Map, name)
			if !ok || !valid(s, of, value) {
				return false
			}
		}
		return true
	case []any:
		if atom.List == nil || atom.List.ElementRelationship == smd.Associative {
			return false
		}
		for _, value := range v {
			if !valid(s, atom.List.ElementType, value) {
				return false
			}
		}
		return true
	}
	return validScalar(atom.Scalar, v)
}

func validScalar(t *smd.Scalar, v any) bool {
	if t == nil {
		return false
	}
	var ok bool
	switch *t {
	case smd.Numeric:
		if _, ok = v.(int64); !ok {
			_, ok = v.(float64)
		}
	case smd.String:
		_, ok = v.(string)
	case smd.Boolean:
		_, ok = v.(bool)
	case smd.Untyped:
		ok = scalar(v)
	}
	return ok
}
