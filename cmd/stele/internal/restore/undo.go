package restore

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"stele.dev/stele/core/object/difference"
	"stele.dev/stele/schemas"
)

// Version is an object after a write.
type Version struct {
	Object *unstructured.Unstructured // nil if it does not exist
	// Undo reports whether the write is taken back.
	Undo     bool
	By       string // the user who wrote it
	Revision uint64
}

// Undo returns the subject with Then set to the object without the writes that are taken back. It plans nothing. The
// first version is the one before these writes, the last version is the object now. Undo compares field by field: a
// field that somebody else changed since keeps its value, and a note names that user. A created object stays if
// somebody else changed it since. shape may be nil; it says which lists have items with keys.
func Undo(s Subject, versions []Version, shape *schemas.Node) Subject {
	u := &undoing{versions: versions}
	now := len(versions) - 1
	s.Now = versions[now].Object
	from, to := 0, now // the versions to compare
	last := u.lastChange(now, u.exists)
	switch {
	case last < 0: // it existed all the time
	case !versions[last].Undo && s.Now == nil:
		return s // somebody else deleted it
	case !versions[last].Undo:
		from = last // somebody else's object has the name
	case u.versionBefore(last, u.exists).Object == nil && s.Now == nil:
		return s // created and deleted
	case u.versionBefore(last, u.exists).Object == nil:
		if other := u.touched(s.Kind, last); other != nil {
			s.Then, s.Stays = s.Now, fmt.Sprintf("created by these writes, and changed since by %s at revision %d: stays", other.By, other.Revision)
			return s
		}
		return s // created by these writes: deleted
	case s.Now == nil:
		to = last - 1
	}
	u.versions = versions[from : to+1]
	s.Then = u.object(s.Kind, shape)
	s.Notes = u.notes()
	return s
}

// undoing computes an object without some of its writes, from its versions.
type undoing struct {
	versions []Version
	skipped  []skip
}

// skip is a field that keeps its value because somebody else changed it.
type skip struct {
	path string
	by   *Version
}

// exists returns whether the object exists in a version.
func (u *undoing) exists(i int) any { return u.versions[i].Object != nil }

// lastChange returns the index of the last version, at most upto, whose value differs from the version before. It
// returns -1 if there is none.
func (u *undoing) lastChange(upto int, value func(int) any) int {
	for i := upto; i > 0; i-- {
		if !reflect.DeepEqual(value(i), value(i-1)) {
			return i
		}
	}
	return -1
}

// versionBefore returns the version before a series of writes that are taken back and changed the same value. last is the
// last write of the series.
func (u *undoing) versionBefore(last int, value func(int) any) *Version {
	return &u.versions[u.firstOf(last, value)-1]
}

// firstOf returns the index of the first write of the series that ends with last.
func (u *undoing) firstOf(last int, value func(int) any) int {
	for {
		earlier := u.lastChange(last-1, value)
		if earlier < 0 || !u.versions[earlier].Undo {
			return last
		}
		last = earlier
	}
}

// touched returns the last write after a version that another user made and that changed more than status. It returns
// nil if there is none.
func (u *undoing) touched(k Kind, behind int) *Version {
	for i := len(u.versions) - 1; i > behind; i-- {
		v := &u.versions[i]
		if !v.Undo && !reflect.DeepEqual(k.content(v.Object), k.content(u.versions[i-1].Object)) {
			return v
		}
	}
	return nil
}

// object returns the object without the writes that are taken back.
func (u *undoing) object(k Kind, shape *schemas.Node) *unstructured.Unstructured {
	values := make([]any, len(u.versions))
	var identity *unstructured.Unstructured
	for i, v := range u.versions {
		if v.Object == nil {
			values[i] = none
			continue
		}
		identity = v.Object
		content := k.content(v.Object)
		if status := k.status(v.Object); status != nil {
			content["status"] = status
		}
		values[i] = content
	}
	content, ok := u.value("", values, shape).(map[string]any)
	if !ok {
		return nil
	}
	o := (&unstructured.Unstructured{Object: content}).DeepCopy()
	o.SetUID(identity.GetUID())
	return o
}

// none stands for a field that does not exist, because null is a value.
var none any = absence{}

// absence is the type of none.
type absence struct{}

// value returns a field without the writes that are taken back. values has the field in each version.
func (u *undoing) value(path string, values []any, shape *schemas.Node) any {
	if all[map[string]any](values) {
		return u.fields(path, values, shape)
	}
	if shape != nil && shape.List != nil && shape.List.Type == "map" && all[[]any](values) {
		if keyed, order, identities, ok := byKeys(values, shape.List.MapKeys); ok {
			fields, ok := u.fields(path, keyed, &schemas.Node{Struct: &schemas.Struct{Patterns: []schemas.KeyPattern{{Value: shape.List.Items}}}}).(map[string]any)
			if !ok {
				return none
			}
			var items []any
			for _, key := range order {
				if item, ok := fields[key].(map[string]any); ok {
					maps.Copy(item, identities[key]) // it stays for a field that others wrote, whoever wrote the keys
					items = append(items, item)
				}
			}
			return items
		}
	}
	return u.leaf(path, values)
}

// all reports whether all existing values have a type, and at least one value exists.
func all[T any](values []any) bool {
	found := false
	for _, v := range values {
		if v == none {
			continue
		}
		if _, ok := v.(T); !ok {
			return false
		}
		found = true
	}
	return found
}

// fields returns a struct without the writes that are taken back.
func (u *undoing) fields(path string, values []any, shape *schemas.Node) any {
	names := map[string]bool{}
	for _, v := range values {
		if fields, ok := v.(map[string]any); ok {
			for name := range fields {
				names[name] = true
			}
		}
	}
	result := map[string]any{}
	for name := range names {
		of := make([]any, len(values))
		for i, v := range values {
			of[i] = none
			if fields, ok := v.(map[string]any); ok {
				if value, ok := fields[name]; ok {
					of[i] = value
				}
			}
		}
		if value := u.value(strings.TrimPrefix(path+"."+name, "."), of, difference.Field(shape, name)); value != none {
			result[name] = value
		}
	}
	if len(result) > 0 {
		return result
	}
	there := make([]any, len(values))
	for i, v := range values {
		there[i] = v != none
	}
	if is, ok := u.leaf("", there).(bool); ok && is {
		return result
	}
	return none
}

// byKeys turns lists into structs whose fields are the items by their keys. order has the keys in the order of the
// last list that has each, and identities the key fields of each item.
func byKeys(lists []any, keys []string) (structs []any, order []string, identities map[string]map[string]any, ok bool) {
	structs, identities = make([]any, len(lists)), map[string]map[string]any{}
	for i := len(lists) - 1; i >= 0; i-- {
		structs[i] = none
		list, there := lists[i].([]any)
		if !there {
			continue
		}
		items := map[string]any{}
		for _, item := range list {
			fields, is := item.(map[string]any)
			if !is {
				return nil, nil, nil, false
			}
			var key strings.Builder
			identity := map[string]any{}
			for _, k := range keys {
				fmt.Fprintf(&key, "[%s=%v]", k, fields[k])
				if v, there := fields[k]; there {
					identity[k] = v
				}
			}
			if _, twice := items[key.String()]; twice {
				return nil, nil, nil, false
			}
			items[key.String()], identities[key.String()] = item, identity
			if !slices.Contains(order, key.String()) {
				order = append(order, key.String())
			}
		}
		structs[i] = items
	}
	return structs, order, identities, true
}

// leaf returns a value without the writes that are taken back. It treats the value as a whole.
func (u *undoing) leaf(path string, values []any) any {
	at := func(i int) any { return values[i] }
	now := len(values) - 1
	last := u.lastChange(now, at)
	if last < 0 {
		return values[now]
	}
	if u.versions[last].Undo {
		return values[u.firstOf(last, at)-1]
	}
	for i := u.lastChange(last-1, at); i > 0; i = u.lastChange(i-1, at) {
		if u.versions[i].Undo {
			if path != "" && !reflect.DeepEqual(values[u.firstOf(i, at)-1], values[now]) {
				u.skipped = append(u.skipped, skip{path, &u.versions[last]})
			}
			break
		}
	}
	return values[now]
}

// notes names the fields that keep their values, and who changed them.
func (u *undoing) notes() []string {
	slices.SortFunc(u.skipped, func(a, b skip) int { return strings.Compare(a.path, b.path) })
	var notes []string
	for _, s := range u.skipped {
		notes = append(notes, fmt.Sprintf("%s stays: %s changed it since, at revision %d", s.path, s.by.By, s.by.Revision))
	}
	return notes
}
