package managed

import (
	"bytes"
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"stele.dev/stele/policy"
)

// maxUpdaters is how many update entries there may be before the library merges some.
const maxUpdaters = 10

// quick is a fast path of Update without the library. It caches the results of operations on sets of fields. It leaves
// special cases to the library: other versions, entries that the library would change, null, values of another or a
// wrong type, too many managers. It reports whether it handled the update. A test compares it with the library.
func (f *Fields) quick(old, updated *policy.Object, manager string, at time.Time) bool {
	sent := updated.Meta.ManagedFields
	if f.subresource != "" {
		sent = nil
	}
	if old == nil {
		return sent == nil && f.made(updated, manager, at)
	}
	live := old.Meta.ManagedFields
	if sent != nil && !f.equalEntries(sent, live) {
		return false
	}
	return f.changed(old, updated, manager, at)
}

// made handles a new object.
func (f *Fields) made(o *policy.Object, manager string, at time.Time) bool {
	w := writer{schema: f.merge.Schema}
	fields, ok := w.object(make([]byte, 0, 512), f, o)
	if !ok {
		return false
	}
	if string(fields) == "{}" { // no field has a manager
		o.Meta.ManagedFields = nil
		return true
	}
	now := toSeconds(at)
	e := f.entry(manager)
	e.Time, e.FieldsType, e.FieldsV1 = &now, "FieldsV1", &metav1.FieldsV1{}
	e.FieldsV1.SetRawBytes(fields)
	o.Meta.ManagedFields = []metav1.ManagedFieldsEntry{e}
	return true
}

func toSeconds(at time.Time) metav1.Time { return metav1.NewTime(at.Truncate(time.Second).UTC()) }

// entry returns the empty entry of a manager's updates.
func (f *Fields) entry(manager string) metav1.ManagedFieldsEntry {
	manager = cmp.Or(manager, "unknown")
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: f.apiVersion, Subresource: f.subresource}
}

// changed handles an object that has managedFields.
func (f *Fields) changed(old, updated *policy.Object, manager string, at time.Time) bool {
	live := old.Meta.ManagedFields
	if len(live) == 0 { // the client has removed them
		updated.Meta.ManagedFields = nil
		return true
	}
	mine := f.entry(manager)
	own, ok := f.ownEntry(live, &mine)
	if !ok {
		return false
	}
	c, ok := f.change(old, updated)
	if !ok || !f.fits(updated.Content) {
		return false
	}
	entries, ok := f.entriesAfter(live, own, c)
	if !ok {
		return false
	}
	if c.set != "" {
		now := toSeconds(at)
		if own < 0 {
			mine.FieldsType = "FieldsV1"
			if mine.FieldsV1, ok = f.known.firstFields(c.set); !ok {
				return false
			}
			entries, own = append(entries, mine), len(entries)
		}
		entries[own].Time = &now
	}
	entries = slices.DeleteFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return e.FieldsV1 == nil })
	updaters := 0
	for i := range entries {
		if entries[i].Operation == metav1.ManagedFieldsOperationUpdate {
			updaters++
		}
	}
	if updaters > maxUpdaters {
		return false
	}
	if len(entries) == 0 {
		entries = nil
	}
	sortEntries(entries)
	updated.Meta.ManagedFields = entries
	return true
}

// ownEntry returns the index of the entry with the same manager, operation and subresource as mine, -1 if there is
// none. It fails if an entry has another version, or if two have the same name.
func (f *Fields) ownEntry(live []metav1.ManagedFieldsEntry, mine *metav1.ManagedFieldsEntry) (own int, ok bool) {
	named := func(a, b *metav1.ManagedFieldsEntry) bool {
		return a.Manager == b.Manager && a.Operation == b.Operation && a.Subresource == b.Subresource
	}
	own = -1
	for i := range live {
		if live[i].APIVersion != f.apiVersion {
			return -1, false
		}
		for j := range i {
			if named(&live[i], &live[j]) {
				return -1, false
			}
		}
		if named(&live[i], mine) {
			own = i
		}
	}
	return own, true
}

// entriesAfter returns the entries after a change by the manager of entry own, or by a new manager if it is -1. Set fields
// are removed from other managers, and removed fields from all. An entry without fields is dropped.
func (f *Fields) entriesAfter(live []metav1.ManagedFieldsEntry, own int, c change) ([]metav1.ManagedFieldsEntry, bool) {
	entries := make([]metav1.ManagedFieldsEntry, len(live), len(live)+1)
	for i := range live {
		entries[i] = live[i]
		fields, ok := f.known.fieldsAfter(f, &live[i], c, i == own)
		if !ok {
			return nil, false
		}
		entries[i].FieldsV1 = fields
	}
	return entries, true
}

// sameMeta reports whether the managed fields of metadata are equal.
func sameMeta(a, b *metav1.ObjectMeta) bool {
	return a.GenerateName == b.GenerateName && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		slices.Equal(a.Finalizers, b.Finalizers) && (len(a.OwnerReferences)+len(b.OwnerReferences) == 0 || reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences)) &&
		a.DeletionTimestamp.Equal(b.DeletionTimestamp) && reflect.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds)
}

// equalEntries reports whether entries are equal, in any order of fields.
func (f *Fields) equalEntries(a, b []metav1.ManagedFieldsEntry) bool {
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
		s, t := f.known.setOf(f, x), f.known.setOf(f, y)
		if s == nil || t == nil || !s.Equals(t) {
			return false
		}
	}
	return true
}

// sets caches decoded sets of fields by their encoding, and the results of operations on them. A kind has few sets at
// a time, and the same operations occur again and again.
type sets struct {
	mu      sync.Mutex
	m       map[string]*fieldpath.Set
	size    int // of all keys in m, in bytes
	results map[operation]result
}

// operation is an operation on a set: a change by its manager, a change by another manager, or the question whether it
// contains all removed fields.
type operation struct {
	what   string
	change change
	as     byte
}

const (
	others byte = iota
	own
	asked
)

// result is the remaining set: changed, unchanged or empty.
type result struct {
	fields *metav1.FieldsV1
	same   bool
}

// A cached set takes some ten times the memory of its encoding, and each kind has a cache, whose content clients
// choose.
const (
	maxSets = 256 << 10 // bytes of all encodings in the cache
	maxSet  = 16 << 10  // bytes of one

	maxResults = 128
	maxResult  = 4 << 10 // bytes of the key of a result
)

// fieldsAfter returns the remaining fields of an entry, nil if there are none. It fails if the library would do more.
func (s *sets) fieldsAfter(f *Fields, e *metav1.ManagedFieldsEntry, c change, mine bool) (*metav1.FieldsV1, bool) {
	if e.FieldsType != "FieldsV1" || e.FieldsV1 == nil {
		return nil, false
	}
	as := others
	if mine {
		as = own
	}
	raw := e.FieldsV1.GetRawBytes()
	s.mu.Lock()
	r, ok := s.results[operation{string(raw), c, as}]
	s.mu.Unlock()
	if !ok {
		set := s.setOf(f, e)
		if set == nil {
			return nil, false
		}
		var err error
		if r, err = c.leaves(set, mine); err != nil {
			return nil, false
		}
		s.keep(operation{string(raw), c, as}, r)
	}
	if r.same {
		return e.FieldsV1, true
	}
	return r.fields, true
}

// containsAll reports whether a set contains all fields of an entry.
func (s *sets) containsAll(f *Fields, e *metav1.ManagedFieldsEntry, set []byte) bool {
	raw := e.FieldsV1.GetRawBytes()
	if bytes.Equal(raw, set) {
		return true
	}
	s.mu.Lock()
	r, ok := s.results[operation{string(set), change{removed: string(raw)}, asked}]
	s.mu.Unlock()
	if ok {
		return r.same
	}
	last := s.setOf(f, e)
	if last == nil {
		return false
	}
	now, err := decoded(string(set))
	r.same = err == nil && last.Difference(now).Empty()
	s.keep(operation{string(set), change{removed: string(raw)}, asked}, r)
	return r.same
}

// firstFields returns the fields of a manager that had none.
func (s *sets) firstFields(set string) (*metav1.FieldsV1, bool) {
	what := operation{change: change{set: set}, as: own}
	s.mu.Lock()
	r, ok := s.results[what]
	s.mu.Unlock()
	if !ok {
		var err error
		if r, err = what.change.leaves(&fieldpath.Set{}, true); err != nil {
			return nil, false
		}
		s.keep(what, r)
	}
	return r.fields, r.fields != nil
}

func (s *sets) keep(what operation, r result) {
	if len(what.what)+len(what.change.set)+len(what.change.removed) > maxResult {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.results == nil || len(s.results) == maxResults {
		s.results = make(map[operation]result)
	}
	s.results[what] = r
}

// leaves computes the rest of a set after a change. mine means that the change is by its manager.
func (c change) leaves(of *fieldpath.Set, mine bool) (result, error) {
	set, err := decoded(c.set)
	if err != nil {
		return result{}, err
	}
	removed, err := decoded(c.removed)
	if err != nil {
		return result{}, err
	}
	left := of.Difference(set).Difference(removed)
	if mine {
		left = left.Union(set)
	}
	switch {
	case left.Empty():
		return result{}, nil
	case left.Equals(of):
		return result{same: true}, nil
	}
	raw, err := left.ToJSON()
	if err != nil {
		return result{}, err
	}
	fields := &metav1.FieldsV1{}
	fields.SetRawBytes(raw)
	return result{fields: fields}, nil
}

func decoded(fields string) (*fieldpath.Set, error) {
	set := &fieldpath.Set{}
	if fields == "" {
		return set, nil
	}
	return set, set.FromJSON(strings.NewReader(fields))
}

// unmanaged are fields that have no manager.
var unmanaged = func() *fieldpath.Set {
	set := fieldpath.NewSet(fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"))
	for _, name := range []string{"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields", "resourceVersion"} {
		set.Insert(fieldpath.MakePathOrDie("metadata", name))
	}
	return set
}()

// setOf returns the set of an entry. It returns nil if the library would change the set: it cannot be decoded, is empty,
// or was made for another type.
func (s *sets) setOf(f *Fields, e *metav1.ManagedFieldsEntry) *fieldpath.Set {
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
	if err != nil || set.FromJSON(e.FieldsV1.GetRawReader()) != nil || set.Empty() || !set.Intersection(unmanaged).Empty() {
		set = nil
	} else if changed, err := typed.ReconcileFieldSetWithSchema(set, empty); err != nil || changed != nil {
		set = nil
	}
	if len(raw) > maxSet {
		return set
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.m[string(raw)]; ok { // another request was first
		return set
	}
	if s.size += len(raw); s.m == nil || s.size > maxSets {
		s.m, s.size = make(map[string]*fieldpath.Set), len(raw)
	}
	s.m[string(raw)] = set
	return set
}

func typeOf(t *smd.Map, name string) (smd.TypeRef, bool) {
	if f, ok := t.FindField(name); ok {
		return f.Type, true
	}
	return t.ElementType, t.ElementType != smd.TypeRef{}
}

// equal compares values as the library does: numbers by value.
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

// valid reports whether a value is valid for a type. A plain value also has no null, no set, and no list that is
// merged by keys, so that it needs nothing of the library.
func valid(s *smd.Schema, of smd.TypeRef, v any, plain bool) bool {
	atom, ok := s.Resolve(of)
	if !ok {
		return false
	}
	switch v := v.(type) {
	case nil:
		return !plain && (atom.Map != nil || atom.List != nil || atom.Scalar != nil)
	case map[string]any:
		if atom.Map == nil {
			return false
		}
		for name, value := range v {
			of, ok := typeOf(atom.Map, name)
			if !ok || !valid(s, of, value, plain) {
				return false
			}
		}
		return true
	case []any:
		if atom.List == nil {
			return false
		}
		merged := atom.List.ElementRelationship == smd.Associative
		if merged && plain {
			return false
		}
		for _, item := range v {
			if merged && !member(atom.List, item) || !valid(s, atom.List.ElementType, item, plain) {
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
