package managed

import (
	"cmp"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"stele.dev/stele/policy"
)

// writer writes the set of all fields of a value as FieldsV1, in the library's order. It fails where a name or key
// needs escaping, and where the library does more: null, duplicates, missing keys.
type writer struct {
	schema *smd.Schema
	// applied means that the set is that of an apply. Then it contains the fields of a struct, but not the struct
	// itself; otherwise it contains both.
	applied bool
	keys    []string // of the structs that are being written, as a stack
}

// object writes the fields of a new object, except fields without managers.
func (w *writer) object(b []byte, f *Fields, o *policy.Object) ([]byte, bool) {
	root, ok := w.schema.Resolve(f.merge.TypeRef)
	if !ok || root.Map == nil {
		return nil, false
	}
	names := make([]string, 0, len(o.Content)+1)
	names = append(names, "metadata")
	for name := range o.Content {
		if name != "apiVersion" && name != "kind" && name != "metadata" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	b = append(b, '{')
	for _, name := range names {
		of, ok := typeOf(root.Map, name)
		if !ok {
			return nil, false
		}
		if name == "metadata" {
			if b, ok = w.metadata(b, o); !ok {
				return nil, false
			}
			continue
		}
		if slices.Contains(f.reset, name) {
			continue
		}
		was, had := f.zero[name]
		if b, ok = w.topLevel(b, name, of, was, had, o.Content[name]); !ok {
			return nil, false
		}
	}
	return append(b, '}'), true
}

// topLevel writes a field that the zero object may have.
func (w *writer) topLevel(b []byte, name string, of smd.TypeRef, was any, had bool, is any) ([]byte, bool) {
	at := len(b)
	b, ok := field(b, name)
	switch {
	case !ok:
		return nil, false
	case !had:
		return w.value(b, of, is, true)
	case equal(was, is):
		return b[:at], true
	}
	before, wasStruct := was.(map[string]any)
	after, isStruct := is.(map[string]any)
	atom, found := w.schema.Resolve(of)
	switch {
	case !found:
		return nil, false
	case isStruct && atom.Map != nil && atom.Map.ElementRelationship == smd.Atomic, scalar(is) && (was == nil || scalar(was)):
		return append(b, "{}"...), valid(w.schema, of, is, true)
	case isStruct && wasStruct && len(before) == 0 && atom.Map != nil: // the zero object has the struct; only its fields are new
		return w.fields(b, atom.Map, after, false)
	}
	return nil, false
}

// metadata writes the managed fields of metadata.
func (w *writer) metadata(b []byte, o *policy.Object) ([]byte, bool) {
	m := o.Meta
	if m.DeletionTimestamp != nil || m.DeletionGracePeriodSeconds != nil {
		return nil, false
	}
	if len(m.Annotations)+len(m.Finalizers)+len(m.Labels)+len(m.OwnerReferences) == 0 && m.GenerateName == "" {
		return b, true
	}
	b, _ = field(b, "metadata")
	b = append(b, '{')
	ok := true
	if b, ok = w.texts(b, "annotations", m.Annotations); !ok {
		return nil, false
	}
	if len(m.Finalizers) > 0 {
		items := make([]any, len(m.Finalizers))
		for i, f := range m.Finalizers {
			items[i] = f
		}
		b, _ = field(b, "finalizers")
		if b, ok = w.set(b, items, true); !ok {
			return nil, false
		}
	}
	if m.GenerateName != "" {
		b, _ = field(b, "generateName")
		b = append(b, "{}"...)
	}
	if b, ok = w.texts(b, "labels", m.Labels); !ok {
		return nil, false
	}
	if b, ok = owners(b, m.OwnerReferences); !ok {
		return nil, false
	}
	return append(b, '}'), true
}

// owners writes owner references. They are merged by UID, each as a whole.
func owners(b []byte, of []metav1.OwnerReference) ([]byte, bool) {
	if len(of) == 0 {
		return b, true
	}
	uids := make([]string, len(of))
	for i := range of {
		uids[i] = string(of[i].UID)
	}
	slices.Sort(uids)
	b, _ = field(b, "ownerReferences")
	b = append(b, `{".":{}`...)
	for i, uid := range uids {
		if !plain(uid) || i > 0 && uid == uids[i-1] {
			return nil, false
		}
		b = append(b, `,"k:{\"uid\":\"`...)
		b = append(b, uid...)
		b = append(b, `\"}":{}`...)
	}
	return append(b, '}'), true
}

func (w *writer) texts(b []byte, name string, m map[string]string) ([]byte, bool) {
	if len(m) == 0 {
		return b, true
	}
	b, _ = field(b, name)
	b = w.open(b, !w.applied)
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		var ok bool
		if b, ok = field(b, key); !ok {
			return nil, false
		}
		b = append(b, "{}"...)
	}
	return append(b, '}'), true
}

// field writes the name of a field, after a comma if it is not the first.
func field(b []byte, name string) ([]byte, bool) {
	if !plain(name) {
		return nil, false
	}
	b = separate(b)
	b = append(b, `"f:`...)
	b = append(b, name...)
	return append(b, `":`...), true
}

func separate(b []byte) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return b
}

// plain reports whether a string needs no escaping in any encoding.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

// open writes the opening brace of a value with parts. self adds the value itself to the set.
func (w *writer) open(b []byte, self bool) []byte {
	b = append(b, '{')
	if self {
		b = append(b, `".":{}`...)
	}
	return b
}

// value writes a value. self adds a value with parts itself to the set.
func (w *writer) value(b []byte, of smd.TypeRef, v any, self bool) ([]byte, bool) {
	atom, ok := w.schema.Resolve(of)
	if !ok {
		return nil, false
	}
	switch v := v.(type) {
	case map[string]any:
		switch {
		case atom.Map == nil:
			return nil, false
		case atom.Map.ElementRelationship == smd.Atomic:
			return append(b, "{}"...), valid(w.schema, of, v, true)
		case len(v) == 0:
			return append(b, "{}"...), true
		}
		return w.fields(b, atom.Map, v, self)
	case []any:
		switch {
		case atom.List == nil:
			return nil, false
		case atom.List.ElementRelationship == smd.Atomic:
			return append(b, "{}"...), valid(w.schema, of, v, true)
		case len(v) == 0:
			return append(b, "{}"...), self
		case len(atom.List.Keys) == 0:
			for _, item := range v {
				if !valid(w.schema, atom.List.ElementType, item, true) {
					return nil, false
				}
			}
			return w.set(b, v, self)
		}
		return w.items(b, atom.List, v, self)
	}
	return append(b, "{}"...), validScalar(atom.Scalar, v)
}

// fields writes the fields of a struct, and the struct itself if it is new.
func (w *writer) fields(b []byte, t *smd.Map, v map[string]any, self bool) ([]byte, bool) {
	b = w.open(b, self)
	from := len(w.keys)
	for name := range v {
		w.keys = append(w.keys, name)
	}
	to := len(w.keys)
	slices.Sort(w.keys[from:to])
	for i := from; i < to; i++ {
		name := w.keys[i]
		of, ok := typeOf(t, name)
		if !ok {
			return nil, false
		}
		if b, ok = field(b, name); !ok {
			return nil, false
		}
		_, declared := t.FindField(name)
		if b, ok = w.value(b, of, v[name], !w.applied || !declared); !ok {
			return nil, false
		}
	}
	w.keys = w.keys[:from]
	return append(b, '}'), true
}

// set writes the items of a set, if they are all strings or all integers.
func (w *writer) set(b []byte, items []any, self bool) ([]byte, bool) {
	sorted := slices.Clone(items)
	ok := true
	slices.SortFunc(sorted, func(x, y any) int {
		c, comparable := compare(x, y)
		ok = ok && comparable && c != 0
		return c
	})
	b = w.open(b, self)
	for _, item := range sorted {
		b = append(separate(b), `"v:`...)
		if b, ok = appendScalar(b, item, ok); !ok {
			return nil, false
		}
		b = append(b, `":{}`...)
	}
	return append(b, '}'), true
}

// items writes the items of a list that is merged by keys.
func (w *writer) items(b []byte, t *smd.List, items []any, self bool) ([]byte, bool) {
	keys, ok := keysOf(t, items)
	if !ok {
		return nil, false
	}
	slices.SortFunc(keys, keyed.compare)
	names := slices.Sorted(slices.Values(t.Keys))
	b = w.open(b, self)
	for _, item := range keys {
		b = append(separate(b), `"k:{`...)
		if b, ok = appendKeys(b, names, item); !ok {
			return nil, false
		}
		b = append(b, `":`...)
		if b, ok = w.value(b, t.ElementType, item.of, true); !ok {
			return nil, false
		}
	}
	return append(b, '}'), true
}

// appendKeys writes the keys of an item and the brace after them.
func appendKeys(b []byte, names []string, item keyed) ([]byte, bool) {
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `\"`...)
		b = append(b, name...)
		b = append(b, `\":`...)
		var ok bool
		if b, ok = appendScalar(b, item.values[i], plain(name)); !ok {
			return nil, false
		}
	}
	return append(b, '}'), true
}

// appendScalar writes a scalar inside a string.
func appendScalar(b []byte, v any, ok bool) ([]byte, bool) {
	switch v := v.(type) {
	case string:
		b = append(b, `\"`...)
		b = append(b, v...)
		return append(b, `\"`...), ok && plain(v)
	case int64:
		return strconv.AppendInt(b, v, 10), ok
	}
	return nil, false
}

// keyed is a list item with the values of its keys, in the order of the key names.
type keyed struct {
	of     any
	values []any
}

// keysOf returns the items of a list with their keys. It fails if an item lacks a key, if two items have the same
// keys, or if a key is not a string or an integer.
func keysOf(t *smd.List, items []any) ([]keyed, bool) {
	if len(t.Keys) == 0 {
		return nil, false
	}
	names := slices.Sorted(slices.Values(t.Keys))
	all := make([]keyed, len(items))
	for i, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			return nil, false
		}
		all[i] = keyed{item, make([]any, len(names))}
		for j, name := range names {
			switch v := fields[name].(type) {
			case string, int64:
				all[i].values[j] = v
			default:
				return nil, false
			}
			if i > 0 {
				if _, ok := compare(all[0].values[j], all[i].values[j]); !ok {
					return nil, false
				}
			}
		}
	}
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, keyed.compare)
	for i := 1; i < len(sorted); i++ {
		if sorted[i-1].compare(sorted[i]) == 0 {
			return nil, false
		}
	}
	return all, true
}

func (k keyed) compare(other keyed) int {
	for i := range k.values {
		if c, _ := compare(k.values[i], other.values[i]); c != 0 {
			return c
		}
	}
	return 0
}

// compare compares two strings or two integers.
func compare(x, y any) (c int, comparable bool) {
	switch x := x.(type) {
	case string:
		if y, ok := y.(string); ok {
			return cmp.Compare(x, y), true
		}
	case int64:
		if y, ok := y.(int64); ok {
			return cmp.Compare(x, y), true
		}
	}
	return 0, false
}
